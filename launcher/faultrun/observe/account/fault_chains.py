"""Faults in a row, until training was past the first of them: what a person would be charged once for."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from faultrun.model.incident import Cause
from faultrun.observe.account.incarnations import FINISHED, SUPERVISOR_LOST, IncarnationRecord
from faultrun.observe.account.records import (
    ELSEWHERE,
    FAILED_AGAIN,
    NOT_OVER,
    RUN_ENDED,
    RUN_STOPPED,
    RUNNING_AGAIN,
    TRAINING_AGAIN,
    Account,
    IncidentRecord,
)

NOT_PASSED = "training did not get past"
"""Why faults are not counted after which the run ended, or went on failing: faults that ..."""
STILL_OPEN = "training has not got past yet"
ORDERED = "the platform, or a change of the scheduler, asked for"
GROWN = "only took back workers or nodes"
UNSEEN = "a lost supervisor left unfinished"
CUT = "a stop left unfinished"
GIVEN_UP = "the run was given up for"
"""Other reasons not to count some."""

_NOT_SEEN = {SUPERVISOR_LOST: UNSEEN, ELSEWHERE: "the other nodes went on from"}
CUT_SHORT = {SUPERVISOR_LOST: UNSEEN, RUN_STOPPED: CUT, RUN_ENDED: GIVEN_UP}
"""Why those are not counted that ended so for a supervisor, and that training got past under a later one."""

_SEEN_THROUGH = (TRAINING_AGAIN, RUNNING_AGAIN, FAILED_AGAIN)


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultChain:
    """Faults in a row until training was past the first of them; ``left_out`` says why it never was."""

    faults: Sequence[IncidentRecord]
    lives: Sequence[IncarnationRecord]
    left_out: str = ""

    @property
    def counted(self) -> Sequence[IncidentRecord]:
        """Without those ordered meanwhile: elsewhere they would not have been; here they cost time."""
        return [fault for fault in self.faults if not fault.ordered]

    def starts(self) -> Iterator[tuple[IncidentRecord, IncidentRecord]]:
        """Each that counts, with itself or the last that was ordered right behind: a start follows both."""
        last = self.faults[-1]
        for at in range(len(self.faults) - 1, -1, -1):
            if not self.faults[at].ordered:
                yield self.faults[at], last
                last = self.faults[at - 1]

    def lives_after(self) -> "LivesAfter":
        """By the number of the fault that they followed."""
        found: dict[int | None, list[IncarnationRecord]] = {}
        for life in self.lives:
            found.setdefault(life.after_fault, []).append(life)
        return found


LivesAfter = Mapping[int | None, Sequence[IncarnationRecord]]


def why_ordered(fault: IncidentRecord) -> str:
    """Why it is no fault; empty where it is one."""
    if not fault.ordered:
        return ""
    return GROWN if fault.cause == Cause.GROWTH.value else ORDERED


def chains(account: Account) -> Iterator[FaultChain]:
    """Faults in a row: a person is charged once, however often the next life fails at the same place."""
    open_faults: list[IncidentRecord] = []
    open_lives: list[IncarnationRecord] = []
    at = 0
    for number, fault in enumerate(account.faults, start=1):
        next_s = account.faults[number].at_s if number < len(account.faults) else math.inf
        if fault.ordered and not open_faults:
            yield FaultChain(faults=(fault,), lives=(), left_out=why_ordered(fault))
        else:
            open_faults.append(fault)
        while at < len(account.lives) and account.lives[at].begin_s < fault.at_s:
            at += 1
        first = at
        while at < len(account.lives) and account.lives[at].begin_s < next_s:
            at += 1
        if not open_faults:
            continue
        open_lives += account.lives[first:at]
        last = open_faults[-1]
        if last.end not in (*_SEEN_THROUGH, NOT_OVER):
            # The run ended before a step was seen: well, if nothing was left to train.
            done = any(life.end == FINISHED and life.after_fault == last.number for life in open_lives)
            seen = _NOT_SEEN.get(last.end, "")
            why = seen or (_cut(open_faults) if done else NOT_PASSED)
            yield FaultChain(faults=open_faults, lives=open_lives, left_out=why)
            open_faults, open_lives = [], []
        elif any(_past(open_faults, account.lives, index) for index in range(first, at)):
            yield FaultChain(faults=open_faults, lives=open_lives, left_out=_cut(open_faults))
            open_faults, open_lives = [], []
    if open_faults:
        why = STILL_OPEN if account.ended is None else NOT_PASSED
        yield FaultChain(faults=open_faults, lives=open_lives, left_out=why)


def _cut(faults: Sequence[IncidentRecord]) -> str:
    """Why faults are not counted that training got past; empty if one supervisor saw to all of them."""
    return next((CUT_SHORT[fault.cut] for fault in faults if fault.cut), "")


def _past(faults: Sequence[IncidentRecord], lives: Sequence[IncarnationRecord], at: int) -> bool:
    """Whether the life at ``at`` came further than where the faults had ended training."""
    life = lives[at]
    if life.end == FINISHED:
        return True
    steps = [fault.step for fault in faults if fault.step is not None]
    if life.first_step_s is not None and not steps:
        return True
    if life.reached_step is not None and steps:
        return life.reached_step > max(steps)
    # No rank tells its steps: it came further if the next one could resume from further on.
    following = lives[at + 1].resumed_step if at + 1 < len(lives) else None
    return following is not None and following > max((*steps, life.resumed_step or 0))
