"""Several launches in one text: loops that train several times, launches on one line, programs of mpirun."""

from pathlib import Path

import pytest

from support.adopting import adopted, asked, refused, written

SCRIPT = """import argparse, torch
p = argparse.ArgumentParser()
p.add_argument("--out", default="ckpt")
p.add_argument("--lr")
p.add_argument("--resume")
args = p.parse_args()
torch.load(args.resume)
torch.save({}, f"{args.out}/a.pt")
"""
SWEEP = "for lr in 0.1 0.2; do torchrun --nproc-per-node=2 train.py --lr $lr --out out_$lr; done"
SWEPT = "for lr in 0.1 0.2; do faultrun train.py --lr $lr --out out_$lr; done"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return written(tmp_path, train__py=SCRIPT, other__py=SCRIPT)


def test_a_loop_that_trains_several_times_stays(folder: Path) -> None:
    written(folder, sweep__sh=f"{SWEEP}\n")
    found = adopted(folder, "sweep.sh")
    (said,) = [one for one in found["notes"] if "loop" in one]
    assert said.startswith("sweep.sh:1 stands in a loop, which trains several times: ")
    assert found["options"]["worker_num"] == ["2"]
    assert asked(folder, "--force", "--apply", "sweep.sh").exception is None
    assert (folder / "sweep.sh").read_text() == f"{SWEPT}\n"


def test_a_typed_loop_is_printed_whole(folder: Path) -> None:
    told = asked(folder, SWEEP)
    assert told.exception is None
    assert f"  {SWEPT}\n" in told.stdout
    assert "each device" not in told.stdout


DEVICES = [
    "for i in 0 1; do\n  export RANK_ID=$i\n  python train.py > log$i 2>&1 &\ndone",
    "for i in 0 1; do\n  DEVICE_ID=$i python train.py &\ndone",
    "for i in 0 1; do ( cd rank$i; python train.py | tee log ) & done",
    "for i in 0 1; do\n  export ASCEND_DEVICE_ID=$i\n  nohup python train.py &> log &\ndone",
]
SEVERAL = [
    "for i in 0 1; do\n  export RANK_ID=$i\n  python train.py\ndone",
    "for i in 0 1; do\n  python train.py --lr $i &\ndone",
    "for i in 0 1; do\n  CUDA_VISIBLE_DEVICES=$i torchrun --nproc-per-node=2 train.py &\ndone",
    "for i in 0 1; do\n  export RANK_SIZE=$i\n  python train.py &\ndone",
    "for i in 0 1; do ( DEVICE_ID=$i python train.py & ); ( python train.py ) ; done",
]


@pytest.mark.parametrize(
    ("text", "devices"), [*((one, 1) for one in DEVICES), *((one, 0) for one in SEVERAL)]
)
def test_only_what_starts_a_process_per_device_is_called_so(folder: Path, text: str, devices: int) -> None:
    written(folder, run__sh=f"{text}\n")
    notes = adopted(folder, "run.sh")["notes"]
    assert sum("a process for each device" in one for one in notes) == devices
    assert sum("trains several times" in one for one in notes) == 1 - devices


@pytest.mark.parametrize(
    "text",
    [
        "torchrun train.py; torchrun other.py",
        "if true; then torchrun train.py; else torchrun other.py; fi",
        "torchrun train.py && torchrun other.py",
    ],
)
def test_every_launch_of_a_line_that_is_not_taken_is_named(folder: Path, text: str) -> None:
    note = "taken: {0}:1 (torchrun other.py); {0}:1 (torchrun train.py) start Python, too"
    assert note.format("the command") in adopted(folder, text)["notes"]
    written(folder, run__sh=f"{text}\n")
    assert note.format("run.sh") in adopted(folder, "run.sh")["notes"]


@pytest.mark.parametrize("launcher", ["mpirun -np 2", "mpiexec -n 2", "mpirun -x A=1 -np 2"])
def test_mpiruns_several_programs_are_refused(folder: Path, launcher: str) -> None:
    error = refused(folder, f"{launcher} python train.py : -np 2 python other.py")
    assert error.what == f"{launcher.partition(' ')[0]} starts several programs"
    assert error.exit_code == 64
    assert not (folder / "faultrun.yaml").exists()
