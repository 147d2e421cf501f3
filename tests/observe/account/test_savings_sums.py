"""Savings against a count of the journal's lines, and under other assumptions, for runs that are made up."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from faultrun.model.run import Phase
from faultrun.observe.account.savings import (
    savings,
)
from support.stories.account_stories import (
    account_of,
    begins,
    first_step,
    lines_of,
    one_fault,
    passes,
)
from support.stories.savings_stories import NO_WAIT, TORCH, gasp
from support.stories.story import Story, checkpoint


@dataclass(frozen=True)
class Mishap:
    """A death ``steps`` further on. ``gasps``: the last step is saved. ``again``: the next life dies, too."""

    steps: int
    start_s: int
    gasps: bool
    again: bool


MISHAPS = st.lists(
    st.builds(
        Mishap,
        steps=st.integers(2, 80),
        start_s=st.integers(1, 90),
        gasps=st.booleans(),
        again=st.booleans(),
    ),
    min_size=1,
    max_size=5,
)
INTERVAL = 20


def told(mishaps: Sequence[Mishap]) -> list[dict[str, Any]]:
    """A run that does a step a second, saves every 20 and comes to its end."""
    story, high, now = begins(Story(1, policy=NO_WAIT)), 1, 1
    for one in mishaps:
        high, before = high + one.steps, now
        passes(story, high - before).reported(r0=high).killed(0)
        periodic = high // INTERVAL * INTERVAL
        point = gasp(high) if one.gasps else checkpoint(periodic) if periodic else None
        if one.again:
            passes(story, 2).drained().chose(point, periodic_step=periodic or -1)
            story.prepared().all_run()
            passes(story, one.start_s).killed(0)
        passes(story, 3).drained().chose(point, periodic_step=periodic or -1).prepared().all_run()
        assert story.phase is Phase.RUNNING
        now = (high if one.gasps else periodic) + 1
        first_step(passes(story, one.start_s), now)
    return lines_of(passes(story, high + 50 - now).reported(r0=high + 50).returned(0).drained())


def added_up(lines: Sequence[dict[str, Any]]) -> tuple[int, float, float, float]:
    """Interruptions, seconds waited here, seconds by hand, and those waited under torchrun, line by line."""
    chains, waited_s, again, died_s, open_at, step, began_s = 0, 0.0, 0, None, None, 0, 0.0
    starts_s, asked, torchrun_s, opened_s = 0.0, False, 0.0, 0.0
    for line in lines:
        at_s = line["run_s"]
        match line["event"]:
            case "IncarnationStarted":
                began_s = at_s
            case "FirstStep" | "Heartbeat":
                told = line["step"] if line["event"] == "FirstStep" else line["steps"][0]["step"]
                if line["event"] == "FirstStep":
                    starts_s += at_s - began_s if died_s is not None else 0.0
                    torchrun_s += at_s - began_s if died_s is not None else 0.0
                    waited_s, died_s = waited_s + (at_s - died_s if died_s is not None else 0.0), None
                if open_at is not None and told > open_at:
                    open_at = None
                step = told
            case "WorkerExit" if line["status"]["is"] == "Signaled":
                waited_s, died_s = waited_s + (at_s - died_s if died_s is not None else 0.0), at_s
                torchrun_s += 0.35 + (at_s - began_s if open_at is not None and began_s > opened_s else 0.0)
                opened_s = at_s
                if open_at is None:
                    chains, open_at, asked = chains + 1, step, True
            case "RecoveryPointChosen" if asked:
                again, asked = again + step - max(0, line["periodic_step"]), False
    return chains, waited_s, chains * (900 + 600) + starts_s + again, torchrun_s


@given(MISHAPS)
def test_the_sums_are_those_of_the_journal_s_lines(mishaps: Sequence[Mishap]) -> None:
    lines = told(mishaps)
    known = savings(account_of(lines), TORCH)
    chains, waited_s, by_hand_s, torchrun_s = added_up(lines)
    assert len(known.interruptions) == chains
    assert known.counted == len([line for line in lines if line["event"] == "WorkerExit"]) - 1
    assert known.here.waiting_s == pytest.approx(waited_s)
    assert known.launcher is not None
    assert known.launcher.waiting_s == pytest.approx(torchrun_s)
    # The account takes the speed of steps trained again from the life as a whole: a step's length apart.
    assert known.by_hand.total_s == pytest.approx(by_hand_s, abs=1.0 * chains)


NUMBERS = st.floats(0, 1e5, allow_nan=False)


@given(NUMBERS, NUMBERS, NUMBERS, NUMBERS)
def test_whoever_assumes_more_has_saved_more(
    notice_s: float, restart_s: float, hang_s: float, more_s: float
) -> None:
    account = account_of(lines_of(one_fault(resume_at=61)))
    base = replace(TORCH, notice_s=notice_s, restart_s=restart_s, hang_s=hang_s)
    less = savings(account, base)
    for changed in (
        replace(base, notice_s=notice_s + more_s),
        replace(base, restart_s=restart_s + more_s),
        replace(base, relaunch_s=base.relaunch_s + more_s),
        replace(base, hang_s=hang_s + more_s),
    ):
        found = savings(account, changed)
        assert found.device_s_by_hand >= less.device_s_by_hand
        assert (found.device_s_launcher or 0) >= (less.device_s_launcher or 0)
        assert found.here == less.here
