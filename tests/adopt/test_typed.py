"""What is typed for the folder of checkpoints is offered, and never the default in its place."""

from pathlib import Path

import pytest

from support.adopting import adopted, asked, left_open, written

SCRIPT = """import argparse
p = argparse.ArgumentParser()
p.add_argument("-o", "--out", "--output", default="ckpt")
p.add_argument("--resume", default="")
p.add_argument("--log-every", default=1)
p.add_argument("--log-dir", default="logs")
args = p.parse_args()
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return written(tmp_path, train__py=SCRIPT)


@pytest.mark.parametrize(
    "typed", ["--out else/where", "--out=else/where", "--output else/where", "-o else/where"]
)
def test_the_typed_value_is_offered(folder: Path, typed: str) -> None:
    adopted(folder, f"torchrun --nproc-per-node=2 train.py {typed}")
    assert left_open(folder)["checkpoint_dir"] == "else/where"


@pytest.mark.parametrize("typed", ["--ou else/where", "--ou=else/where", "--outp else", "-oelse/where"])
def test_where_it_may_be_typed_in_another_way_no_default_takes_its_place(folder: Path, typed: str) -> None:
    adopted(folder, f"torchrun --nproc-per-node=2 train.py {typed}")
    assert left_open(folder)["checkpoint_dir"] == "DIR"


def test_a_file_stands_for_the_folder_that_holds_it(folder: Path) -> None:
    adopted(folder, "torchrun --nproc-per-node=2 train.py --out runs/7/last.pt")
    assert left_open(folder)["checkpoint_dir"] == "runs/7"


def test_nothing_of_it_is_written_before_a_person_says_so(folder: Path) -> None:
    found = adopted(folder, "torchrun --nproc-per-node=2 train.py --out else/where")
    assert found["options"] == {"worker_num": ["2"]}
    assert found["command"] == ["faultrun", "train.py", "--out", "else/where"]
    assert [one.rpartition(": ")[2] for one in found["missing"]] == ["checkpoint_dir", "resume_arg"]


@pytest.mark.parametrize("typed", ["$HOME/ck", "${HOME}/ck", "ckpt_$(date +%F)", "`pwd`/ck", "$i"])
def test_what_only_a_shell_can_tell_comes_into_no_file(folder: Path, typed: str) -> None:
    adopted(folder, f'torchrun --nproc-per-node=2 train.py --out "{typed}"')
    assert left_open(folder)["checkpoint_dir"] == "DIR"
    line = f"--out (train.py:3) is {typed}: --checkpoint_dir={typed} on the command line"
    assert line in (folder / "faultrun.yaml").read_text()


def test_a_shell_script_keeps_its_own_variable(folder: Path) -> None:
    written(folder, run__sh="SAVE=$SCRATCH/run7\ntorchrun --nproc-per-node=2 train.py --out $SAVE\n")
    told = asked(folder, "run.sh")
    assert told.exception is None
    assert "  faultrun train.py --out $SAVE\n" in told.stdout
