"""Transitions in which ranks stay: one dies, the others leave their group, a newcomer takes its place.

A rank whose memory is bad is repaired in the same way, with no rank to be replaced: all leave the group, and
it enters the next one with a state from elsewhere.

Called by ``decide`` only. Whatever goes wrong ends in ``abandon``: all save, and begin anew from the recovery
point as after any fault. The plan of the next incarnation keeps the living ranks; their memory is where it
resumes, so nothing is looked for, rewritten or prepared. Ranks of a training that recovers by itself are told
of the death and left alone (``recovers_itself``): the missing ranks are started, and none is waited for.
"""

from collections.abc import Iterator
from dataclasses import replace

from faultrun.core.diagnosis.diagnose import conclude, new_incident, open_incident
from faultrun.core.humanize import rank_names
from faultrun.core.phases import drain
from faultrun.core.phases.may_stay import (
    elsewhere,
    ends_without,
    repair_refusal,
    unkept,
    why_not_stay,
    why_not_train_on,
)
from faultrun.core.phases.node_statement import publish
from faultrun.model import actions
from faultrun.model.events import PlanAdopted, Timer, TimerFired, WorkerExit
from faultrun.model.incident import Cause, Incident
from faultrun.model.observed import rejoin
from faultrun.model.observed.agreement import IncarnationOver
from faultrun.model.observed.evidence import FaultClass
from faultrun.model.observed.hang import Standstill
from faultrun.model.observed.node_fact import NodeStatus
from faultrun.model.observed.progress import RankStep
from faultrun.model.plan import Plan
from faultrun.model.run import Drain, Life, Phase, RunState, Step


def begin(state: RunState, event: WorkerExit) -> Step:
    """A rank died that a newcomer can replace: free the others, and see what it died of."""
    incident = open_incident(state, event)
    life = replace(state.life.reaped(event), drain=Drain(incident=incident))
    state = replace(state, phase=Phase.REPLACING, life=life)
    why = f"rank {event.rank}: {incident.explanation}; {len(life.alive)} stay"
    told = _freeing(state, event.at_s, f"rank {event.rank} {incident.explanation}")
    return Step(state=state, actions=(*told, _examine(state)), why=why)


def hung(state: RunState, incident: Incident, rank: int) -> Step:
    """A rank that can be replaced stands still: it is killed, and the others are freed once it is gone.

    Freed before that they could meet it again: another process may have stopped it, and let it go on.
    """
    state = replace(state, phase=Phase.REPLACING, life=replace(state.life, drain=Drain(incident=incident)))
    why = f"rank {rank} hangs: {incident.explanation}; it alone is killed"
    kill = actions.Kill(ranks=frozenset({rank}))
    return Step(state=state, actions=(kill, *_rejoin_timer(state, incident.at_s)), why=why)


def begun_elsewhere(state: RunState, event: IncarnationOver) -> Step:
    """Another node frees its survivors: so does this one, or has all begin anew because one cannot stay."""
    if refused := why_not_stay(state):
        step = drain.over_elsewhere(state, event, unkept(state))
        alarm = actions.RaiseAlarm(incarnation=state.incarnation, why=f"on node {state.node} {refused}")
        return replace(step, actions=(*step.actions, alarm), why=f"{step.why}; {refused}")
    why = f"node {event.node}: {event.why}" if event.node else event.why
    incident = replace(new_incident(state, event.at_s, Cause.ELSEWHERE, why), node=event.node)
    life = replace(state.life, drain=Drain(incident=incident))
    state = replace(state, phase=Phase.REPLACING, life=life)
    return Step(state=state, actions=_freeing(state, event.at_s), why=f"{why}; {len(life.alive)} stay")


def freed(state: RunState, event: rejoin.SurvivorsFreed) -> Step:
    """Survivors of all nodes could meet here: tell the agreement who lives, once that is known."""
    if state.life.meeting_port:
        return Step(state=state, why="they were free already")
    if not event.meeting_port:
        return abandon(state, event.at_s, event.why)
    if _dead(state := replace(state, life=replace(state.life, meeting_port=event.meeting_port))):
        return Step(state=state, why="survivors were told; what the dead said last is being read")
    told = publish(state, event.at_s, NodeStatus.REPLACING)
    return Step(state=state, actions=(told,), why=f"{len(state.life.alive)} stay")


def repair(state: RunState, event: rejoin.MemoryFaultFound) -> Step:
    """Memory of a living rank is bad: all leave the group, and it gets its state in the next one.

    Where it cannot, nothing is done: the rank ends of its error, and is replaced or not as any.
    """
    life, rank = state.life, event.rank
    if against := repair_refusal(state, rank):
        return Step(state=state, why=f"rank {rank} is not repaired in place: {against}")
    found = new_incident(state, event.at_s, Cause.MEMORY, event.what, rank)
    found = replace(found, fault_class=FaultClass.TRANSIENT)
    incident = conclude(found, (), float("inf"), (), life.steps)
    state = replace(state, phase=Phase.REPLACING, life=replace(life, drain=Drain(incident=incident)))
    freed = _freeing(state, event.at_s, f"rank {rank} {incident.explanation}")
    told = () if elsewhere(state) else (publish(state, event.at_s, NodeStatus.REPLACING),)
    why = f"rank {rank}: {incident.explanation}; it is repaired in place"
    return Step(state=state, actions=(*freed, *told), why=why)


def another(state: RunState, event: WorkerExit) -> Step:
    """One more is gone before a plan came."""
    if event.clean:
        return left(state, event)
    if state.life.incident is None:  # no rank had failed: they are free to let others in
        stay = not why_not_stay(state, event.rank, status=event.status)
        return begin(state, event) if stay else drain.fault(state, event)
    stuck = _stuck(state)
    if not (state := replace(state, life=state.life.reaped(event))).life.alive and not elsewhere(state):
        why = f"rank {event.rank} is gone too, and nobody has a state any more"
        return drain.sweep_when_empty(_given_up(state, why), event.at_s, why)
    if stuck is None:
        return Step(state=state, actions=(_examine(state),), why=f"rank {event.rank} is gone too")
    if stuck != event.rank:
        return Step(state=state, why=f"rank {event.rank} is gone too; rank {stuck} is being killed")
    why = f"rank {stuck}, which hung, is gone; {len(state.life.alive)} stay"
    told = _freeing(state, event.at_s, f"rank {stuck} hung")
    return Step(state=state, actions=(*told, _examine(state)), why=why)


def left(state: RunState, event: WorkerExit) -> Step:
    """A rank that others wait for has finished: it never comes, and its work is not done twice.

    Others go on without it; once none of them lives but newcomers, which have no state, the run is over.
    """
    gone = replace(state, life=state.life.reaped(event))
    alive, why = gone.life.alive, f"rank {event.rank} finished"
    if not (_heals(state) or ends_without(gone)):
        return abandon(gone, event.at_s, f"{why} before all were one group again", event.rank)
    if state.life.incident is not None:
        again = Step(state=gone, actions=(_examine(gone),), why=f"{why}; {len(alive)} stay")
        return again if alive else drain.sweep_when_empty(gone, event.at_s, why)
    if _trained(gone.life):
        return regroup(gone, event.at_s, f"{why}; the others go on without it")
    gone = replace(gone, phase=Phase.RUNNING, life=replace(gone.life, drain=None))
    if not alive:
        return drain.sweep_when_empty(gone, event.at_s, why)
    why = f"{why}; {rank_names(sorted(alive))} came too late"
    return Step(state=gone, actions=(actions.Kill(ranks=alive),), why=why)


def came_too_late(state: RunState) -> bool:
    """Whether those that live came for others, and all that had a state for them have finished."""
    life = state.life
    return life.alive <= life.rejoining and ends_without(state) and not _trained(life)


def _trained(life: Life) -> frozenset[int]:
    """Who lives and has a state."""
    return life.alive & (life.rejoinable | {one.rank for one in life.steps})


def examined(state: RunState, event: rejoin.DeathsExamined) -> Step:
    """It is known what they died of: tell the agreement who lives."""
    life, opened = state.life, state.life.incident
    if opened is None or event.dead != _dead(state):
        return Step(state=state, why="another rank has died meanwhile")
    if _stuck(state) is not None:
        return Step(state=state, why=f"rank {_stuck(state)} is being killed")
    incident = conclude(opened, life.exits, float("inf"), event.notes, life.steps)
    state = replace(state, life=replace(life, drain=Drain(incident=incident)))
    told = publish(state, event.at_s, NodeStatus.REPLACING)
    return Step(state=state, actions=(told,), why=f"{len(life.alive)} stay")


def adopt(state: RunState, event: PlanAdopted) -> Step:
    """Start those that are missing, and wait until all are one group."""
    plan, life = event.plan, state.life
    is_ours = plan.incarnation > state.incarnation and plan.is_for(state.node, state.boot)
    ranks = frozenset(plan.topology.ranks_of(state.node)) - plan.missing if is_ours else frozenset()
    if is_ours and plan.kept and plan.kept & ranks > life.alive and elsewhere(state):
        return _too_late(state, event)
    if not is_ours or not plan.kept or plan.kept & ranks != life.alive:
        return Step(state=state, why=f"a plan for incarnation {plan.incarnation} comes at the wrong time")
    since_s = event.at_s if life.empty_since_s is None else life.empty_since_s
    following = replace(
        life,
        topology=plan.topology,
        alive=ranks,
        rejoinable=life.rejoinable & plan.kept,
        rejoining=frozenset() if state.recovers_itself else ranks,
        regroups=life.regroups + 1,
        sharing=tuple(one for one in life.sharing if one[0] in plan.kept),
        parked=life.parked - plan.newcomers,
        empty_since_s=since_s if plan.missing else None,
        unswept=_unswept(life, plan, frozenset(_dead(state))),
        usable=_usable(life, plan),
        steps=tuple(one for one in life.steps if one.rank in plan.kept),
        exits=(),
        drain=None,
        standstill=Standstill(),
        meeting_port=0,
    )
    state = replace(state, phase=Phase.RUNNING, run=replace(state.run, plan=plan), life=following)
    spawn = actions.Spawn(
        plan=plan,
        ranks=tuple(sorted(ranks - plan.kept)),
        master_addr=life.master_addr or state.addr,
        master_port=life.master_port,
        native_scheduler=state.run.native_scheduler,
        patience=state.run.patience,
        finished=life.finished,
    )
    running = publish(state, event.at_s, NodeStatus.RUNNING)
    started = f"{rank_names(sorted(spawn.ranks))} anew" if spawn.ranks else "none anew"
    why = f"incarnation {plan.incarnation}: {started}, {len(plan.kept)} stay"
    if plan.missing:
        why = f"{why} and train on without {rank_names(sorted(plan.missing))}"
    last: tuple[actions.Action, ...] = (*_rejoin_timer(state, event.at_s), *heal_timer(state))
    if state.recovers_itself:
        last = (actions.SweepRanks(incarnation=plan.incarnation - 1, ranks=ranks - plan.kept),)
    return Step(state=state, actions=(running, spawn, *last), why=why)


def _usable(life: Life, plan: Plan) -> tuple[int, ...]:
    """Slots that are well again and still empty."""
    empty = () if plan.slots is None else plan.slots.empty
    return tuple(slot for slot in life.usable if any(one.slot == slot for one in empty))


def _too_late(state: RunState, event: PlanAdopted) -> Step:
    """One that the plan keeps has died meanwhile: the other nodes, which follow it, are told."""
    plan = event.plan
    gone = plan.kept.intersection(plan.topology.ranks_of(state.node)) - state.life.alive
    why = f"{rank_names(sorted(gone))}, which incarnation {plan.incarnation} keeps, died on node {state.node}"
    step = abandon(state, event.at_s, why)
    return replace(step, actions=(*step.actions, actions.RaiseAlarm(incarnation=plan.incarnation, why=why)))


def heard(
    state: RunState, event: rejoin.RankCanRejoin | rejoin.RankRejoined | rejoin.RankCannotRejoin
) -> Step:
    """What a living rank says of its group."""
    life, rank = state.life, event.rank
    match event:
        case _ if rank not in life.alive:
            return Step(state=state, why=f"rank {rank} does not live")
        case rejoin.RankCanRejoin():
            able = replace(life, rejoinable=life.rejoinable | {rank}).said_of_sharing(rank, event.trains_on)
            return Step(state=replace(state, life=able), why=f"rank {rank} can survive another's death")
        case rejoin.RankCannotRejoin(why=why) if state.phase is Phase.RUNNING and rank not in life.rejoining:
            unable = replace(life, rejoinable=life.rejoinable - {rank})
            why = f"rank {rank} cannot survive another's death: {why}"
            return Step(state=replace(state, life=unable), why=why)
        case rejoin.RankCannotRejoin(why=why) if rank in _came_to_heal(state):
            return _ended_in_vain(state, event.at_s, rank, f"cannot rejoin: {why}")
        case rejoin.RankCannotRejoin(why=why):
            return abandon(state, event.at_s, f"rank {rank} cannot rejoin: {why}", rank)
        case rejoin.RankRejoined() if rank not in life.rejoining:
            return Step(state=state, why="noted")
        case rejoin.RankRejoined(step=step):
            missing = life.rejoining - {rank}
            at_step = life.stepped((RankStep(rank=rank, step=step),))
            state = replace(state, life=replace(at_step, rejoining=missing))
            if missing:
                return Step(state=state, why=f"rank {rank} is back at step {step}; {len(missing)} are not")
            state = replace(state, life=replace(state.life, unswept=()))
            swept = tuple(_sweep(life))
            return Step(state=state, actions=swept, why=f"all are one group again, at step {step}")


def _unswept(life: Life, plan: Plan, dead: frozenset[int]) -> tuple[tuple[int, int], ...]:
    """With the ranks that died now; a newcomer that died has left more behind."""
    before = tuple(one for one in life.unswept if one[0] not in dead)
    return (*before, *((rank, plan.incarnation - 1) for rank in sorted(dead)))


def _sweep(life: Life) -> Iterator[actions.SweepRanks]:
    """What came in for a rank was started behind the incarnation in which that died, and lives."""
    for died in sorted({incarnation for _, incarnation in life.unswept}):
        ranks = frozenset(rank for rank, incarnation in life.unswept if incarnation == died)
        yield actions.SweepRanks(incarnation=died, ranks=ranks)


def stepped(state: RunState) -> RunState:
    """All have finished a step: what came before counts no more."""
    return replace(state, life=replace(state.life, regroups=0))


def overdue(state: RunState, event: TimerFired) -> Step:
    """The wait is over. A group is one once all are in, so no rank tells who is late; newcomers are named."""
    if state.phase is Phase.RUNNING and not state.life.rejoining:
        return Step(state=state, why="all have rejoined")
    if state.phase is Phase.RUNNING and ends_without(state):
        return Step(state=state, why="a rank has finished: who waits for another in vain says so")
    missing, stuck = state.life.rejoining, _stuck(state)
    if state.phase is Phase.RUNNING and (came := _came_to_heal(state)):
        # The others wait for none of these: they have trained without them.
        why = f"did not come in within {_patience_s(state):g} s"
        return _ended_in_vain(state, event.at_s, min(came), why)
    whole = missing < state.life.alive  # once it is, each tells
    come = frozenset[int]() if whole or state.plan is None else missing & state.plan.newcomers
    who = f"{rank_names(sorted(missing))} did not rejoin" if missing else "no plan came for those that stay"
    if come and come != missing:
        who = f"{rank_names(sorted(come))} did not come in beside {rank_names(sorted(missing - come))}"
    if stuck is not None:
        who = f"rank {stuck}, which hung, did not end by SIGKILL"
    why = f"{who} within {state.windows.rejoin_s:g} s"
    return abandon(state, event.at_s, why, min(come or missing, default=None))


def over(state: RunState, event: IncarnationOver) -> Step:
    """No rank is to stay: no restart is left, none can help, or another node cannot; or it is no news."""
    if event.stays:
        return Step(state=state, why="survivors here are free already, or are as soon as who hung is gone")
    return drain.over_elsewhere(_given_up(state, event.why), event)


def abandon(state: RunState, now_s: float, why: str, rank: int | None = None) -> Step:
    """All that live save and leave. What was to be replaced stays the incident while no plan answers it."""
    state = _given_up(state, why)
    incident = state.life.incident or new_incident(state, now_s, Cause.REJOIN, why, rank)
    return drain.leave_group(state, now_s, why, incident)


def _given_up(state: RunState, why: str) -> RunState:
    """Have the incident tell that survivors were to stay, and what came between."""
    if (drain_ := state.life.drain) is None or drain_.incident is None:
        return state
    told = replace(drain_.incident, unkept=f"it was tried; {why}")
    return replace(state, life=replace(state.life, drain=replace(drain_, incident=told)))


def _stuck(state: RunState) -> int | None:
    """Who hung, or came in vain, and was killed for it, and has not ended yet."""
    incident = state.life.incident
    if (
        incident is None
        or incident.cause not in (Cause.HANG, Cause.REJOIN)
        or incident.rank not in state.life.alive
    ):
        return None
    return incident.rank


def _rejoin_timer(state: RunState, now_s: float) -> tuple[actions.StartTimer, ...]:
    """So long may they need to be one group; those that form it by themselves do not tell when they are."""
    if state.recovers_itself:
        return ()
    at_s = now_s + _patience_s(state)
    return (actions.StartTimer(timer=Timer.REJOIN, at_s=at_s, incarnation=state.incarnation),)


def _patience_s(state: RunState) -> float:
    """Half as long for who comes to an empty place: the others, who trained, give up later than we do."""
    return state.windows.rejoin_s / (2 if state.phase is Phase.RUNNING and _came_to_heal(state) else 1)


def heal_timer(state: RunState) -> tuple[actions.StartTimer, ...]:
    """So long may places be empty, since the first of them is."""
    if (since_s := state.life.empty_since_s) is None:
        return ()
    at_s = since_s + state.windows.heal_s
    return (actions.StartTimer(timer=Timer.HEAL, at_s=at_s, incarnation=state.incarnation),)


def _heals(state: RunState) -> bool:
    """Whether no rank has failed, and those that live have left their group to let others in."""
    plan, life = state.plan, state.life
    if state.phase is Phase.REPLACING:
        return life.incident is None
    return plan is not None and plan.heals and bool(life.rejoining) and not why_not_train_on(state)


def regroup(state: RunState, now_s: float, why: str) -> Step:
    """Have those that live leave their group and form another, although no rank has failed."""
    state = replace(state, phase=Phase.REPLACING, life=replace(state.life, drain=Drain()))
    told = publish(state, now_s, NodeStatus.REPLACING)
    return Step(state=state, actions=(*_freeing(state, now_s), told), why=why)


def _came_to_heal(state: RunState) -> frozenset[int]:
    """Who has come to an empty place and is not in the group yet; none where all wait."""
    plan = state.plan
    if plan is None or not plan.heals or why_not_train_on(state):
        return frozenset()
    return state.life.rejoining & plan.newcomers


def _ended_in_vain(state: RunState, now_s: float, rank: int, why: str) -> Step:
    """All that came to empty places go again where one of them cannot: the others trained without them."""
    came = _came_to_heal(state)
    step = hung(state, new_incident(state, now_s, Cause.REJOIN, why, rank), rank)
    return replace(step, actions=(actions.Kill(ranks=came), *step.actions))


def _freeing(state: RunState, now_s: float, why: str = "") -> tuple[actions.Action, ...]:
    """Have the living leave their group, those of other nodes too if ``why`` is news; not for ever."""
    free = actions.FreeSurvivors(incarnation=state.incarnation, ranks=state.life.alive)
    alarm = actions.RaiseAlarm(incarnation=state.incarnation, why=why, stays=True)
    return (free, *((alarm,) if why and elsewhere(state) else ()), *_rejoin_timer(state, now_s))


def _examine(state: RunState) -> actions.ExamineDeaths:
    return actions.ExamineDeaths(incarnation=state.incarnation, dead=_dead(state))


def _dead(state: RunState) -> tuple[int, ...]:
    return tuple(exit_.rank for exit_ in state.life.exits)
