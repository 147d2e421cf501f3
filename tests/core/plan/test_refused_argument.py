"""An argument of ours that a script refuses ends the run at once; anybody else's does not end it so."""

from dataclasses import replace

import pytest

from faultrun.core.diagnosis.signature_table import ROWS
from faultrun.core.diagnosis.signatures import recognise
from faultrun.model.exits import Exited
from faultrun.model.observed.evidence import DeathNote
from support.stories.story import Story, checkpoint

OURS = ("--pre_trained={checkpoint}", "--is_recover=1")
REFUSALS = [
    "train.py: error: unrecognized arguments: --pre_trained=ckpt/net-9.ckpt",
    "train.py: error: unrecognized arguments: --lr 1 --pre_trained ckpt/net-9.ckpt",
    "train.py: error: argument --is_recover: invalid choice: '1' (choose from 'yes', 'no')",
    "FATAL Flags parsing error: Unknown command line flag 'pre_trained'. Did you mean: trained ?",
    "Error: No such option: --pre_trained",
    "getopt.GetoptError: option --pre_trained not recognized",
    "ERROR: Could not consume arg: --pre_trained=x",
    "Some specified arguments are not used by the HfArgumentParser: ['--pre_trained', 'x']",
]
OTHERS = [
    "train.py: error: unrecognized arguments: --pre_trained_dir=x",
    "train.py: error: unrecognized arguments: /data/--pre_trained=x",
    "train.py: error: the following arguments are required: --data",
    "saved --pre_trained for the next time",
]


def refuses(line: str, *, resumed: bool) -> Story:
    point = checkpoint(9) if resumed else None
    story = Story(1)
    story.rules = replace(story.rules, resume_args=OURS)
    finding = recognise(ROWS, Exited(code=2), None, [line])
    story.begins(point).reported(r0=12)
    return story.returned(0, 2).drained(DeathNote(rank=0, last_line=line, finding=finding)).chose(point)


@pytest.mark.parametrize("line", REFUSALS)
def test_an_argument_of_ours_that_the_script_refuses_is_our_error_at_once(line: str) -> None:
    run = refuses(line, resumed=True)
    assert run.state.exit_code == 78
    assert "the script does not take an argument that a restart gives it: --" in run.whys[-1]
    assert f"because: {line}" in run.whys[-1]
    assert "try:     --resume_arg" in run.whys[-1]


@pytest.mark.parametrize("line", OTHERS)
def test_an_argument_of_somebody_else_is_not_ours(line: str) -> None:
    assert refuses(line, resumed=True).state.exit_code != 78


def test_who_was_given_nothing_by_us_refuses_an_argument_of_the_user() -> None:
    assert refuses(REFUSALS[0], resumed=False).state.exit_code != 78
