"""The words of other launchers: what each becomes, what stays, and what means nothing here."""

from pathlib import Path

import pytest

from support.adopting import adopted, refused, written

SCRIPT = "import torch\ntorch.save({}, 'ckpt/a.pt')\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return written(tmp_path, train__py=SCRIPT, other__py="import torch\n")


@pytest.mark.parametrize(
    ("command", "line", "options"),
    [
        (
            "torchrun --nproc-per-node=4 train.py --lr 1e-3",
            "faultrun train.py --lr 1e-3",
            {"worker_num": ["4"]},
        ),
        (
            "torchrun --nproc_per_node 2 --max-restarts=7 train.py",
            "faultrun train.py",
            {"worker_num": ["2"], "max_restarts": ["7"]},
        ),
        ("torchrun --nproc-per-node=auto train.py", "faultrun train.py", {"nproc_per_node": ["auto"]}),
        (
            "python -m torch.distributed.run --nproc-per-node=2 -m train",
            "faultrun -m train",
            {"worker_num": ["2"]},
        ),
        (
            "python3 -u -m torch.distributed.launch --nproc_per_node=2 train.py",
            "faultrun train.py",
            {"worker_num": ["2"]},
        ),
        (
            "msrun --worker_num=8 --local_worker_num=8 --log_dir=L train.py",
            "faultrun train.py",
            {"worker_num": ["8"], "log_dir": ["L"]},
        ),
        ("python -u train.py -x", "faultrun train.py -x", {}),
        ("python -m train -x", "faultrun -m train -x", {}),
        (
            "accelerate launch --num_processes 4 --mixed_precision bf16 train.py --a",
            "ACCELERATE_MIXED_PRECISION=bf16 faultrun train.py --a",
            {"worker_num": ["4"]},
        ),
        (
            "accelerate launch --multi_gpu --num_processes=2 --use_fsdp --fsdp_version=2 -m train",
            "ACCELERATE_USE_FSDP=true FSDP_VERSION=2 faultrun -m train",
            {"worker_num": ["2"]},
        ),
        (
            "deepspeed --num_gpus=4 --master_port 29501 train.py --deepspeed ds.json",
            "faultrun train.py --deepspeed ds.json",
            {"worker_num": ["4"], "master_port": ["29501"]},
        ),
        ("deepspeed --include localhost:0,2 train.py", "faultrun train.py", {"worker_num": ["2"]}),
        (
            "mpirun -np 4 --allow-run-as-root -x NCCL_DEBUG=INFO -x PATH --mca btl tcp python train.py",
            "NCCL_DEBUG=INFO faultrun train.py",
            {"worker_num": ["4"]},
        ),
        ("mpiexec -n 4 -genv A B python3 train.py", "A=B faultrun train.py", {"worker_num": ["4"]}),
        ("srun -n4 --cpus-per-task=2 python train.py", "faultrun train.py", {"worker_num": ["4"]}),
        (
            "srun --nodes=1 --ntasks=1 torchrun --nproc-per-node=2 train.py",
            "faultrun train.py",
            {"worker_num": ["2"]},
        ),
        (
            "fabric run --accelerator=cpu --devices=2 train.py",
            "LT_CLI_USED=1 LT_ACCELERATOR=cpu LT_DEVICES=2 faultrun train.py",
            {"worker_num": ["2"]},
        ),
        (
            "OMP_NUM_THREADS=2 nohup torchrun --nproc-per-node=2 train.py &",
            "OMP_NUM_THREADS=2 faultrun train.py",
            {"worker_num": ["2"]},
        ),
        ("uv run torchrun --nproc-per-node=2 train.py", "uv run faultrun train.py", {"worker_num": ["2"]}),
        ("conda run -n env python train.py", "conda run -n env faultrun train.py", {}),
        (
            "cd . && torchrun --nproc-per-node=2 train.py > log.txt 2>&1",
            "faultrun train.py",
            {"worker_num": ["2"]},
        ),
        (
            "torchrun --nproc-per-node=$N train.py --lr $LR",
            "faultrun --nproc_per_node=$N train.py --lr $LR",
            {},
        ),
        ("faultrun --worker_num=3 train.py", "faultrun train.py", {"worker_num": ["3"]}),
    ],
)
def test_each_launcher_becomes_one_line(
    folder: Path, command: str, line: str, options: dict[str, list[str]]
) -> None:
    found = adopted(folder, command)
    assert found["command_line"] == line
    assert {
        name: values for name, values in found["options"].items() if name not in ("checkpoint_dir",)
    } == options
    assert not [one for one in found["missing"] if "refuse" in one], found["missing"]


def test_words_typed_one_by_one_are_the_same_command(folder: Path) -> None:
    one = adopted(folder, "torchrun --nproc-per-node=2 train.py --name 'a b'")
    again = adopted(folder, "torchrun", "--nproc-per-node=2", "train.py", "--name", "a b")
    assert (one.pop("written"), again.pop("written")) == (True, False)
    assert one == again
    assert one["command"] == ["faultrun", "train.py", "--name", "a b"]


@pytest.mark.parametrize(
    ("command", "what"),
    [
        ("torchrun --rdzv-backend=c10d --nproc-per-node=2 train.py", "--rdzv_backend"),
        ("torchrun --start-method=fork --nproc-per-node=2 train.py", "--start_method"),
        ("accelerate launch --multi_gpu train.py", "--multi_gpu"),
        ("deepspeed --hostfile hosts train.py", "--hostfile"),
        ("mpirun -np 2 --bind-to core python train.py", "--bind-to"),
        ("accelerate launch --unheard_of 7 train.py", "--unheard_of"),
        ("srun --kill-on-bad-exit=1 python train.py", "--kill-on-bad-exit"),
    ],
)
def test_what_means_nothing_here_is_said_and_left_out(folder: Path, command: str, what: str) -> None:
    found = adopted(folder, command)
    assert [one for one in found["no_effect"] if what in one.partition(": ")[0]], found["no_effect"]
    assert what not in found["command_line"]
    assert what.strip("-") not in found["options"]


@pytest.mark.parametrize(
    "command",
    [
        "torchrun --nnodes=2 --nproc-per-node=4 train.py",
        "accelerate launch --num_machines 2 train.py",
        "deepspeed --num_nodes=2 train.py",
        "srun -N 2 python train.py",
        "srun -n 2 torchrun --nproc-per-node=2 train.py",
        "msrun --worker_num=8 --local_worker_num=4 train.py",
    ],
)
def test_several_nodes_are_refused_plainly(folder: Path, command: str) -> None:
    error = refused(folder, command)
    assert "several nodes" in error.what
    assert error.exit_code == 64
    assert not (folder / "faultrun.yaml").exists()


def test_how_many_nodes_a_variable_says_is_a_doubt(folder: Path) -> None:
    found = adopted(folder, "torchrun --nnodes=$NNODES --nproc-per-node=2 train.py")
    assert any("$NNODES" in one for one in found["missing"])


def test_accelerates_own_configuration_is_read(folder: Path) -> None:
    (folder / "acc.yaml").write_text(
        "compute_environment: LOCAL_MACHINE\ndistributed_type: FSDP\nnum_processes: 4\nnum_machines: 1\n"
        "mixed_precision: bf16\nmachine_rank: 0\nuse_cpu: false\nfsdp_config:\n  fsdp_version: 2\n"
    )
    found = adopted(folder, "accelerate launch --config_file acc.yaml --num_processes=2 train.py")
    assert found["options"]["worker_num"] == ["2"], "what is typed wins"
    assert found["environment"] == {
        "ACCELERATE_MIXED_PRECISION": "bf16",
        "ACCELERATE_USE_FSDP": "true",
        "FSDP_VERSION": "2",
    }
    assert "not here" in refused(folder, "accelerate launch --config_file other.yaml train.py").what
