"""Transitions of a run that trains while places are empty: a newcomer is there, or none came for too long.

Called by ``decide`` only. Nothing fails here: the ranks that live are asked to stand between two steps, leave
their group there as after a death, and meet the newcomer. Its way up to its first step is none of this
(``core.standby.healing``), and costs them nothing.
"""

from dataclasses import replace

from faultrun.core.diagnosis.diagnose import new_incident
from faultrun.core.humanize import rank_names, span
from faultrun.core.phases import drain, replace_ranks
from faultrun.core.phases.may_stay import why_not_stay, why_not_train_on
from faultrun.model.actions import FreeSurvivors, StartTimer
from faultrun.model.events import Timer, TimerFired
from faultrun.model.incident import Cause
from faultrun.model.observed.rejoin import RankCannotRejoin, RankCanRejoin, RankRejoined
from faultrun.model.observed.standby import StandbyChanged, StandbyPhase
from faultrun.model.run import Phase, RunState, Step

_AGAIN_S = 5.0
"""A newcomer that waits has so long to come in, where the time for that was over just then."""


def newcomer_parked(state: RunState, event: StandbyChanged) -> Step:
    """Know whose newcomer waits at its first step, also if it was told in the incarnation before."""
    here = event.state is StandbyPhase.PARKED
    parked = state.life.parked | {event.rank} if here else state.life.parked - {event.rank}
    state = replace(state, life=replace(state.life, parked=parked))
    return if_due(Step(state=state, why="it is about standbys (core.standby)"), event.at_s)


def if_due(step: Step, now_s: float) -> Step:
    """``step``, and the places that can be taken now are: by a timer, so that one event begins it."""
    if not (_due(step.state) or _stands_still(step.state)):
        return step
    timer = StartTimer(timer=Timer.HEAL, at_s=now_s, incarnation=step.state.incarnation)
    return replace(step, actions=(*step.actions, timer))


def rang(state: RunState, event: TimerFired) -> Step:
    """Who is there comes in; where places have been empty for too long, fewer go on, or all wait."""
    life, plan = state.life, state.plan
    if plan is None or not plan.missing or life.empty_since_s is None:
        return Step(state=state, why="every place is taken")
    if against := _stands_still(state):
        return _all_wait(state, event.at_s, against)
    if ready := _due(state):
        return _asks(state, f"{rank_names(sorted(ready))} can come back")
    until_s = life.empty_since_s + state.windows.heal_s
    busy = life.rejoining or life.finished or life.regroups or plan.missing & life.parked
    if not (waited := plan.missing - state.barred):
        return Step(state=state, why="no newcomer is waited for while the slots are set aside")
    if event.at_s < until_s or busy:
        later = StartTimer(
            timer=Timer.HEAL, at_s=max(until_s, event.at_s + _AGAIN_S), incarnation=state.incarnation
        )
        return Step(state=state, actions=(later,), why="there is time left to heal")
    why = f"no newcomer took the place of {rank_names(sorted(waited))} within {span(state.windows.heal_s)}"
    if state.shrinks:
        return _fewer_go_on(state, event.at_s, why, min(waited))
    return _all_wait(state, event.at_s, why) if why_not_stay(state) else _asks(state, why)


def _asks(state: RunState, why: str) -> Step:
    """No rank has failed, so none is called away: what follows, follows once all stand between two steps."""
    asks = FreeSurvivors(incarnation=state.incarnation, ranks=state.life.alive, at_boundary=True)
    return Step(state=state, actions=(asks,), why=f"{why}; the others are asked to stand between two steps")


def heard(state: RunState, event: RankCanRejoin | RankRejoined | RankCannotRejoin) -> Step:
    """What a living rank says of its group: it may stand between two steps with all others by now."""
    step = if_due(replace_ranks.heard(state, event), event.at_s)
    running = state.phase is Phase.RUNNING and event.rank in state.life.alive and not state.life.rejoining
    stands = isinstance(event, RankCanRejoin) and event.waits and running and not why_not_stay(step.state)
    return _stand(step.state, event.at_s) if stands else step


def _stand(state: RunState, now_s: float) -> Step:
    """All that live wait between two steps: for newcomers that are there, or for any that comes."""
    missing = frozenset[int]() if state.plan is None else state.plan.missing
    since_s = state.life.empty_since_s
    if ready := missing & state.life.parked:
        return replace_ranks.regroup(state, now_s, f"{rank_names(sorted(ready))} can come back")
    if since_s is None or now_s < since_s + state.windows.heal_s:
        return replace_ranks.regroup(state, now_s, "nobody comes in after all")
    why = f"no newcomer took the place of {rank_names(sorted(missing))} within {span(state.windows.heal_s)}"
    return _all_wait(replace(state, life=replace(state.life, waits=True)), now_s, why)


def _stands_still(state: RunState) -> str:
    """Why the others cannot train on although places are empty, as one of them has found by now."""
    plan = state.plan
    empty = state.phase is Phase.RUNNING and plan is not None and plan.missing
    return why_not_train_on(state) if empty else ""


def _all_wait(state: RunState, now_s: float, why: str) -> Step:
    """Those that live wait for who takes the places, as they would have at first; or begin anew with all.

    For a slot that is set aside no newcomer comes: fewer begin anew.
    """
    if barred := state.barred:
        return _fewer_go_on(state, now_s, why, min(barred))
    if against := why_not_stay(state):
        return replace_ranks.abandon(state, now_s, f"{why}; {against}")
    return replace_ranks.regroup(state, now_s, f"{why}; all wait for a newcomer")


def _fewer_go_on(state: RunState, now_s: float, why: str, rank: int) -> Step:
    """All that live save and begin anew without the slot of ``rank``."""
    return drain.open_drain(state, new_incident(state, now_s, Cause.UNHEALED, why, rank), why)


def _due(state: RunState) -> frozenset[int]:
    """The ranks whose places can be taken now: the others are one group, and have done a step in it."""
    life, plan = state.life, state.plan
    if state.phase is not Phase.RUNNING or plan is None or not (ready := plan.missing & life.parked):
        return frozenset()
    busy = life.rejoining or life.regroups or why_not_stay(state)
    return frozenset() if busy else ready
