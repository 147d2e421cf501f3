"""Stories of runs as journal lines, for whoever makes something of a journal."""

from collections.abc import Iterable
from datetime import datetime, timedelta, timezone
from typing import Any

from faultrun.journal.append import line_of
from faultrun.journal.lines import JournalLine, journal_line
from faultrun.model.events import Event, FirstStep
from faultrun.model.observed.recovery import FirstStepLogged
from faultrun.model.run import Phase, Step
from faultrun.observe.account.accountant import Accountant
from faultrun.observe.account.records import Account
from support.stories.story import SIGTERM, Story, checkpoint, in_phase

_ZERO = datetime(2026, 11, 21, tzinfo=timezone.utc)


def lines_of(story: Story, *, away_s: float = 0.0, away_after: int = 0) -> list[dict[str, Any]]:
    """The story's journal; the wall clock jumps by ``away_s`` after that many lines."""
    made = []
    for count, (event, step) in enumerate(story.steps):
        at = _ZERO + timedelta(seconds=event.at_s + (away_s if count >= away_after > 0 else 0.0))
        made.append({"at_utc": at.isoformat().replace("+00:00", "Z"), **line_of(event, step, {})})
    return made


def written(event: Event, phase: Phase, why: str = "") -> dict[str, Any]:
    """The line of an event after which the run is in ``phase``."""
    step = Step(state=in_phase(phase, 2), why=why)
    at_utc = (_ZERO + timedelta(seconds=event.at_s)).isoformat().replace("+00:00", "Z")
    return {"at_utc": at_utc, **line_of(event, step, {})}


def decoded(lines: list[dict[str, Any]]) -> list[JournalLine]:
    """As a reader has them: what is no line of a journal is passed over."""
    return [line for data in lines if (line := journal_line(data)) is not None]


def account_of(lines: list[dict[str, Any]]) -> Account:
    return accounted(decoded(lines))


def accounted(lines: Iterable[JournalLine]) -> Account:
    accountant = Accountant()
    for line in lines:
        accountant.take(line)
    return accountant.account()


def passes(story: Story, seconds: float) -> Story:
    story.now_s += seconds
    return story


def first_step(story: Story, step: int) -> Story:
    return story.now(FirstStep, step=step)


def logs_a_step(story: Story, step: int) -> Story:
    """A rank that does not report prints its first step."""
    return story.now(FirstStepLogged, rank=0, step=step)


def begins(story: Story) -> Story:
    """2 s to choose, 1 s to prepare, 3 s to execute, 4 s to the first step."""
    passes(story.starts(), 2).chose(None)
    passes(story, 1).prepared()
    passes(story, 3).all_run()
    return first_step(passes(story, 4), 1)


def one_fault(*, resume_at: int) -> Story:
    """Killed at step 101 after 100 s, then 5 s drain, 2 s choose, 1 s prepare, 3 s spawn, 4 s start."""
    story = begins(Story(3))
    passes(story, 100).reported(r0=101, r1=101, r2=101).killed(2)
    passes(story, 1).saved(0, 101)
    passes(story, 4).killed(0, SIGTERM).killed(1, SIGTERM)
    story.drained()
    passes(story, 2).chose(checkpoint(resume_at))
    passes(story, 1).prepared()
    passes(story, 3).all_run()
    first_step(passes(story, 4), resume_at + 1)
    passes(story, 200).reported(r0=resume_at + 201)
    return story.returned(0).returned(1).returned(2).drained()
