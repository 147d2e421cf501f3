"""Whether a program asks where to resume, read from its source: real files, nothing of them is run."""

from pathlib import Path

import pytest

from faultrun.frameworks.program_files import asks


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
    assert asks(("python", str(script)), script, (tmp_path,)) is told


def test_modules_of_its_own_ask_for_it_and_so_do_shell_scripts(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("from src import loop\n")
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "__init__.py").write_text("")
    (tmp_path / "src" / "loop.py").write_text("from src.resume import path\nimport train\n")
    (tmp_path / "src" / "resume.py").write_text("path = os.environ['FAULTRUN_RESUME_FROM']\n")
    script = tmp_path / "train.py"
    assert asks(("python", str(script)), script, (tmp_path,)) is True
    (tmp_path / "src" / "resume.py").write_text("path = ''\n")
    assert asks(("python", str(script)), script, (tmp_path,)) is False
    (tmp_path / "run.sh").write_text("python train.py --resume=$FAULTRUN_RESUME_FROM\n")
    assert asks(("bash", str(tmp_path / "run.sh")), None, ()) is True
    assert asks(("bash", "-c", "train $FAULTRUN_RESUME_FROM"), None, ()) is True


def test_of_what_cannot_be_read_nothing_is_said() -> None:
    assert asks(("./trainer", "--name", "my run"), None, ()) is None
    assert asks(("bash", "-c", "train --all"), None, ()) is None
