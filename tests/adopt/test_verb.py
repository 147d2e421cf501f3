"""``faultrun adopt`` as a person uses it: what is written, what is never written, errors and exit codes."""

import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from faultrun.errors import FaultrunError
from support.adopting import adopted, asked, left_open, refused, written
from support.machine.scripts import faultrun
from support.machine.terminal import Terminal

COMMAND = "torchrun --nproc-per-node=2 train.py"
SCRIPT = """import argparse
p = argparse.ArgumentParser()
p.add_argument("--out", default="ckpt")
p.add_argument("--resume")
"""
SHELL = "set -e\ntorchrun --nproc-per-node=2 \\\n  train.py --lr $LR > log"


def test_the_file_says_where_each_value_was_read(tmp_path: Path) -> None:
    written(tmp_path, train__py="import lightning as L\nL.Trainer(devices=4)\n")
    assert asked(tmp_path, "python train.py").return_value == 0
    text = (tmp_path / "faultrun.yaml").read_text()
    rows = [line for line in text.splitlines() if line and not line.startswith("#")]
    assert rows == [
        "worker_num: 4      # train.py:2 devices=4",
        "recipe: lightning  # train.py imports lightning.Trainer",
    ]


@pytest.mark.long
def test_on_a_terminal_two_questions_are_asked_and_the_answers_written(tmp_path: Path) -> None:
    written(tmp_path, train__py=SCRIPT)
    said = typed(tmp_path, "y\n", "--resume\n")
    assert "where does train.py save its checkpoints? [y: ckpt; the default of --out (train.py:3)]" in said
    assert (
        "how is train.py told which checkpoint to load? [y: --resume={checkpoint}; --resume (train.py:4)]"
        in said
    )
    page = yaml.safe_load((tmp_path / "faultrun.yaml").read_text())
    assert page == {"worker_num": 2, "checkpoint_dir": "ckpt", "resume_arg": "--resume={checkpoint}"}
    assert "left open" not in said
    assert "is left as it is" in typed(tmp_path), "nobody answers for a file that would not be written"


@pytest.mark.long
@pytest.mark.parametrize("answers", [("\n", "\x04"), ("n\n", "No\n")])
def test_enter_no_and_no_more_input_leave_a_question_open(tmp_path: Path, answers: tuple[str, str]) -> None:
    written(tmp_path, train__py=SCRIPT)
    assert "left open:" in typed(tmp_path, *answers)
    assert left_open(tmp_path) == {"checkpoint_dir": "ckpt", "resume_arg": "--resume={checkpoint}"}


@pytest.mark.long
def test_an_answer_that_no_script_takes_is_refused_and_asked_again(tmp_path: Path) -> None:
    written(tmp_path, train__py=SCRIPT)
    said = typed(tmp_path, "$OUT/ck\n", "--resume={nothing}\n", "somehow\n", "c.yaml:pre_trained\n")
    assert "--resume={nothing} cannot be used" in said
    assert "somehow cannot be used: it is no option of a script" in said
    assert (
        "faultrun '--checkpoint_dir=$OUT/ck' train.py" in said or "--checkpoint_dir=$OUT/ck train.py" in said
    )
    page = yaml.safe_load((tmp_path / "faultrun.yaml").read_text())
    assert page == {"worker_num": 2, "rewrite": "c.yaml:pre_trained"}


@pytest.mark.long
def test_a_yes_where_nothing_is_offered_names_no_folder(tmp_path: Path) -> None:
    written(tmp_path, train__py="print(1)\n")
    assert "y says too little: nothing is offered" in typed(tmp_path, "y\n", "\n", "\n")


@pytest.mark.long
def test_how_it_resumes_alone_is_kept_as_a_comment(tmp_path: Path) -> None:
    written(tmp_path, train__py=SCRIPT)
    typed(tmp_path, "\n", "y\n")
    text = (tmp_path / "faultrun.yaml").read_text()
    assert yaml.safe_load(text) == {"worker_num": 2}
    assert '# resume_arg: "--resume={checkpoint}"' in text
    assert "alone it resumes nothing" in text


def has_asked(times: int) -> Callable[[bytes], bool]:
    return lambda said: said.count(b"? ") >= times


def typed(folder: Path, *lines: str) -> str:
    """What stands on a terminal on which ``lines`` answer one question after the other."""
    terminal = Terminal(columns=200)
    process = terminal.start([sys.executable, "-m", "faultrun", "adopt", COMMAND], folder)
    for number, line in enumerate(lines, start=1):
        terminal.read_until(has_asked(number))
        terminal.type(line.encode())
    said = terminal.read_to_end().decode()
    process.wait()
    return said


def test_a_file_that_is_there_is_never_written_over_without_force(tmp_path: Path) -> None:
    written(tmp_path, train__py="print(1)\n", faultrun__yaml="worker_num: 7\n")
    told = asked(tmp_path, COMMAND)
    assert isinstance(told.exception, FaultrunError)
    assert told.exception.exit_code == 64
    assert "-worker_num: 7" in told.stdout
    assert "+worker_num: 2" in told.stdout
    assert (tmp_path / "faultrun.yaml").read_text() == "worker_num: 7\n"
    assert "written over the one before" in asked(tmp_path, "--force", COMMAND).stdout
    assert "already so" in asked(tmp_path, COMMAND).stdout


@pytest.mark.long
def test_the_file_is_written_beside_the_script_and_used_from_there(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    written(tmp_path / "src", train__py="print(1)\n")
    found = adopted(tmp_path, "torchrun --nproc-per-node=3 src/train.py")
    assert found["config"] == str(tmp_path / "src" / "faultrun.yaml")
    assert found["command"] == ["faultrun", "src/train.py"]
    told = faultrun("--dry-run", "src/train.py", cwd=tmp_path)
    assert told.returncode == 0, told.stderr
    assert "options from src/faultrun.yaml: worker_num" in told.stderr


@pytest.mark.parametrize("tool", [["git", "apply"], ["patch", "-p1", "--input"]])
def test_the_diff_is_one_that_git_and_patch_take(tmp_path: Path, tool: list[str]) -> None:
    if shutil.which(tool[0]) is None:
        pytest.skip(f"no {tool[0]} here")
    written(tmp_path, train__py=SCRIPT, run__sh=SHELL)
    told = asked(tmp_path, "--diff", "run.sh")
    assert told.exception is None
    assert "instead of run.sh:2" in told.stderr
    assert told.stdout.startswith("--- a/run.sh\n+++ b/run.sh\n")
    assert not (tmp_path / "faultrun.yaml").exists()
    (tmp_path / "x.patch").write_text(told.stdout)
    done = subprocess.run([*tool, "x.patch"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    by_tool = (tmp_path / "run.sh").read_text()
    assert by_tool == "set -e\nfaultrun train.py --lr $LR > log"
    (tmp_path / "run.sh").write_text(SHELL)
    (tmp_path / "run.sh").chmod(0o751)
    assert "faultrun.yaml  (already so)" in asked(tmp_path, "--apply", "run.sh").stdout
    assert (tmp_path / "run.sh").read_text() == by_tool
    assert stat.S_IMODE((tmp_path / "run.sh").stat().st_mode) == 0o751
    assert (tmp_path / "train.py").read_text() == SCRIPT


def test_without_apply_no_script_is_touched(tmp_path: Path) -> None:
    written(tmp_path, train__py=SCRIPT, run__sh=SHELL)
    before = (tmp_path / "run.sh").stat()
    asked(tmp_path, "--diff", "run.sh")
    asked(tmp_path, "--force", "--json", "run.sh")
    assert (tmp_path / "run.sh").read_text() == SHELL
    assert (tmp_path / "run.sh").stat().st_mtime_ns == before.st_mtime_ns


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("",),
        ("  ",),
        ("missing.py",),
        (".",),
        ("torchrun",),
        ("torchrun --nproc-per-node=2",),
        ("torchrun --no-such-option=2 train.py",),
        ("make train",),
        ("'torchrun",),
        ("x" * 9000,),
        ("torchrun train.py \x00",),
        ("train.py", "--diff"),
        ("torchrun", "train.py", "--force"),
    ],
)
def test_what_cannot_be_adopted_is_an_error_of_three_lines(tmp_path: Path, words: tuple[str, ...]) -> None:
    written(tmp_path, train__py="print(1)\n")
    assert refused(tmp_path, *words).exit_code in (64, 78)
    assert not (tmp_path / "faultrun.yaml").exists()


WORDS = st.sampled_from(
    [
        *(
            *("torchrun", "msrun", "accelerate", "launch", "deepspeed"),
            *("mpirun", "srun", "fabric", "run", "python"),
        ),
        *("-m", "-n", "-np", "2", "--nproc-per-node=2", "--nnodes", "--", "-", "=", "train.py", "x", "$X"),
        *(
            *("${Y:-2}", "$(dirname $0)", "&&", ";", "|", "(", ")"),
            *("'", '"', "\\", "\n", "cd", "..", "A=1", "A=(", "for"),
        ),
        *(
            *("do", "done", "bash", "-c", "env", "uv", "--config_file"),
            *("bad.yaml", "#SBATCH --nodes=1", "\x00", "é"),
        ),
    ]
)


@settings(max_examples=120)
@given(words=st.lists(WORDS, max_size=12))
def test_whatever_is_typed_there_is_an_answer_or_a_clear_error(
    tmp_path_factory: pytest.TempPathFactory, words: list[str]
) -> None:
    folder = tmp_path_factory.getbasetemp() / f"typed{os.getpid()}"
    folder.mkdir(exist_ok=True)
    written(folder, train__py="import torch\ntorch.save(1, 'a/b')\n", bad__yaml="a: [")
    _answered(folder, " ".join(words))


@settings(max_examples=80)
@given(
    name=st.sampled_from(["job.yaml", "run.sh", "Dockerfile", "job.sbatch", "train.py", "data.json"]),
    content=st.one_of(
        st.binary(max_size=200), st.lists(WORDS, max_size=30).map(lambda words: " ".join(words).encode())
    ),
)
def test_whatever_a_file_holds_there_is_an_answer_or_a_clear_error(
    tmp_path_factory: pytest.TempPathFactory, name: str, content: bytes
) -> None:
    folder = tmp_path_factory.getbasetemp() / f"files{os.getpid()}"
    folder.mkdir(exist_ok=True)
    (folder / name).write_bytes(content)
    _answered(folder, name)
    (folder / name).unlink()


def _answered(folder: Path, *words: str) -> None:
    told = asked(folder, "--force", "--diff", "--", *words)
    error = told.exception
    if error is not None and not isinstance(error, FaultrunError):
        raise AssertionError(words) from error
    (folder / "faultrun.yaml").unlink(missing_ok=True)


@pytest.mark.long
def test_a_misspelt_option_is_refused_and_where_nothing_is_changed_the_reason_is_said(tmp_path: Path) -> None:
    written(tmp_path, train__py=SCRIPT)
    told = faultrun("adopt", "--aply", COMMAND, cwd=tmp_path)
    assert told.returncode == 64
    assert "--apply" in told.stderr
    told = faultrun("adopt", "--diff", f"{COMMAND} --json", cwd=tmp_path)
    assert (told.returncode, told.stdout.count("--- ")) == (0, 1)
    assert "no change of a script:\n  no shell script here holds the command" in told.stderr
