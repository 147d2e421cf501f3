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
        ("bash -c 'torchrun --nproc-per-node=2 train.py'", "faultrun train.py", {"worker_num": ["2"]}),
        (
            "cd sub && torchrun --nproc-per-node=2 a.py",
            "cd sub && faultrun --worker_num=2 a.py",
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
    assert found["options"] == options
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
        "accelerate launch --num_machines 2 train.py",
        "deepspeed --num_nodes=2 train.py",
        "srun -n 2 torchrun --nproc-per-node=2 train.py",
    ],
)
def test_several_nodes_in_another_way_are_refused_with_a_line_that_does(folder: Path, command: str) -> None:
    error = refused(folder, command)
    assert "several nodes" in error.what
    assert "faultrun --nnodes=N --nproc-per-node=M --master_addr=HOST_OF_THE_FIRST SCRIPT" in error.hint
    assert error.exit_code == 64
    assert not (folder / "faultrun.yaml").exists()


def test_how_many_nodes_a_variable_says_stays_on_the_command_line(folder: Path) -> None:
    found = adopted(folder, "torchrun --nnodes=$NNODES --nproc-per-node=2 --master-addr=$FIRST train.py")
    assert found["command_line"] == "faultrun --nnodes=$NNODES --master_addr=$FIRST train.py"
    assert found["options"] == {"nproc_per_node": ["2"]}
    assert not [one for one in found["missing"] if "refuse" in one]


FIRST = '"--master_addr=$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n1)"'


@pytest.mark.parametrize(
    ("command", "line", "options"),
    [
        (
            "torchrun --nnodes=2 --node-rank=1 --nproc-per-node=4 --master-addr=gpu07 train.py --lr 1",
            "faultrun --node_rank=1 train.py --lr 1",
            {"nnodes": ["2"], "nproc_per_node": ["4"], "master_addr": ["gpu07"]},
        ),
        (
            "torchrun --nnodes=2 --nproc-per-node=4 --rdzv-backend=c10d --rdzv-endpoint=gpu07:29400 train.py",
            "faultrun train.py",
            {
                "nnodes": ["2"], "nproc_per_node": ["4"], "rdzv_backend": ["c10d"],
                "rdzv_endpoint": ["gpu07:29400"],
            },
        ),
        (
            "msrun --worker_num=8 --local_worker_num=4 --master_addr=192.0.2.7 --node_rank=0 train.py",
            "faultrun --node_rank=0 train.py",
            {"worker_num": ["8"], "local_worker_num": ["4"], "master_addr": ["192.0.2.7"]},
        ),
        (
            "srun -N2 --ntasks=2 torchrun --nnodes=2 --nproc-per-node=8 --master-addr=$FIRST train.py",
            "srun -N2 --ntasks=2 faultrun --master_addr=$FIRST train.py",
            {"nnodes": ["2"], "nproc_per_node": ["8"]},
        ),
        (
            "srun --nodes=2 --ntasks-per-node=8 --gpus=8 python train.py",
            "srun --nodes 2 --gpus 8 --ntasks=2 --ntasks-per-node=1 --kill-on-bad-exit=0 "
            f"faultrun {FIRST} train.py",
            {"nnodes": ["2"], "nproc_per_node": ["8"]},
        ),
    ],
)  # fmt: skip
def test_a_launch_over_several_nodes_is_the_same_over_several_nodes(
    folder: Path, command: str, line: str, options: dict[str, list[str]]
) -> None:
    found = adopted(folder, command)
    assert (found["command_line"], found["options"]) == (line, options)
    assert not [one for one in found["missing"] if "refuse" in one]
    assert any("the same line starts every node" in one for one in found["notes"])


def test_where_several_nodes_meet_is_missed_where_nobody_said_it(folder: Path) -> None:
    (refusal,) = (
        one
        for one in adopted(folder, "torchrun --nnodes=2 --nproc-per-node=4 train.py")["missing"]
        if "refuse" in one
    )
    assert refusal.endswith("nothing says where the 2 nodes find each other")


def test_a_batch_script_over_several_nodes_gets_one_supervisor_on_each(folder: Path) -> None:
    (folder / "job.sbatch").write_text(
        "#!/bin/bash\n#SBATCH --nodes=4\n#SBATCH --ntasks-per-node=8\n"
        "#SBATCH --signal=TERM@120\nsrun python train.py\n"
    )
    found = adopted(folder, "job.sbatch")
    assert found["command_line"] == (
        f"srun --ntasks=$SLURM_NNODES --ntasks-per-node=1 --kill-on-bad-exit=0 faultrun {FIRST} train.py"
    )
    assert found["options"] == {"nnodes": ["4"], "nproc_per_node": ["8"]}
    text = (folder / "job.sbatch").read_text()
    (folder / "job.sbatch").write_text(text.replace("srun python", "python"))
    assert refused(folder, "job.sbatch").because == (
        "python is started on the first alone: no srun stands before it"
    )


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
