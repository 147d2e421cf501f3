"""The grace window: until when workers may save, and when it may end before that.

Every deadline of a window is made here: by ``--grace`` after a fault, and by ``--stop_grace`` and the end of
the platform's job when the run is told to stop (``Windows`` has them as they were resolved).

Every replica group needs one verified save of the newest step that any of its members is known to hold.
Members differ by at most one step (a rank can be killed between the others' updates); a save of the older
step does not end the window while the newer one can still come. A node waits for the groups of its own ranks;
other nodes have windows of their own.

Groups may differ too: a rank that was killed in its update leaves its group a step behind. Each group is
waited for until it has its own newest step; the run then resumes from the newest step that all of them have
on a disk. No rank is asked for an older step, for none holds one (docs/decisions/checkpoints.md).
"""

from dataclasses import replace

from faultrun.model.actions import RequestGasp, Sweep
from faultrun.model.incident import Cause, Save, Unsaved
from faultrun.model.observed.dying_gasp import GaspAcknowledged, GaspFailed, GaspSaved, GaspVerified
from faultrun.model.run import Drain, Life, Promise, Run, RunState
from faultrun.model.spec.windows import NO_DEADLINE, NO_TIME, Deadline, Windows

_WARNED_S = 600.0
"""A platform warns no sooner: with more time than that, something else has told the run to stop."""

_MAY_BE_LATE_S = 3.0
"""Lateness that a stop's margin to the platform's limit makes up for; its rest is for ending processes."""


def deadline(state: RunState, now_s: float, late_s: float = 0.0) -> Deadline:
    """Until when workers may save that are asked now; of a run that is told to stop, as a stop allows.

    ``late_s``: so long ago the platform said that the run has to stop.
    """
    return after_fault(state.windows, now_s) if state.stop is None else _after_stop(state, now_s, late_s)


def after_fault(windows: Windows, now_s: float) -> Deadline:
    """Until when ranks may save, or what memory holds may be written, while the run is not to end."""
    return Deadline.after(windows.grace_s, now_s)


def _after_stop(state: RunState, now_s: float, late_s: float) -> Deadline:
    """The moment is no later than the end that the platform has set for the job, where that is still to come.

    It is that end where the user has named no window, and the end is so near that the stop is its warning.
    An end that is over was moved (``scontrol update``) or comes with a period of its own. Windows leave the
    platform's clock some seconds for what comes before and after the save; only what is later than
    ``_MAY_BE_LATE_S`` is taken from them.
    """
    stop_grace_s = state.windows.stop_grace_s
    over_s = max(0.0, late_s - _MAY_BE_LATE_S)
    window_s = max(min(1.0, stop_grace_s), stop_grace_s - over_s)
    left_s = None if state.stop_by_s is None else state.stop_by_s - now_s
    if left_s is not None and left_s > 0:
        warned = state.windows.stop_grace_source == Windows().stop_grace_source and left_s <= _WARNED_S
        window_s = max(1.0, left_s) if warned else min(window_s, max(1.0, left_s))
    return Deadline.after(window_s, now_s)


def for_memory(state: RunState) -> Deadline:
    """Until when what memory snapshots hold may be written: a stop has its window, a fence has no time."""
    drain = state.life.drain
    if drain is None or (drain.incident is not None and drain.incident.cause is Cause.FENCE):
        return NO_TIME
    return NO_DEADLINE if state.stop is None else drain.deadline


def to_write_on(order: Sweep, asked: RequestGasp | None, windows: Windows, now_s: float) -> float:
    """Seconds in which processes that the dead left may finish a save: those of ranks that were ``asked``."""
    own = after_fault(windows, now_s) if asked is None else asked.deadline
    return min(order.write_by, own).left_s(now_s)


def source(state: RunState) -> str:
    """What says how long the window is, for people."""
    if state.stop is None:
        return "--grace"
    by_s = None if state.life.drain is None else state.life.drain.deadline.at_s
    at_its_end = by_s is not None and state.stop_by_s is not None and abs(state.stop_by_s - by_s) < 1.0
    return f"stop window: {'SLURM ends the job then' if at_its_end else state.windows.stop_grace_source}"


def acknowledged(drain: Drain, event: GaspAcknowledged) -> Drain:
    """What the rank can save, as it says."""
    return _promised(drain, Promise(rank=event.rank, step=event.step))


def failed(drain: Drain, event: GaspFailed) -> Drain:
    """Nothing is expected from the rank any more."""
    return _promised(drain, Promise(rank=event.rank, step=None, why=event.why))


def unsaved(life: Life) -> tuple[Unsaved, ...]:
    """The ranks that said why they could not save, and did not save after all."""
    saved = {save.rank for save in life.saves}
    promises = () if life.drain is None else life.drain.promises
    return tuple(Unsaved(rank=one.rank, why=one.why) for one in promises if one.why and one.rank not in saved)


def noted(run: Run, event: GaspSaved) -> Run:
    """Remember that there is a save and where, also for the lives to come, and for any request."""
    folder = event.path.rpartition("/")[0] or ("/" if event.path.startswith("/") else ".")
    return replace(run, known_save=event.path, save_folders=tuple(dict.fromkeys((*run.save_folders, folder))))


def saved(state: RunState, event: GaspSaved) -> tuple[RunState, tuple[Save, ...]]:
    """Remember a save that is not verified yet, and which are to be read back now; a save is progress."""
    run = replace(noted(state.run, event), high_step=max(state.run.high_step, event.step))
    rank, step, group = event.rank, event.step, event.replica_group
    save = Save(rank=rank, step=step, path=event.path, took_s=event.took_s, group=group, memory=event.memory)
    drain = state.life.drain or Drain()
    return _reading(replace(state, run=run), replace(drain, saves=(*drain.saves, save)), save)


def verified(state: RunState, event: GaspVerified) -> tuple[RunState, tuple[Save, ...]]:
    """Mark the save as whole, or forget it; and name the one that may serve its replica group instead."""
    if (drain := state.life.drain) is None:
        return state, ()
    read = [save for save in drain.saves if _key(save) == (event.rank, event.path)]
    others = tuple(save for save in drain.saves if save not in read)
    whole = tuple(replace(save, verified=True) for save in read) if event.whole else ()
    drain = replace(drain, saves=(*others, *whole), reading=drain.reading - {(event.rank, event.path)})
    faulty = state.run.platform.lost
    lacking = read if not event.whole or event.rank in faulty else ()
    instead = [one for one in others if lacking and _serves(one, lacking[0], state) and not one.verified]
    if not instead:
        return _with_drain(state, drain), ()
    return _reading(state, drain, max(instead, key=lambda save: (save.rank not in faulty, save.step)))


def _reading(state: RunState, drain: Drain, save: Save) -> tuple[RunState, tuple[Save, ...]]:
    """One copy serves its replica group: none is read while a copy as new is whole, or being read."""
    faulty = frozenset[int]() if save.rank in state.run.platform.lost else state.run.platform.lost
    as_new = (one for one in drain.saves if one.step >= save.step and one.rank not in faulty)
    others = [one for one in as_new if _serves(one, save, state)]
    if any(one.verified or _key(one) in drain.reading for one in others):
        return _with_drain(state, drain), ()
    return _with_drain(state, replace(drain, reading=drain.reading | {_key(save)})), (save,)


def _with_drain(state: RunState, drain: Drain) -> RunState:
    return replace(state, life=replace(state.life, drain=drain))


def _serves(one: Save, other: Save, state: RunState) -> bool:
    return _group(one, state) == _group(other, state)


def _group(save: Save, state: RunState) -> frozenset[int]:
    return frozenset(save.group) or state.seats.all_ranks


def _key(save: Save) -> tuple[int, str]:
    return save.rank, save.path


def may_end(state: RunState, drain: Drain) -> bool:
    """Whether nothing more can be gained by waiting for the living."""
    good = [save for save in drain.saves if save.verified]
    groups = {_group(save, state) for save in drain.saves}
    if not good or not frozenset().union(*groups) >= frozenset(state.seats.ranks_of(state.node)):
        return False
    return all(_is_served(group, good, state, drain) for group in groups)


def _is_served(group: frozenset[int], good: list[Save], state: RunState, drain: Drain) -> bool:
    """Whether a copy of its newest step is whole; a faulty device's counts when no well rank is to save."""
    well = group - state.run.platform.lost
    to_save = _able(well, state.life, drain) - {save.rank for save in drain.saves}
    return any(
        save.rank in members and save.step >= _newest_in(members, state.life, drain)
        for members in ((well,) if to_save else (well, group))
        for save in good
    )


def _promised(drain: Drain, promise: Promise) -> Drain:
    others = tuple(one for one in drain.promises if one.rank != promise.rank)
    return replace(drain, promises=(*others, promise))


def _newest_in(group: frozenset[int], life: Life, drain: Drain) -> int:
    """The newest step that a member has saved, or a living one can save, as far as any rank said.

    A rank may finish another step after it answered: what it reported counts too.
    """
    able = _able(group, life, drain)
    promised = (one.step for one in drain.promises if one.rank in able and one.step is not None)
    reported = (one.step for one in life.steps if one.rank in able)
    saved = (one.step for one in drain.saves if one.rank in group)
    return max((*promised, *reported, *saved), default=-1)


def _able(group: frozenset[int], life: Life, drain: Drain) -> frozenset[int]:
    """The living members that did not say that they cannot save."""
    return (group & life.alive) - {one.rank for one in drain.promises if one.step is None}
