"""What is told of ranks that fall silent: suspected, at work after all, warned of, going on, replaced."""

from faultrun.model.observed.hang import Activity, HangDetected, HangWarned, PauseOver
from faultrun.model.observed.progress import WorkPhase


def warned(at_s: float, incarnation: int, rank: int, stance: Activity) -> HangWarned:
    return HangWarned(
        at_s=at_s,
        incarnation=incarnation,
        rank=rank,
        step=41,
        doing=WorkPhase.COMPUTING,
        stance=stance,
        silent_s=1.2,
        acts_s=300.0,
        why="sleeps (state S); nothing heard for 1.2 s",
        where="train.py:57 in forward",
        folder="incarnation_0/warning_1",
    )


def over(at_s: float, incarnation: int, rank: int, *, paused_s: float, warned: bool) -> PauseOver:
    return PauseOver(
        at_s=at_s, incarnation=incarnation, rank=rank, paused_s=paused_s, longest_s=paused_s, warned=warned
    )


def detected(
    at_s: float, incarnation: int, rank: int, *, step: int | None, stance: Activity, proved: bool
) -> HangDetected:
    return HangDetected(
        at_s=at_s,
        incarnation=incarnation,
        rank=rank,
        step=step,
        doing=WorkPhase.COMPUTING,
        stance=stance,
        silent_s=1.2,
        limit_s=1.0,
        why="is stopped (state T: SIGSTOP)",
        where="train.py:57 in forward",
        folder="incident_1",
        stacks=(0, 1),
        proved=proved,
    )
