"""Exits and evidence -> the incident: who failed first, of what, and who merely followed.

By evidence: what no follower can fake, the ranks' own accounts, the kernel's order. Polling ranks in
turn is none, and the order in which the kernel ends processes only some: a rank that raised may take
seconds to end, and the peers whose collective it broke may be gone by then.
"""

from collections.abc import Sequence
from dataclasses import replace

from faultrun.core.diagnosis.signatures import class_of, signal_name
from faultrun.core.diagnosis.tracebacks import without_numbers
from faultrun.errors import assert_never
from faultrun.model.events import HelperExit, SpawnFailed, WorkerExit
from faultrun.model.exits import Exited, ExitStatus, Signaled
from faultrun.model.incident import Cause, Incident
from faultrun.model.observed.evidence import DeathNote, FaultClass, Signature
from faultrun.model.observed.hang import Activity, HangDetected
from faultrun.model.observed.mindspore_rendezvous import RankMissed
from faultrun.model.observed.progress import RankStep
from faultrun.model.run import RunState
from faultrun.model.topology import node_folder

LEFT_EARLY = "left with exit code 0 while the others trained on"
LOST_A_PEER = "lost a peer, and no rank of this node had failed"
_MISSED = "left with exit code 0 while the others waited to meet it"


def new_incident(
    state: RunState, at_s: float, cause: Cause, explanation: str, rank: int | None = None
) -> Incident:
    """The incident that begins now; ``conclude`` says more once all workers are gone."""
    newest = state.life.newest
    return Incident(
        number=state.incidents + 1,
        incarnation=state.incarnation,
        at_s=at_s,
        cause=cause,
        rank=rank,
        status=None,
        step=newest.step if newest else None,
        epoch=newest.epoch if newest else None,
        explanation=explanation,
        node=state.node,
        opened=state.life.opened,
    )


def open_incident(state: RunState, fault: WorkerExit | HelperExit | SpawnFailed | RankMissed) -> Incident:
    """The incident as it looks when its first exit arrives."""
    match fault:
        case WorkerExit(rank=rank, status=status):
            cause = Cause.SIGNAL if isinstance(status, Signaled) else Cause.EXIT
            found = new_incident(state, fault.at_s, cause, describe(status), rank)
            return replace(found, status=status, of_before=_is_of_before(state, rank))
        case HelperExit(status=status):
            where = f" of node {state.node}" if len(state.seats.nodes) > 1 else ""
            why = f"{fault.name}{where} (pid {fault.pid}) {describe(status)} while it was needed"
            return replace(new_incident(state, fault.at_s, Cause.SCHEDULER, why), status=status)
        case SpawnFailed(rank=rank, why=why):
            return new_incident(state, fault.at_s, Cause.SPAWN, why, rank)
        case RankMissed(rank=rank):
            return replace(new_incident(state, fault.at_s, Cause.EXIT, _MISSED, rank), status=Exited(code=0))
        case _:
            assert_never(fault)


def _is_of_before(state: RunState, rank: int) -> bool:
    """Whether ``rank`` outlived a fault, and dies before all have done a step: it is one fault with that."""
    stayed = state.plan is not None and rank in state.plan.kept and not state.plan.heals
    return stayed and state.life.regroups > 0 and not state.recovers_itself


def hang_incident(state: RunState, hang: HangDetected) -> Incident:
    """The incident of a rank that hangs. How it ends is our doing, and says nothing.

    Without a proof it may have been a pause, which passes: such a hang ends no run by coming again. A node
    of several whose ranks all wait tells of a consequence: who was found stuck elsewhere comes before it.
    """
    waits = hang.stance is Activity.WAITING and len(state.seats.nodes) > 1
    unproved = FaultClass.CONSEQUENCE if waits else FaultClass.TRANSIENT
    return replace(
        new_incident(state, hang.at_s, Cause.HANG, hang.why, hang.rank),
        stacks=_stacks(hang, node_folder(state.node) if len(state.seats.nodes) > 1 else ""),
        fault_class=FaultClass.UNKNOWN if hang.proved else unproved,
        own_step=hang.step,
    )


def _stacks(hang: HangDetected, folder: str) -> str:
    at = f"rank {hang.rank} is at {hang.where}" if hang.where else ""
    in_folder = (
        f"{folder and folder + '/'}{hang.folder}: {len(hang.stacks)} of the ranks" if hang.folder else ""
    )
    return "; ".join(part for part in (at, in_folder) if part)


def conclude(
    incident: Incident,
    exits: tuple[WorkerExit, ...],
    ours_from_s: float,
    notes: tuple[DeathNote, ...],
    steps: tuple[RankStep, ...] = (),
) -> Incident:
    """Name the first to fail, those that died with it, and the followers, now that all are gone.

    From ``ours_from_s`` on (the end of the grace window) a SIGKILL is our own.
    ``steps``: the newest of each rank.
    """
    incident = _with_logged_step(_with_newest(incident, steps), notes)
    incident = replace(incident, unstarted=incident.step is None and any(note.reports for note in notes))
    incident = _judged(incident, exits, ours_from_s, notes, steps)
    if incident.own_step is not None:
        return incident  # of a rank that hung, as it was found
    own = (note.logged_step for note in notes if note.rank == incident.rank and incident.step_from_log)
    reported = (one.step for one in steps if one.rank == incident.rank)
    return replace(incident, own_step=next((step for step in (*reported, *own) if step is not None), None))


def _with_newest(incident: Incident, steps: tuple[RankStep, ...]) -> Incident:
    """Where no rank had died, all trained on until they were told to leave: further than was known then."""
    if not (incident.ordered or incident.cause is Cause.REJOIN) or not steps:
        return incident
    newest = max(steps, key=lambda one: one.step)
    return replace(incident, step=newest.step, epoch=newest.epoch)


def _judged(
    incident: Incident,
    exits: tuple[WorkerExit, ...],
    ours_from_s: float,
    notes: tuple[DeathNote, ...],
    steps: tuple[RankStep, ...],
) -> Incident:
    faults = [exit_ for exit_ in exits if not exit_.clean]
    struck = incident.cause is Cause.ELSEWHERE and any(
        exit_.status == KILLED and exit_.at_s < ours_from_s for exit_ in faults
    )
    if not (struck or incident.cause in (Cause.SIGNAL, Cause.EXIT)) or not faults:
        followers = tuple(sorted(exit_.rank for exit_ in faults if exit_.rank != incident.rank))
        explanation = incident.explanation
        if incident.cause is Cause.HANG:
            explanation = explanation.partition(";")[0]  # how long it was waited for varies by chance
        what = f"{incident.cause.value}: {without_numbers(explanation)}"
        signature = Signature(what=what, step=_step_of(incident, steps))
        return replace(incident, followers=followers, signature=signature)
    theirs = [one for one in faults if one.status != KILLED or one.at_s < ours_from_s]
    hard = [one for one in theirs if is_hard(one.status)]
    if not (theirs if incident.status is None else hard or incident.status != Exited(code=0)):
        return _concluded_as_told(incident, faults, notes, _step_of(incident, steps))
    first, blamed_by = first_to_fail(exits, notes, ours_from_s)
    others = [exit_ for exit_ in faults if exit_ is not first]
    together = tuple(sorted(one.rank for one in others if _died_too(one, first, ours_from_s)))
    note = next((note for note in notes if note.rank == first.rank), DeathNote(rank=first.rank))
    incident = replace(
        incident,
        rank=first.rank,
        status=first.status,
        at_s=first.at_s,
        cause=Cause.SIGNAL if isinstance(first.status, Signaled) else Cause.EXIT,
        followers=tuple(sorted(e.rank for e in others if e.rank not in together)),
        together=together,
        explanation=LEFT_EARLY if first.clean else describe(first.status),
        last_line=note.last_line,
        fault_class=note.finding.fault_class if note.finding is not None else class_of(first.status),
        finding=note.finding,
        raised=note.raised,
        blamed_by=blamed_by,
    )
    return replace(incident, signature=_signature(incident, _step_of(incident, steps)))


def _concluded_as_told(
    incident: Incident, faults: list[WorkerExit], notes: tuple[DeathNote, ...], step: int | None
) -> Incident:
    """The blame stands: the others are told to leave, and how they do so says nothing."""
    note = next((note for note in notes if note.rank == incident.rank), None) or DeathNote(rank=-1)
    told = replace(
        incident,
        followers=tuple(sorted(exit_.rank for exit_ in faults if exit_.rank != incident.rank)),
        last_line=note.last_line,
        raised=note.raised if incident.status is None else None,
        blamed_by="the others waited for it, and only this rank had left" if incident.status else "",
    )
    return replace(told, signature=_signature(told, step))


def _signature(incident: Incident, step: int | None) -> Signature:
    """(exception, own frame) where there is one, else what ended the rank; each at its step."""
    raised, finding = incident.raised, incident.finding
    if raised is not None:
        what = f"{raised.kind}: {without_numbers(raised.message)}"
        return Signature(what=what, where=raised.frame, step=step)
    known = f" ({finding.name})" if finding is not None else ""
    return Signature(what=f"{incident.explanation}{known}", step=step)


def _step_of(incident: Incident, steps: tuple[RankStep, ...]) -> int | None:
    """The blamed rank's own newest step; how far its peers came varies by chance."""
    own = next((one.step for one in steps if one.rank == incident.rank), None)
    return incident.step if own is None else own


def _died_too(other: WorkerExit, first: WorkerExit, ours_from_s: float) -> bool:
    """Whether ``other`` was struck and did not merely follow.

    No rank follows by SIGKILL, however long a large process takes to be torn
    down; a memory fault may be a survivor's end that went wrong.
    """
    if other.at_s >= ours_from_s or not is_hard(other.status):
        return False
    return other.status == KILLED or other.at_s < first.at_s + TOGETHER_S


def _with_logged_step(incident: Incident, notes: tuple[DeathNote, ...]) -> Incident:
    if incident.step is not None:
        return incident
    logged = [note for note in notes if note.logged_step is not None or note.logged_epoch is not None]
    if not logged:
        return incident
    newest = max(logged, key=lambda note: [-1 if one is None else one for one in _place(note)])
    step, epoch, in_epoch = _place(newest)
    every = newest.logged_every
    return replace(incident, step=step, epoch=epoch, in_epoch=in_epoch, step_from_log=True, step_every=every)


def _place(note: DeathNote) -> tuple[int | None, int | None, int | None]:
    return note.logged_step, note.logged_epoch, note.logged_in_epoch


def describe(status: ExitStatus) -> str:
    """``killed by SIGKILL`` or ``exited with code 3``."""
    match status:
        case Signaled(signum=signum):
            return f"killed by {signal_name(signum)}"
        case Exited(code=code):
            return f"exited with code {code}"
        case _:
            assert_never(status)


def exit_code_of(status: ExitStatus | None) -> int:
    """The shell's code for a worker's end: its own, 128+n for signal n.

    Never 0, because it is asked of failures: 1 when no rank ended, or a rank
    that left too early with 0 brought the others down.
    """
    match status:
        case None | Exited(code=0):
            return 1
        case Exited(code=code):
            return code
        case Signaled(signum=signum):
            return 128 + signum
        case _:
            assert_never(status)


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
        return (
            first,
            "no rank ends like this only because a peer died" if overruled else "the kernel ended it first",
        )
    by_rank = {note.rank: note for note in notes}
    if (earlier := _raised_before(first, faults, by_rank)) is not None:
        return earlier, "it recorded its error before the first exit"
    if not _follows(by_rank.get(first.rank)):
        return first, "the kernel ended it first"
    left = next((exit_ for exit_ in exits if exit_.clean and exit_.at_s <= first.at_s), None)
    if left is not None:
        return left, f"rank {first.rank} lost a peer, and only this rank had left"
    # However long a large process that was killed takes to be torn down.
    own = [
        one
        for one in faults
        if (one.status == KILLED and one.at_s < ours_from_s)
        or (one.status not in _TOLD and _speaks_of_itself(by_rank.get(one.rank)))
    ]
    if own:
        return own[0], f"rank {first.rank} ended first but tells of a lost peer"
    return first, "the kernel ended it first; its own words tell of a lost peer"


def first_of(faults: list[WorkerExit], ours_from_s: float) -> WorkerExit:
    """The first in kernel order, unless that one looks like a victim of another.

    A survivor whose collective broke returns an error or aborts, and can be reaped before a big process that
    was killed by SIGKILL is torn down (the peer's sockets close some 20 ms before its exit is reported). So
    within ``TOGETHER_S`` a death that cannot come of following outranks one that can, unless it came when
    we were killing ourselves (``ours_from_s``).
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
    """The rank that says itself that it raised, not for a peer, before ``first`` did or had ended."""
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
    found = None if note is None else note.finding
    return found is not None and found.fault_class is FaultClass.CONSEQUENCE


def _speaks_of_itself(note: DeathNote | None) -> bool:
    if note is None or _follows(note):
        return False
    return note.raised is not None or note.finding is not None
