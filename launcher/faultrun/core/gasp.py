"""When the grace window may end before its time.

Every replica group needs one verified save of the newest step that any of
its members is known to hold. Members differ by at most one step (a rank can
be killed between the others' updates); a save of the older step does not end
the window while the newer one can still come.

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


def saved(state: RunState, event: GaspSaved) -> RunState:
    """Remember a save that is not verified yet; a save is progress."""
    state = noted(state, event)
    save = Save(
        rank=event.rank, step=event.step, path=event.path, took_s=event.took_s, group=event.replica_group
    )
    life = replace(state.life, saves=(*state.life.saves, save))
    return replace(state, life=life, high_step=max(state.high_step, event.step))


def verified(state: RunState, event: GaspVerified) -> RunState:
    """Mark the save as whole, or forget it."""
    kept = []
    for save in state.life.saves:
        if (save.rank, save.path) != (event.rank, event.path):
            kept.append(save)
        elif event.whole:
            kept.append(replace(save, verified=True))
    return replace(state, life=replace(state.life, saves=tuple(kept)))


def may_end(state: RunState) -> bool:
    """Whether nothing more can be gained by waiting for the living."""
    good = [save for save in state.life.saves if save.verified]
    if not good:
        return False
    everyone = frozenset(range(state.topology.world_size))
    groups = {frozenset(save.group) or everyone for save in state.life.saves}
    if frozenset().union(*groups) != everyone:
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
