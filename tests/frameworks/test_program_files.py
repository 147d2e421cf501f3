"""Whether a program asks where to resume, read from its source: real files, nothing of them is run."""

from pathlib import Path

import pytest

from faultrun.frameworks.program_files import asks, program_sources


def asked(*words: str, script: Path | None = None) -> bool | None:
    search = () if script is None else (script.parent,)
    return asks(words, program_sources(words, script, search))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("import os\npath = os.environ.get('FAULTRUN_RESUME_FROM', '')\n", True),
        ("def main():\n    from faultrun import sdk\n", True),
        ("import torch, faultrun.sdk.torch as guard\n", True),
        ("ranks = os.environ['RESTORE_RANKS']\n", True),
        ("# started by faultrun\nprint('faultrun')\n", False),
        ("import faultrunner\n", False),
        ("this is no Python: FAULTRUN_RESUME_STEP", True),
        ("", False),
    ],
)
def test_a_script_asks_by_a_variable_or_by_the_sdk(tmp_path: Path, text: str, told: bool) -> None:
    script = tmp_path / "train.py"
    script.write_text(text)
    assert asked("python", str(script), script=script) is told


def test_modules_of_its_own_ask_for_it_and_so_do_shell_scripts(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("from src import loop\n")
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "__init__.py").write_text("")
    (tmp_path / "src" / "loop.py").write_text("from src.resume import path\nimport train\n")
    (tmp_path / "src" / "resume.py").write_text("path = os.environ['FAULTRUN_RESUME_FROM']\n")
    script = tmp_path / "train.py"
    assert asked("python", str(script), script=script) is True
    (tmp_path / "src" / "resume.py").write_text("path = ''\n")
    assert asked("python", str(script), script=script) is False
    (tmp_path / "run.sh").write_text("python train.py --resume=$FAULTRUN_RESUME_FROM\n")
    assert asked("bash", str(tmp_path / "run.sh")) is True
    assert asked("bash", "-c", "train $FAULTRUN_RESUME_FROM") is True


def test_of_what_cannot_be_read_nothing_is_said() -> None:
    assert asked("./trainer", "--name", "my run") is None
    assert asked("bash", "-c", "train --all") is None
