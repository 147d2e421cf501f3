"""Whether ranks of this node can outlive another's fault; where not, why, in words for a person. Pure."""

import math

from faultrun.core.diagnosis.diagnose import is_hard
from faultrun.model.exits import Exited, ExitStatus
from faultrun.model.run import RunState

WAY_TO_STAY = "guard.steps or guard.run of faultrun.sdk.torch"
MOST_REGROUPS = 3
"""In a row without a step that all have finished: whatever kills a rank each time kills the next one too."""
MOST_IN_A_LIFE = 100
"""How often the same survivors stay: each group that was left may leave memory, descriptors or threads."""


def why_not_stay(state: RunState, *dead: int, status: ExitStatus | None = None) -> str:
    """Why ranks that live here cannot keep their processes while others take the places of ``dead``.

    Empty if they can. ``dead`` is left out where another node has lost ranks, and this one none; ``status``
    is how the one dead rank ended, if that is known.
    """
    life = state.life
    survivors = life.alive.difference(dead)
    if state.windows.rejoin_s <= 0:
        return "survivors are not to stay (--on_fault=restart)"
    if state.stop is not None or state.failure is not None:
        return "the run is about to end"
    killed = status is not None and is_hard(status)
    if life.finished and not (killed and ends_without(state, *dead)):
        return "a rank has finished"
    if not survivors and not elsewhere(state):
        return "no other rank lives"
    could = not (state.life.rejoinable | state.life.rejoining).isdisjoint(dead)  # ranks of a run are alike
    if dead and not survivors and not state.recovers_itself and not could:
        return "its script does not let the others stay"
    if state.recovers_itself:
        return "the run has several nodes" if elsewhere(state) else ""
    if mute := survivors - life.rejoinable - life.rejoining:
        return f"rank {min(mute)} cannot leave its group alive"
    plan = state.plan
    came = plan is not None and not plan.kept.issuperset(dead)
    if plan is not None and survivors and survivors <= life.rejoining - plan.kept and not elsewhere(state):
        return "no other rank that has trained lives: who came in has no state yet"
    if life.regroups and isinstance(status, Exited) and came and not came_in_vain(state, *dead):
        return "it came in for another, and ended by itself before all had finished a step"
    return _too_often(state)


def why_not_train_on(state: RunState, *dead: int) -> str:
    """Why those that live wait while the place of another is empty; empty if they train on."""
    windows, life, told = state.windows, state.life, dict(state.life.sharing)
    if not windows.trains_from:
        return "all wait for a newcomer (--while_missing=wait)"
    if elsewhere(state) or state.recovers_itself:
        return "that is for one node, and for ranks that faultrun brings back"
    if life.waits:
        return "a place was empty for too long (--heal_timeout)"
    living = life.alive.difference(dead)
    if len(living) < windows.trains_from and not life.finished:  # no newcomer for a rank that has finished
        return f"{len(living)} ranks live, and fewer than {windows.trains_from} never train on"
    reasons = [(rank, told[rank]) for rank in sorted(living & told.keys() or told)]  # all ranks are alike
    if not reasons:
        return "no rank that lives has said that it can"
    return next((f"rank {rank} cannot share: {why}" for rank, why in reasons if why), "")


def ends_without(state: RunState, *dying: int) -> bool:
    """Whether ranks that have finished need no lost one any more: each holds what all hold.

    But for the first of a group, which does for all what follows the last step (``guard.leads``).
    """
    life = state.life
    dead = {*dying, *(one.rank for one in life.exits if not one.clean)}
    lost = dead.union(rank for rank, _ in life.unswept) - life.finished
    known = not why_not_train_on(state, *dead)
    return known and bool(life.finished) and min(life.finished | life.alive) < min(lost, default=math.inf)


def came_in_vain(state: RunState, *dead: int) -> bool:
    """Whether all of ``dead`` came for an empty place, and no step was done by all since."""
    plan, life = state.plan, state.life
    came = plan is not None and plan.heals and bool(dead) and plan.kept.isdisjoint(dead)
    return came and life.regroups > 0 and not why_not_train_on(state, *dead)


def _too_often(state: RunState) -> str:
    regroups, plan = state.life.regroups, state.plan
    if regroups >= MOST_REGROUPS:
        return f"{regroups} replacements in a row came to no step"
    if plan is not None and plan.incarnation - plan.started >= MOST_IN_A_LIFE:
        return f"the survivors have left {MOST_IN_A_LIFE} groups, which is enough for one process"
    return ""


def unkept(state: RunState, *dead: int, why: str = "") -> str:
    """Why no rank stayed, for people: ``why``, else by ``why_not_stay``; empty where that was no question."""
    if some_could(state, *dead):
        return why or why_not_stay(state, *dead)
    alone = state.plan is None or state.plan.topology.world_size == 1
    if not state.windows.stay_asked or alone or state.recovers_itself:
        return ""
    return f"no rank that lives has said that it can ({WAY_TO_STAY})"


def some_could(state: RunState, *dead: int) -> bool:
    """Whether a rank that lives could stay, and the run is one whose survivors stay."""
    able = (state.life.rejoinable & state.life.alive).difference(dead)
    return bool(able) and state.windows.rejoin_s > 0


def repair_refusal(state: RunState, rank: int) -> str:
    """Why ``rank``, whose memory is bad, cannot keep its process; empty if it can."""
    if rank not in (life := state.life).alive:
        return "it does not live"
    if life.rejoining:
        return "ranks are still on their way into this group"
    if rank not in life.rejoinable:
        return "it cannot leave its group alive"
    if life.regroups:
        return "no step of all was finished since the last fault"
    return why_not_stay(state, rank)


def hang_refusal(state: RunState, rank: int) -> str:
    """Why a rank that hangs is not replaced alone; empty if it can be."""
    if rank not in state.life.alive:
        return "it does not live"
    if state.life.rejoining:
        return "ranks are still on their way into this group"
    return why_not_stay(state, rank)


def elsewhere(state: RunState) -> bool:
    """Whether other nodes have ranks of the run."""
    return len(state.seats.nodes) > 1
