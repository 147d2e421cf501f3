"""When the grace window may end before its time.

Every replica group needs one verified save of the newest step that any of
its members is known to hold. Members differ by at most one step (a rank can
be killed between the others' updates); a save of the older step does not end
the window while the newer one can still come. A node waits for the groups of its
own ranks; other nodes have windows of their own.

Groups may differ too: a rank that was killed in its update leaves its group a
step behind. Each group is waited for until it has its own newest step; the
run then resumes from the newest step that all of them have on a disk. Nobody
is asked for an older step, for no worker holds one (DESIGN.md).
"""

from dataclasses import replace

from faultrun.model.gasp import GaspAcknowledged, GaspFailed, GaspSaved, GaspVerified
from faultrun.model.incident import Save, Unsaved
from faultrun.model.run import Promise, RunState


def acknowledged(state: RunState, event: GaspAcknowledged) -> RunState:
    """Remember what the rank can save."""
    return _promised(state, Promise(rank=event.rank, step=event.step))


def failed(state: RunState, event: GaspFailed) -> RunState:
    """Expect nothing from the rank any more."""
    return _promised(state, Promise(rank=event.rank, step=None, why=event.why))


def unsaved(state: RunState) -> tuple[Unsaved, ...]:
    """The ranks that said why they could not save, and did not save after all."""
    saved = {save.rank for save in state.life.saves}
    return tuple(
        Unsaved(rank=one.rank, why=one.why)
        for one in state.life.promises
        if one.why and one.rank not in saved
    )


def noted(state: RunState, event: GaspSaved) -> RunState:
    """Remember that there is a save and where, also for the lives to come, whoever asked for it."""
    folder = event.path.rpartition("/")[0] or ("/" if event.path.startswith("/") else ".")
    folders = tuple(dict.fromkeys((*state.save_folders, folder)))
    return replace(state, known_save=event.path, save_folders=folders)


def saved(state: RunState, event: GaspSaved) -> tuple[RunState, tuple[Save, ...]]:
    """Remember a save that is not verified yet, and which are to be read back now; a save is progress."""
    state = noted(state, event)
    save = Save(
        rank=event.rank, step=event.step, path=event.path, took_s=event.took_s, group=event.replica_group
    )
    life = replace(state.life, saves=(*state.life.saves, save))
    return _reading(replace(state, life=life, high_step=max(state.high_step, event.step)), save)


def verified(state: RunState, event: GaspVerified) -> tuple[RunState, tuple[Save, ...]]:
    """Mark the save as whole, or forget it and name the one that may serve its replica group instead."""
    life = state.life
    read = [save for save in life.saves if _key(save) == (event.rank, event.path)]
    others = tuple(save for save in life.saves if save not in read)
    whole = tuple(replace(save, verified=True) for save in read) if event.whole else ()
    reading = life.reading - {(event.rank, event.path)}
    state = replace(state, life=replace(life, saves=(*others, *whole), reading=reading))
    if event.whole or not read:
        return state, ()
    instead = [save for save in others if _serves(save, read[0], state) and not save.verified]
    return _reading(state, max(instead, key=lambda save: save.step)) if instead else (state, ())


def _reading(state: RunState, save: Save) -> tuple[RunState, tuple[Save, ...]]:
    """One copy serves its replica group: none is read while a copy as new is whole, or being read."""
    others = [one for one in state.life.saves if _serves(one, save, state) and one.step >= save.step]
    if any(one.verified or _key(one) in state.life.reading for one in others):
        return state, ()
    reading = state.life.reading | {_key(save)}
    return replace(state, life=replace(state.life, reading=reading)), (save,)


def _serves(one: Save, other: Save, state: RunState) -> bool:
    return _group(one, state) == _group(other, state)


def _group(save: Save, state: RunState) -> frozenset[int]:
    return frozenset(save.group) or state.seats.all_ranks


def _key(save: Save) -> tuple[int, str]:
    return save.rank, save.path


def may_end(state: RunState) -> bool:
    """Whether nothing more can be gained by waiting for the living."""
    good = [save for save in state.life.saves if save.verified]
    if not good:
        return False
    groups = {_group(save, state) for save in state.life.saves}
    if not frozenset().union(*groups) >= frozenset(state.seats.ranks_of(state.node)):
        return False
    return all(
        any(save.step >= _newest_in(group, state) and save.rank in group for save in good) for group in groups
    )


def _promised(state: RunState, promise: Promise) -> RunState:
    others = tuple(one for one in state.life.promises if one.rank != promise.rank)
    return replace(state, life=replace(state.life, promises=(*others, promise)))


def _newest_in(group: frozenset[int], state: RunState) -> int:
    """The newest step that a member has saved, or a living one can save, as far as anybody said.

    A rank may finish another step after it answered: what it reported counts too.
    """
    unable = {one.rank for one in state.life.promises if one.step is None}
    able = (group & state.life.alive) - unable
    promised = (one.step for one in state.life.promises if one.rank in able and one.step is not None)
    reported = (one.step for one in state.life.steps if one.rank in able)
    saved = (one.step for one in state.life.saves if one.rank in group)
    return max((*promised, *reported, *saved), default=-1)
