"""Transitions in which ranks stay: one dies, the others leave their group, somebody takes its place.

A rank whose memory is bad is repaired in the same way, with nobody to be replaced: all leave the group, and
it enters the next one with a state from elsewhere.

Called by ``decide`` only. Whatever goes wrong ends in ``abandon``: all save, and begin anew from the recovery
point as after any fault. The plan of the next incarnation keeps the living ranks; their memory is where it
resumes, so nothing is looked for, rewritten or prepared. Ranks of a training that recovers by itself are told
of the death and left alone (``recovers_itself``): who is missing is started, and nobody is waited for.
"""

from dataclasses import replace

from faultrun.core import drain
from faultrun.core.begin import statement
from faultrun.core.diagnose import conclude, new_incident, open_incident
from faultrun.model.actions import Action, ExamineDeaths, FreeSurvivors, Spawn, StartTimer, SweepRanks
from faultrun.model.agreement import IncarnationOver
from faultrun.model.events import PlanAdopted, Timer, TimerFired, WorkerExit
from faultrun.model.evidence import FaultClass
from faultrun.model.facts import NodeStatus
from faultrun.model.incident import Cause
from faultrun.model.progress import RankStep
from faultrun.model.rejoin import (
    DeathsExamined,
    MemoryFaultFound,
    RankCannotRejoin,
    RankCanRejoin,
    RankRejoined,
)
from faultrun.model.run import Drain, Phase, RunState, Step

MOST_REGROUPS = 3
"""In a row without a step that all have finished: whatever kills a rank each time kills the next one too."""
MOST_IN_A_LIFE = 100
"""Of the same survivors: each group that was left may leave some memory, descriptors or threads behind."""


def refusal(state: RunState, rank: int) -> str:
    """Why nobody takes the place of ``rank`` while the others live on; empty if somebody can."""
    life = state.life
    survivors = life.alive - {rank}
    if state.windows.rejoin_s <= 0:
        return "survivors are not to stay (--on_fault=restart)"
    if len(state.seats.nodes) > 1:
        return "the run has several nodes"
    if state.stop is not None or state.failure is not None:
        return "the run is about to end"
    if life.finished:
        return "a rank has finished"
    if not survivors:
        return "no other rank lives"
    if state.recovers_itself:
        return ""
    mute = survivors - life.rejoinable - life.rejoining
    if mute:
        return f"rank {min(mute)} cannot leave its group alive"
    if life.regroups >= MOST_REGROUPS:
        return f"{life.regroups} replacements in a row came to no step"
    plan = state.plan
    if plan is not None and plan.incarnation - plan.started >= MOST_IN_A_LIFE:
        return f"the survivors have left {MOST_IN_A_LIFE} groups, which is enough for one process"
    return ""


def begin(state: RunState, event: WorkerExit) -> Step:
    """A rank died that somebody can replace: free the others, and see what it died of."""
    incident = open_incident(state, event)
    life = replace(state.life.reaped(event), drain=Drain(incident=incident))
    state = replace(state, phase=Phase.REPLACING, life=life)
    why = f"rank {event.rank}: {incident.explanation}; {len(life.alive)} stay"
    actions = (*_regroup(state, event.at_s), _examine(state))
    return Step(state=state, actions=actions, why=why)


def repair(state: RunState, event: MemoryFaultFound) -> Step:
    """Memory of a living rank is bad: all leave the group, and it gets its state in the next one.

    Where it cannot, nothing is done: the rank ends of its error, and is replaced or not as any.
    """
    life, rank = state.life, event.rank
    against = _unrepairable(state, rank)
    if against:
        return Step(state=state, why=f"rank {rank} is not repaired in place: {against}")
    found = new_incident(state, event.at_s, Cause.MEMORY, event.what, rank)
    found = replace(found, fault_class=FaultClass.TRANSIENT)
    incident = conclude(found, (), float("inf"), (), life.steps)
    state = replace(state, phase=Phase.REPLACING, life=replace(life, drain=Drain(incident=incident)))
    told = statement(state, event.at_s, NodeStatus.REPLACING)
    why = f"rank {rank}: {incident.explanation}; it is repaired in place"
    return Step(state=state, actions=(*_regroup(state, event.at_s), told), why=why)


def _unrepairable(state: RunState, rank: int) -> str:
    """Why ``rank`` cannot keep its process. A second fault before all have done a step needs a new one."""
    life = state.life
    if rank not in life.alive:
        return "it does not live"
    if life.rejoining:
        return "ranks are still on their way into this group"
    if rank not in life.rejoinable:
        return "it cannot leave its group alive"
    if life.regroups:
        return "no step of all was finished since the last fault"
    return refusal(state, rank)


def another(state: RunState, event: WorkerExit) -> Step:
    """One more is gone before a plan came."""
    if event.clean:
        return left(state, event)
    state = replace(state, life=state.life.reaped(event))
    if not state.life.alive:
        return drain.sweep_when_empty(state, event.at_s, f"rank {event.rank} is gone too")
    return Step(state=state, actions=(_examine(state),), why=f"rank {event.rank} is gone too")


def left(state: RunState, event: WorkerExit) -> Step:
    """A rank that others wait for has finished: it never comes, and nobody does its work twice."""
    gone = replace(state, life=state.life.reaped(event))
    why = f"rank {event.rank} finished before all were one group again"
    return abandon(gone, event.at_s, why, event.rank)


def examined(state: RunState, event: DeathsExamined) -> Step:
    """It is known what they died of: tell the agreement who lives."""
    life, opened = state.life, state.life.incident
    if opened is None or event.dead != _dead(state):
        return Step(state=state, why="another rank has died meanwhile")
    incident = conclude(opened, life.exits, float("inf"), event.notes, life.steps)
    state = replace(state, life=replace(life, drain=Drain(incident=incident)))
    told = statement(state, event.at_s, NodeStatus.REPLACING)
    return Step(state=state, actions=(told,), why=f"{len(life.alive)} stay")


def adopt(state: RunState, event: PlanAdopted) -> Step:
    """Start those that are missing, and wait until all are one group."""
    plan, life = event.plan, state.life
    if plan.incarnation <= state.incarnation or plan.kept != life.alive:
        return Step(state=state, why=f"a plan for incarnation {plan.incarnation} comes at the wrong time")
    ranks = frozenset(plan.topology.ranks_of(state.node))
    following = replace(
        life,
        topology=plan.topology,
        alive=ranks,
        rejoinable=life.rejoinable & plan.kept,
        rejoining=frozenset() if state.recovers_itself else ranks,
        regroups=life.regroups + 1,
        steps=tuple(one for one in life.steps if one.rank in plan.kept),
        exits=(),
        drain=None,
    )
    state = replace(state, phase=Phase.RUNNING, run=replace(state.run, plan=plan), life=following)
    spawn = Spawn(
        plan=plan,
        ranks=tuple(sorted(ranks - plan.kept)),
        master_addr=state.addr,
        master_port=life.master_port,
        native_scheduler=state.run.native_scheduler,
        patience=state.run.patience,
    )
    running = statement(state, event.at_s, NodeStatus.RUNNING)
    anew = f"{_ranks(spawn.ranks)} anew" if spawn.ranks else "nobody anew"
    why = f"incarnation {plan.incarnation}: {anew}, {len(plan.kept)} stay"
    last: tuple[Action, ...] = _rejoin_timer(state, event.at_s)
    if state.recovers_itself:
        last = (SweepRanks(incarnation=plan.incarnation - 1, ranks=ranks - plan.kept),)
    return Step(state=state, actions=(running, spawn, *last), why=why)


def heard(state: RunState, event: RankCanRejoin | RankRejoined | RankCannotRejoin) -> Step:
    """What a living rank says of its group."""
    life, rank = state.life, event.rank
    match event:
        case _ if rank not in life.alive:
            return Step(state=state, why=f"rank {rank} does not live")
        case RankCanRejoin():
            able = replace(life, rejoinable=life.rejoinable | {rank})
            return Step(state=replace(state, life=able), why=f"rank {rank} can survive another's death")
        case RankCannotRejoin(why=why) if state.phase is Phase.RUNNING and rank not in life.rejoining:
            unable = replace(life, rejoinable=life.rejoinable - {rank})
            return Step(
                state=replace(state, life=unable), why=f"rank {rank} cannot survive another's death: {why}"
            )
        case RankCannotRejoin(why=why):
            return abandon(state, event.at_s, f"rank {rank} cannot rejoin: {why}", rank)
        case RankRejoined() if rank not in life.rejoining:
            return Step(state=state, why="noted")
        case RankRejoined(step=step):
            missing = life.rejoining - {rank}
            at_step = life.stepped((RankStep(rank=rank, step=step),))
            state = replace(state, life=replace(at_step, rejoining=missing))
            if missing:
                return Step(state=state, why=f"rank {rank} is back at step {step}; {len(missing)} are not")
            plan = state.plan
            anew = frozenset() if plan is None else life.alive - plan.kept
            swept = (SweepRanks(incarnation=state.incarnation - 1, ranks=anew),) if anew else ()
            return Step(state=state, actions=swept, why=f"all are one group again, at step {step}")


def stepped(state: RunState) -> RunState:
    """All have finished a step: what came before counts no more."""
    return replace(state, life=replace(state.life, regroups=0))


def overdue(state: RunState, event: TimerFired) -> Step:
    """The wait for one group is over."""
    if state.phase is Phase.RUNNING and not state.life.rejoining:
        return Step(state=state, why="all have rejoined")
    missing = state.life.rejoining
    who = f"{_ranks(missing)} did not rejoin" if missing else "no plan came for those that stay"
    return abandon(
        state, event.at_s, f"{who} within {state.windows.rejoin_s:g} s", min(missing, default=None)
    )


def refused(state: RunState, event: IncarnationOver) -> Step:
    """The agreement wants no replacement: no restart is left, or none can help."""
    return abandon(state, event.at_s, event.why)


def abandon(state: RunState, now_s: float, why: str, rank: int | None = None) -> Step:
    """All that live save and leave. What was to be replaced stays the incident while no plan answers it."""
    incident = state.life.incident or new_incident(state, now_s, Cause.REJOIN, why, rank)
    return drain.leave_group(state, now_s, why, incident)


def _rejoin_timer(state: RunState, now_s: float) -> tuple[StartTimer, ...]:
    """So long may they need to be one group; those that form it by themselves tell nobody when they are."""
    if state.recovers_itself:
        return ()
    at_s = now_s + state.windows.rejoin_s
    return (StartTimer(timer=Timer.REJOIN, at_s=at_s, incarnation=state.incarnation),)


def _regroup(state: RunState, now_s: float) -> tuple[FreeSurvivors | StartTimer, ...]:
    free = FreeSurvivors(incarnation=state.incarnation, ranks=state.life.alive)
    return (free, *_rejoin_timer(state, now_s))


def _examine(state: RunState) -> ExamineDeaths:
    return ExamineDeaths(incarnation=state.incarnation, dead=_dead(state))


def _dead(state: RunState) -> tuple[int, ...]:
    return tuple(exit_.rank for exit_ in state.life.exits)


def _ranks(ranks: "tuple[int, ...] | frozenset[int]") -> str:
    named = " ".join(map(str, sorted(ranks)))
    return f"rank {named}" if len(ranks) == 1 else f"ranks {named}"
