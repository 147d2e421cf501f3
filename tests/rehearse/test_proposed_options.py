import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from faultrun.adopt.launch import AdoptedOption
from faultrun.rehearse.outcome import Ailment, Fate, RehearsalOutcome, Trial, Tried, Undisturbed
from faultrun.rehearse.proposed_options import as_diff, wanted_options, with_options

PART = Undisturbed(trained_s=9.0, first_step_s=1.0, first_save_s=2.0)
RESUME = AdoptedOption(name="resume_arg", values=("--resume={checkpoint}",), read="train.py:9")
LOG = AdoptedOption(name="hang_signal", values=("log",), read="why")


def found(*tried: Tried, part: Undisturbed = PART) -> RehearsalOutcome:
    return RehearsalOutcome(tried=tried, undisturbed=part, minutes=3.0, took_s=9.0, isolation="")


def ill(ailment: Ailment, trial: Trial = Trial.RANK) -> Tried:
    return Tried(trial=trial, fate=Fate.LOST, ailments=(ailment,))


def names(outcome: RehearsalOutcome, *read: AdoptedOption) -> list[tuple[str, tuple[str, ...]]]:
    return [(one.name, one.values) for one in wanted_options(outcome, read, "/job")]


def test_each_ailment_that_an_option_answers_has_it() -> None:
    elsewhere = replace(PART, elsewhere=("/job/out", "/data/out"))
    assert names(found(ill(Ailment.FREEZE_UNSEEN, Trial.FREEZE))) == [("hang_signal", ("log",))]
    assert names(found(part=elsewhere)) == [("checkpoint_dir", ("out", "/data/out"))]
    assert names(found(ill(Ailment.BEGINS_ANEW)), RESUME) == [("resume_arg", RESUME.values)]
    assert names(found(ill(Ailment.STUCK_IN_STOP)), RESUME) == []


def test_a_recipe_knows_the_folders_itself() -> None:
    recipe = AdoptedOption(name="recipe", values=("transformers",), read="train.py")
    assert names(found(part=replace(PART, elsewhere=("/job/out",))), recipe) == [
        ("recipe", ("transformers",))
    ]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", {"hang_signal": "log", "resume_arg": "--resume={checkpoint}"}),
        ("grace: 5s", {"grace": "5s", "hang_signal": "log", "resume_arg": "--resume={checkpoint}"}),
        (
            "hang-signal: sdk  # mine\nresume_arg:\n  - --old\n  - --older\ngrace: 5s\n",
            {"hang_signal": "log", "resume_arg": "--resume={checkpoint}", "grace": "5s"},
        ),
    ],
)
def test_a_configuration_has_each_option_once(before: str, after: dict[str, str]) -> None:
    assert yaml.safe_load(with_options(before, (LOG, RESUME))) == after


@pytest.mark.parametrize("command", [["git", "apply"], ["patch", "-p1", "-s"]])
@pytest.mark.parametrize("before", [None, "grace: 5s\n", "grace: 5s"])
def test_a_diff_is_applied_by_git_and_patch(tmp_path: Path, command: list[str], before: str | None) -> None:
    file = tmp_path / "sub" / "faultrun.yaml"
    file.parent.mkdir()
    if before is not None:
        file.write_text(before)
    after = with_options(before or "", (LOG, RESUME))
    text = "# type --checkpoint_dir=x\n" + as_diff("sub/faultrun.yaml", before, after)
    subprocess.run(command, cwd=tmp_path, input=text, text=True, check=True)
    assert file.read_text() == after
