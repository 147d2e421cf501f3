"""The verb as typed; no training is started here."""

from pathlib import Path

import pytest

from faultrun.cli.app import program
from faultrun.cli.options.command import run_command
from faultrun.cli.verbs import verb_command
from faultrun.errors import UsageError
from support.places import TESTS

SCRIPT = str(TESTS / "rehearse" / "scripts" / "train.py")


def typed(*words: str) -> object:
    return program().main(["rehearse", *words], standalone_mode=False)


def test_a_fault_that_there_is_not_is_told_with_those_there_are() -> None:
    with pytest.raises(UsageError, match="there is no fault rnak0") as told:
        typed("--faults=rnak0", SCRIPT)
    assert told.value.hint == "--faults=rank,rank0,stop,supervisor,torn,freeze"


@pytest.mark.parametrize("minutes", ["0", "soon", "-1"])
def test_minutes_that_are_none_are_told(minutes: str) -> None:
    with pytest.raises(UsageError, match=r"range|--minutes"):
        typed(f"--minutes={minutes}", SCRIPT)


def test_every_mistake_in_the_options_of_run_is_told_before_anything_starts() -> None:
    with pytest.raises(UsageError, match="no script nowhere"):
        typed("--minutes", "1", "nowhere.py")
    with pytest.raises(UsageError, match="worker_num=many"):
        typed("--json", "--worker_num", "many", SCRIPT)
    with pytest.raises(UsageError, match="resume_arg") as told:
        typed("--resume_arg=--resume={checkpoint}", SCRIPT)
    assert told.value.hint.startswith("--checkpoint_dir=DIR")


def test_a_scratch_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="nothing can be written"):
        typed(f"--scratch={tmp_path}/none", SCRIPT)


def test_the_rehearsals_own_options_need_no_equals_sign_and_leave_switches_alone() -> None:
    with pytest.raises(UsageError, match="there is no fault none"):
        typed("--minutes", "2", "--faults", "none", "--join", "--worker_num", "2", SCRIPT)


def test_the_help_names_its_own_options_and_where_the_others_are(capsys: pytest.CaptureFixture[str]) -> None:
    typed("--help")
    text = capsys.readouterr().out
    assert "--minutes" in text and "--faults" in text and "faultrun --help" in text


def test_every_option_of_run_is_taken() -> None:
    names = {param.name for param in run_command(lambda asked: asked).params}
    assert names <= {param.name for param in verb_command("rehearse").params}
