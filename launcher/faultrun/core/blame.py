"""Who failed first, by evidence: what no follower can fake, the ranks' own accounts, the kernel's order.

Polling ranks in turn is no evidence, and the order in which the kernel ends
processes only some: a rank that raised may take seconds to end, and the peers
whose collective it broke may be gone by then.
"""

from collections.abc import Sequence

from faultrun.core.signatures import signal_name
from faultrun.model.events import Exited, ExitStatus, Signaled, WorkerExit
from faultrun.model.evidence import DeathNote, FaultClass

TOGETHER_S = 0.25
"""Deaths closer than this may be one event seen in the wrong order; see ``first_of``."""

KILLED = Signaled(signum=9)
_HARD_SIGNALS = frozenset({"SIGKILL", "SIGSEGV", "SIGBUS", "SIGILL", "SIGFPE"})
_TOLD = (Signaled(signum=15), Exited(code=143))


def first_to_fail(
    exits: Sequence[WorkerExit], notes: Sequence[DeathNote], ours_from_s: float
) -> tuple[WorkerExit, str]:
    """The exit that began it, and the evidence for that.

    ``exits`` are in kernel order, at least one is not clean.
    """
    faults = [exit_ for exit_ in exits if not exit_.clean]
    first = first_of(faults, ours_from_s)
    if is_hard(first.status):
        overruled = first is not faults[0]
        return first, "nobody ends like this by following" if overruled else "the kernel ended it first"
    by_rank = {note.rank: note for note in notes}
    earlier = _raised_before(first, faults, by_rank)
    if earlier is not None:
        return earlier, "its own note is older than the first exit"
    if not _follows(by_rank.get(first.rank)):
        return first, "the kernel ended it first"
    left = next((exit_ for exit_ in exits if exit_.clean and exit_.at_s <= first.at_s), None)
    if left is not None:
        return left, f"rank {first.rank} lost a peer, and only this rank had left"
    own = [one for one in faults if one.status not in _TOLD and _speaks_of_itself(by_rank.get(one.rank))]
    if own:
        return own[0], f"rank {first.rank} ended first but tells of a lost peer"
    return first, "the kernel ended it first; its own words tell of a lost peer"


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


def is_hard(status: ExitStatus) -> bool:
    """Whether the process was ended from outside its own code path (or by its own memory fault)."""
    return isinstance(status, Signaled) and signal_name(status.signum) in _HARD_SIGNALS


def _raised_before(
    first: WorkerExit, faults: Sequence[WorkerExit], notes: dict[int, DeathNote]
) -> WorkerExit | None:
    """Whoever says itself that it raised, not for a peer, before ``first`` did or had ended."""
    own = _raised_at_s(notes.get(first.rank))
    until_s = first.at_s if own is None or _follows(notes.get(first.rank)) else own
    moments = [
        (at_s, fault.rank, fault)
        for fault in faults
        if fault is not first
        and not _follows(notes.get(fault.rank))
        and (at_s := _raised_at_s(notes.get(fault.rank))) is not None
        and at_s < until_s
    ]
    return min(moments)[2] if moments else None


def _raised_at_s(note: DeathNote | None) -> float | None:
    return note.raised.at_s if note is not None and note.raised is not None else None


def _follows(note: DeathNote | None) -> bool:
    return (
        note is not None and note.finding is not None and note.finding.fault_class is FaultClass.CONSEQUENCE
    )


def _speaks_of_itself(note: DeathNote | None) -> bool:
    if note is None or _follows(note):
        return False
    return note.raised is not None or note.finding is not None
