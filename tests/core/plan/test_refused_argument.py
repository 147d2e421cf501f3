"""An argument of ours that a script refuses ends the run at once; anybody else's does not end it so."""

from dataclasses import replace
from typing import Any

import pytest

from faultrun.core.diagnosis.signature_table import ROWS
from faultrun.core.diagnosis.signatures import recognise
from faultrun.model.events import Timer
from faultrun.model.exits import Exited
from faultrun.model.observed.evidence import DeathNote, Raised
from faultrun.model.observed.saves import BY_OTHERS, CheckpointsOpened
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


BUG = Raised(kind="KeyError", message="'lr'", frame="train.py:3 in main")


def dies_before_it_opens_anything(
    lives: int, *, opens: tuple[str, ...] = (), raised: Raised = BUG, args: tuple[str, ...] = OURS
) -> Story:
    story = Story(1)
    story.rules = replace(story.rules, resume_args=args)
    story.begins(None).reported(r0=12).killed(0).recovers(checkpoint(9))
    for _ in range(lives):
        story.tell(CheckpointsOpened(at_s=story.now_s, incarnation=story.state.incarnation, paths=opens))
        story.returned(0, 1).drained(DeathNote(rank=0, raised=raised)).chose(checkpoint(9))
        if story.state.done:
            break
        story.now_s = story.plan.start_at_s
        story.rang(Timer.BACKOFF).prepared()
    return story


def test_two_lives_that_fail_alike_on_the_argument_and_open_nothing_are_our_error() -> None:
    assert not dies_before_it_opens_anything(1).state.done
    run = dies_before_it_opens_anything(2)
    assert run.state.exit_code == 78
    assert f"fails, as it seems, on the argument that a restart gives it: {OURS[0]}" in run.whys[-1]
    assert "both times it opened no checkpoint" in run.whys[-1]


@pytest.mark.parametrize(
    "otherwise",
    [
        {"opens": (checkpoint(9).path,)},
        {"opens": (BY_OTHERS,)},
        {"raised": Raised(kind="ConnectionError", message="refused", frame="train.py:3 in main")},
        {"raised": Raised(kind="MemoryError", message="", frame="train.py:3 in main")},
        {"args": ()},
    ],
    ids=[
        "it was opened",
        "others read, too",
        "the network failed",
        "there was no memory",
        "nothing was given",
    ],
)
def test_otherwise_it_is_not_ours(otherwise: Any) -> None:
    assert dies_before_it_opens_anything(2, **otherwise).state.exit_code != 78
