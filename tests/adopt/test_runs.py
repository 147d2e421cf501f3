"""What ``faultrun adopt`` writes really trains, is killed once, and goes on where it was."""

import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from examples.codes import resumed_at
from examples.launched import FAULTRUN, Run, launched
from support.adopting import adopted, left_open
from support.places import ROOT

pytestmark = pytest.mark.slow

WITHIN_S = 240


def copied(name: str, where: Path) -> Path:
    """An example's folder, copied."""
    folder = where / name
    ignored = shutil.ignore_patterns("faultrun_log", "__pycache__", "digits", "lenet", "out")
    shutil.copytree(ROOT / "examples" / name, folder, ignore=ignored)
    return folder


def killed_and_recovered(folder: Path, command: str, *, at_step: int, told: Mapping[str, str]) -> Run:
    """Adopt ``command``, fill in what is ``told``, start what it says, kill a rank.

    The run must end with 0 behind a recovery point.
    """
    found = adopted(folder, command)
    assert len(found["missing"]) == len(left_open(folder))
    with (folder / "faultrun.yaml").open("a") as page:
        page.writelines(f'{name}: "{value}"\n' for name, value in told.items())
    words = found["command"]
    assert words[0] == "faultrun"
    variables = [f"{name}={value}" for name, value in found["environment"].items()]
    with launched("env", *variables, *FAULTRUN, *words[1:], cwd=folder) as run:
        run.wait_until(lambda: run.step(0) >= at_step, within_s=WITHIN_S)
        run.kill(1)
        assert run.wait_for_the_end(within_s=WITHIN_S) == 0, run.console
    assert "options from faultrun.yaml: " in run.console
    assert 0 < resumed_at(run, 0) <= run.step(0) + 1
    assert not (run.log_dir / "incarnation_2").exists(), "one restart was enough"
    return run


@pytest.mark.torch
def test_torchrun_of_a_script_with_a_configuration(tmp_path: Path) -> None:
    folder = copied("02_torch_ddp", tmp_path)
    command = "torchrun --standalone --nproc-per-node=2 train.py --log_steps=1 --step_delay_s=0.02 --epochs=4"
    told = {"checkpoint_dir": "digits", "resume_arg": "--pre_trained={checkpoint}"}
    run = killed_and_recovered(folder, command, at_step=35, told=told)
    path, step = run.output(1).resumed
    assert Path(path).parent.name == "digits"
    assert min(run.output(1).losses) == step + 1
    changed = (folder / "config.yaml").read_bytes()
    assert changed == (ROOT / "examples" / "02_torch_ddp" / "config.yaml").read_bytes(), "an option did it"


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("13_deepspeed", "deepspeed --num_gpus=2 --master_port 29555 train.py --output_dir=out --steps=40"),
        ("11_lightning", "torchrun --nproc-per-node=2 train.py --output_dir=out"),
        ("11_lightning", "fabric run --accelerator=cpu --devices=2 fabric.py --output_dir=out"),
        (
            "12_fsdp2_dcp",
            "torchrun --nproc-per-node=2 --rdzv-backend=c10d --rdzv-endpoint=localhost:0 train.py",
        ),
        ("04_mindspore_resnet", "msrun --worker_num=2 train.py --config_path=resnet_digits_config.yaml"),
        ("06_pytorch_resnet50", "torchrun --nproc_per_node=2 train.py"),
        ("05_pangu_hybrid", "mpirun -np 4 python train.py --save_checkpoint_path=checkpoints"),
        ("03_mindio_ttp", "msrun --worker_num=4 --local_worker_num=4 mindio_ttp_case.py"),
        ("02_torch_ddp", "srun --ntasks=2 --cpu-bind=cores python train.py"),
    ],
)
def test_each_command_of_the_examples_is_one_that_faultrun_takes(
    tmp_path: Path, name: str, command: str
) -> None:
    folder = copied(name, tmp_path)
    found = adopted(folder, command)
    assert len(found["missing"]) == len(left_open(folder)), found["missing"]
    words = (sys.executable, "-m", "faultrun", "--dry-run", *found["command"][1:])
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert "has no effect" not in done.stderr
