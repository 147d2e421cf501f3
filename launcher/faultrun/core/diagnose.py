"""Exits and evidence -> who failed first, and who merely followed."""

from dataclasses import replace

from faultrun.core.signatures import signal_name
from faultrun.errors import assert_never
from faultrun.model.events import (
    DeathNote,
    Exited,
    HelperExit,
    RankStep,
    Signaled,
    SpawnFailed,
    Status,
    WorkerExit,
)
from faultrun.model.incident import Cause, Incident

TOGETHER_S = 0.25
"""Deaths closer than this may be one event seen in the wrong order; see ``first_of``."""

_KILLED = Signaled(signum=9)
_HARD_SIGNALS = frozenset({"SIGKILL", "SIGSEGV", "SIGBUS", "SIGILL", "SIGFPE"})


def open_incident(
    number: int, fault: WorkerExit | HelperExit | SpawnFailed, steps: tuple[RankStep, ...]
) -> Incident:
    """The incident as it looks when its first exit arrives; ``conclude`` revises it once all have died."""
    rank: int | None = None
    status: Status | None = None
    match fault:
        case WorkerExit():
            cause = Cause.SIGNAL if isinstance(fault.status, Signaled) else Cause.EXIT
            rank, status, explanation = fault.rank, fault.status, describe(fault.status)
        case HelperExit():
            cause, status = Cause.SCHEDULER, fault.status
            explanation = f"{fault.name} (pid {fault.pid}) {describe(fault.status)} while it was needed"
        case SpawnFailed():
            cause, rank, explanation = Cause.SPAWN, fault.rank, fault.why
        case _:
            assert_never(fault)
    newest = max(steps, key=lambda step: step.step, default=None)
    return Incident(
        number=number,
        incarnation=fault.incarnation,
        at_s=fault.at_s,
        cause=cause,
        rank=rank,
        status=status,
        followers=(),
        step=newest.step if newest else None,
        epoch=newest.epoch if newest else None,
        explanation=explanation,
    )


def conclude(
    incident: Incident, exits: tuple[WorkerExit, ...], ours_from_s: float, notes: tuple[DeathNote, ...]
) -> Incident:
    """Name the first to fail, those that died with it, and the followers, now that all are gone.

    From ``ours_from_s`` on (the end of the grace window) a SIGKILL is our own.
    """
    incident = _with_logged_step(incident, notes)
    faults = [exit_ for exit_ in exits if not exit_.clean]
    last_lines = {note.rank: note.last_line for note in notes}
    if incident.cause not in (Cause.SIGNAL, Cause.EXIT) or not faults:
        followers = tuple(sorted(exit_.rank for exit_ in faults if exit_.rank != incident.rank))
        return replace(incident, followers=followers)
    first = first_of(faults, ours_from_s)
    others = [exit_ for exit_ in faults if exit_ is not first]
    together = tuple(sorted(one.rank for one in others if _died_too(one, first, ours_from_s)))
    return replace(
        incident,
        rank=first.rank,
        status=first.status,
        at_s=first.at_s,
        cause=Cause.SIGNAL if isinstance(first.status, Signaled) else Cause.EXIT,
        followers=tuple(sorted(e.rank for e in others if e.rank not in together)),
        together=together,
        explanation=describe(first.status),
        last_line=last_lines.get(first.rank, ""),
    )


def _died_too(other: WorkerExit, first: WorkerExit, ours_from_s: float) -> bool:
    """Whether ``other`` was struck and did not merely follow.

    Nobody follows by SIGKILL, however long a large process takes to be torn
    down; a memory fault may be a survivor's end that went wrong.
    """
    if other.at_s >= ours_from_s or not is_hard(other.status):
        return False
    return other.status == _KILLED or other.at_s < first.at_s + TOGETHER_S


def _with_logged_step(incident: Incident, notes: tuple[DeathNote, ...]) -> Incident:
    if incident.step is not None:
        return incident
    logged = [note.logged_step for note in notes if note.logged_step is not None]
    return replace(incident, step=max(logged), step_from_log=True) if logged else incident


def first_of(faults: list[WorkerExit], ours_from_s: float) -> WorkerExit:
    """The first in kernel order, unless that one looks like a victim of another.

    A survivor whose collective broke returns an error or aborts, and can be
    reaped before a big process that was killed by SIGKILL is torn down (the
    peer's sockets close some 20 ms before its exit is reported). So within
    ``TOGETHER_S`` a death that nobody can fake by following outranks one that
    can, unless it came when we were killing ourselves (``ours_from_s``).
    """
    first = faults[0]
    if is_hard(first.status):
        return first
    until_s = min(first.at_s + TOGETHER_S, ours_from_s)
    close = (exit_ for exit_ in faults if exit_.at_s < until_s)
    return next((exit_ for exit_ in close if is_hard(exit_.status)), first)


def is_hard(status: Status) -> bool:
    """Whether the process was ended from outside its own code path (or by its own memory fault)."""
    return isinstance(status, Signaled) and signal_name(status.signum) in _HARD_SIGNALS


def describe(status: Status) -> str:
    """``killed by SIGKILL`` or ``exited with code 3``."""
    match status:
        case Signaled(signum=signum):
            return f"killed by {signal_name(signum)}"
        case Exited(code=code):
            return f"exited with code {code}"
        case _:
            assert_never(status)


def exit_code_of(status: Status | None) -> int:
    """The shell's code for a worker's end: its own, 128+n for signal n, 1 when nobody ended."""
    match status:
        case None:
            return 1
        case Exited(code=code):
            return code
        case Signaled(signum=signum):
            return 128 + signum
        case _:
            assert_never(status)
