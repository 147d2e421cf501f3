"""The supervisor's mind: one pure function from a fact to a decision.

This is the table: which fact means what in which phase. The transitions themselves are in ``begin``,
``look_for_checkpoint`` and ``node_statement`` (no worker runs), ``drain`` (from running to none) and
``replace_ranks`` (survivors stay); a phase is changed there, and here in one row for older journals. None
of them reads a clock, file, environment or process: time arrives on events, waiting leaves as ``StartTimer``.
"""

from dataclasses import replace

from faultrun.core.diagnosis.diagnose import describe, new_incident
from faultrun.core.humanize import span
from faultrun.core.phases import (
    begin,
    drain,
    grace_window,
    grow,
    hang_response,
    heal,
    look_for_checkpoint,
    mindspore_rendezvous,
    node_statement,
    platform_notices,
    replace_ranks,
    saves_seen,
)
from faultrun.core.phases.may_stay import why_not_stay
from faultrun.model.actions import RequestSave
from faultrun.model.events import (
    ConfigRewritten,
    Drained,
    Event,
    FaultNotice,
    FirstStep,
    GoGiven,
    Heartbeat,
    HelperExit,
    IncarnationStarted,
    NothingWhole,
    PlanAdopted,
    Prepared,
    PrepareFailed,
    RecoveryPointChosen,
    RunFinished,
    RunStarted,
    SpawnFailed,
    Timer,
    TimerFired,
    WorkerExit,
    WorkersLost,
    WorkerStarted,
)
from faultrun.model.exits import Exited
from faultrun.model.incident import Cause, Incident
from faultrun.model.observed import agreement, dying_gasp, hang, rejoin
from faultrun.model.observed.elastic import NodesWaiting, SaveWhileNodesWait, SlotsUsable
from faultrun.model.observed.mindspore_rendezvous import ClusterFormed, RankMissed, RanksMet, SchedulerFailed
from faultrun.model.observed.recovery import Began, FirstStepLogged, RecoveryTimed, ResumeChecked
from faultrun.model.observed.saves import CheckpointsOpened, FirstSaveTold, SavesObserved
from faultrun.model.observed.standby import MemoryUsed, RoomFound, StandbyChanged
from faultrun.model.run import Phase, RunState, Step
from faultrun.model.stop import StopRequested


def decide(state: RunState, event: Event) -> Step:  # noqa: C901, PLR0911  one row a case
    """Return the state after ``event``, what must now be done about it, and why.

    Total: every phase answers every event, and "nothing" is an answer that says why. Facts of another
    incarnation change nothing, unless they are about the run, the node, a standby or a rank that was kept.
    """
    match event:
        case RunStarted():
            return begin.take_up(state, event)
        case _ if state.done and not isinstance(event, StopRequested):
            return Step(state=state, why=f"the run is over; {type(event).__name__} changes nothing")
        case RunFinished():
            return begin.finish(state, event)
        case PlanAdopted():
            adopt = replace_ranks.adopt if state.phase is Phase.REPLACING else begin.adopt
            return adopt(state, event)
        case StopRequested():
            return drain.stop(state, event)
        case FaultNotice():
            return _notice(state, event)
        case agreement.MembershipLost():
            return drain.fence(state, event)
        case agreement.AgreementSilent(why=why):
            return Step(state=state, why=f"{why}; what was agreed on goes on")
        case dying_gasp.SaveSeen() | SavesObserved() | FirstSaveTold() | CheckpointsOpened():
            return saves_seen.noted(state, event)
        case StandbyChanged():
            return heal.newcomer_parked(state, event)
        case WorkerExit() | rejoin.RankCannotRejoin() if _lived_on(state, event):
            return _decide_in_phase(state, event)
        case _ if event.incarnation != state.incarnation:
            return Step(state=state, why=f"stale: incarnation {event.incarnation} is gone")
        case _:
            return _decide_in_phase(state, event)


def _decide_in_phase(state: RunState, event: Event) -> Step:  # noqa: C901, PLR0911, PLR0912, PLR0915  one row a case
    """The table: what a fact of this incarnation means in each phase. The first row that fits counts."""
    match state.phase, event:
        # Where to resume, and what the run does next.
        case Phase.SWEEPING, RecoveryPointChosen() | NothingWhole():
            # In an older journal: no restart waited for a stop that might come.
            return _decide_in_phase(replace(state, phase=Phase.SURVEYING), event)
        case Phase.SURVEYING, RecoveryPointChosen():
            return look_for_checkpoint.offer(state, event)
        case Phase.SURVEYING, NothingWhole():
            return look_for_checkpoint.lack(state, event)
        case Phase.SURVEYING, TimerFired(timer=Timer.LOOK):
            return look_for_checkpoint.look_again(state)
        case Phase.AWAITING_PLAN, TimerFired(timer=Timer.LACK):
            return look_for_checkpoint.look_by_itself(state)
        case _, agreement.LookAgain():
            return look_for_checkpoint.asked_to_look(state, event)
        # From a plan to workers.
        case Phase.BACKING_OFF, TimerFired(timer=Timer.BACKOFF):
            return begin.prepare(state, event.at_s, "the wait before the restart is over")
        case Phase.HOLDING, TimerFired(timer=Timer.HOLD):
            why = f"{platform_notices.hold(state)} for too long; leaving for another place"
            return drain.leave(state, event.at_s, why)
        case Phase.PREPARING, Prepared():
            return begin.ready(state, event)
        case Phase.SURVEYING, PrepareFailed(surveying=False):
            return Step(state=state, why=f"the plan is over that could not be prepared: {event.why}")
        case Phase.PREPARING, PrepareFailed(unseen=path) if path:
            return look_for_checkpoint.without_unseen(state, path)
        case ((Phase.SURVEYING | Phase.PREPARING), PrepareFailed()):
            failed = replace(state, unfit=event.unfit)
            return node_statement.give_up(failed, event.at_s, (event.exit_code, event.why))
        case Phase.AWAITING_GO, GoGiven():
            return begin.spawn(state, event)
        case _, agreement.OwnNodeAside(why=why):
            return Step(state=state, why=f"this node gets no rank: {why}")
        case _, agreement.PlanElsewhere(plan=plan):
            return Step(state=state, why=f"the others go on by incarnation {plan.incarnation}")
        # Survivors stay: a rank is replaced, or repaired.
        case Phase.REPLACING, WorkerExit():
            return replace_ranks.another(state, event)
        case Phase.REPLACING, rejoin.DeathsExamined():
            return replace_ranks.examined(state, event)
        case Phase.REPLACING, rejoin.SurvivorsFreed():
            return replace_ranks.freed(state, event)
        case Phase.RUNNING, agreement.IncarnationOver(stays=True):
            return replace_ranks.begun_elsewhere(state, event)
        case Phase.REPLACING, agreement.IncarnationOver():
            return replace_ranks.over(state, event)
        case ((Phase.RUNNING | Phase.REPLACING), TimerFired(timer=Timer.REJOIN)):
            return replace_ranks.overdue(state, event)
        case (
            (Phase.RUNNING | Phase.REPLACING),
            (rejoin.RankCanRejoin() | rejoin.RankRejoined() | rejoin.RankCannotRejoin()),
        ):
            return heal.heard(state, event)
        case Phase.RUNNING, TimerFired(timer=Timer.HEAL):
            return heal.rang(state, event)
        case Phase.RUNNING, rejoin.MemoryFaultFound():
            return replace_ranks.repair(state, event)
        # A worker ends, or an incarnation.
        case Phase.RUNNING, WorkerExit(rank=rank) if replace_ranks.came_too_late(state):
            return drain.ended(state, event, f"rank {rank} {describe(event.status)}, and nobody needs it")
        case Phase.RUNNING, WorkerExit(clean=True, rank=rank) if rank in state.life.rejoining:
            return replace_ranks.left(state, event)
        case Phase.RUNNING, WorkerExit(clean=True):
            return drain.ended(state, event, f"rank {event.rank} finished")
        case Phase.RUNNING, WorkerExit(status=Exited()) if state.life.forming:
            return mindspore_rendezvous.left_init(state, event)
        case Phase.RUNNING, WorkerExit(rank=rank) if not why_not_stay(state, rank, status=event.status):
            return replace_ranks.begin(state, event)
        case Phase.RUNNING, WorkerExit() | HelperExit() | SpawnFailed():
            return drain.fault(state, event)
        case _, agreement.IncarnationOver():
            return drain.over_elsewhere(state, event)
        case Phase.RUNNING, dying_gasp.SaveAwaited():
            return drain.awaited(state, event)
        # Nothing moves.
        case Phase.RUNNING, hang.HangSuspected():
            return hang_response.look_into(state, event)
        case Phase.RUNNING, hang.HangDismissed():
            return hang_response.works(state, event)
        case Phase.RUNNING, hang.HangWarned():
            return hang_response.warn(state, event)
        case Phase.RUNNING, hang.PauseOver():
            return hang_response.goes_on(state, event)
        case Phase.RUNNING, hang.HangDetected():
            return hang_response.hang(state, event)
        case Phase.RUNNING, hang.HangElsewhere():
            return hang_response.ask(state, event)
        case Phase.RUNNING, hang.NodeSpoke():
            return hang_response.other_node(state, event)
        case Phase.RUNNING, TimerFired(timer=Timer.ANSWERS):
            return hang_response.nobody_answers(state)
        # A smaller world becomes larger.
        case Phase.RUNNING, SlotsUsable():
            return grow.begin(state, event)
        case Phase.RUNNING, SaveWhileNodesWait():
            return grow.begin_with_nodes(state, event)
        case Phase.RUNNING, NodesWaiting():
            return grow.heard(state, event)
        case Phase.AWAITING_PLAN, SlotsUsable():
            return grow.well(state, event)
        # MindSpore's ranks meet.
        case Phase.RUNNING, RankMissed():
            return mindspore_rendezvous.missed(state, event)
        case _, RanksMet() | ClusterFormed() | SchedulerFailed() | TimerFired(timer=Timer.FORMING):
            return mindspore_rendezvous.heard(state, event)
        # The window to save, the kill, the sweep.
        case Phase.RUNNING, dying_gasp.SaveRequested(window_s=window_s):
            return Step(state=state, actions=(RequestSave(window_s=window_s),), why="a save was asked for")
        case Phase.RUNNING, dying_gasp.GaspSaved():
            noted = replace(state, run=grace_window.noted(state.run, event))
            why = f"rank {event.rank} saved step {event.step}"
            return node_statement.saves_known(noted, state, event.at_s, why)
        case Phase.DRAINING, dying_gasp.GaspAcknowledged():
            return drain.acknowledged(state, event)
        case ((Phase.DRAINING | Phase.KILLING | Phase.SWEEPING), dying_gasp.GaspSaved()):
            return drain.saved(state, event)
        case ((Phase.DRAINING | Phase.SWEEPING), dying_gasp.GaspFailed()):
            return drain.cannot_save(state, event)
        case _, dying_gasp.GaspVerified():
            return drain.read_back(state, event)
        case Phase.DRAINING, TimerFired(timer=Timer.GRACE):
            return drain.kill(state, event.at_s, "the grace window is over")
        case Phase.SWEEPING, TimerFired(timer=Timer.GRACE) if state.life.drain and state.life.drain.swept:
            return drain.stop_reading(state, event.at_s, "no restart follows")
        case ((Phase.DRAINING | Phase.KILLING), WorkerExit(rank=rank, status=status)):
            return drain.ended(state, event, f"rank {rank} {describe(status)}")
        case ((Phase.DRAINING | Phase.KILLING), SpawnFailed(rank=rank)):
            lost = drain.never_started(state, event)
            return drain.sweep_when_empty(lost, event.at_s, f"rank {rank} never started")
        case Phase.KILLING, TimerFired(timer=Timer.REAP):
            return drain.unkillable(state)
        case Phase.SWEEPING, Drained():
            return drain.drained(state, event)
        # How far training is.
        case ((Phase.RUNNING | Phase.REPLACING | Phase.DRAINING), Heartbeat()):
            high_step = max((state.run.high_step, *(step.step for step in event.steps)))
            run = replace(state.run, high_step=high_step)
            return Step(state=replace(state, run=run, life=state.life.stepped(event.steps)), why="progress")
        case _, WorkersLost(steps=steps, by_log=by_log):
            reached = max((-1, *(one.step for one in (() if by_log else steps))))
            run = replace(state.run, high_step=max(state.run.high_step, reached))
            life = replace(state.life, reached=max(state.life.reached, reached))
            state = replace(state, run=run, life=life)
            return Step(state=state, why="how far the workers of a lost supervisor were")
        case _, ResumeChecked(began=began, step=step, why=why):
            # Where only logs tell of steps, this one is known to count on from the recovery point.
            begun = -1 if step is None or began is not Began.AS_CHOSEN else step
            known = replace(state, life=replace(state.life, reached=max(state.life.reached, begun)))
            return Step(state=known, why=f"its first step is known: {why}")
        case _, RecoveryTimed(total_s=total_s, first_step_s=first_step_s):
            what = "workers running" if first_step_s is None else "training"
            return Step(state=state, why=f"{what} again after {span(total_s)}")
        case Phase.RUNNING, FirstStep():
            return heal.if_due(Step(state=replace_ranks.stepped(state), why="every rank trains"), event.at_s)
        # What changes nothing here.
        case (
            _,
            (RoomFound() | MemoryUsed() | TimerFired(timer=Timer.STANDBY | Timer.NEWCOMER | Timer.HANDOVER)),
        ):
            return Step(state=state, why="it is about standbys (core.standby)")
        case _, (WorkerStarted() | IncarnationStarted() | FirstStep() | FirstStepLogged() | HelperExit()):
            return Step(state=state, why="noted")
        case _, (
            ConfigRewritten()
            | dying_gasp.GaspRequested()
            | dying_gasp.GaspAcknowledged()
            | dying_gasp.GaspFailed()
        ):
            return Step(state=state, why="noted")
        case _:
            return Step(state=state, why=f"{type(event).__name__} means nothing while {state.phase.value}")


def _lived_on(state: RunState, event: WorkerExit | rejoin.RankCannotRejoin) -> bool:
    """Whether it is of a worker that outlived the incarnation in which it said so, or was seen to end."""
    plan = state.plan
    kept = frozenset() if plan is None else plan.kept
    return event.rank in kept & state.life.alive and event.incarnation < state.incarnation


def _notice(state: RunState, event: FaultNotice) -> Step:
    """The platform spoke: note it, restart for it or leave."""
    said, verdict = platform_notices.judge(state, event.notice, event.at_s)
    if event.known:
        said = platform_notices.known(state, event.notice)
        verdict = platform_notices.JustNoted(why="the platform had said so before this supervisor began")
    state = replace(state, run=replace(state.run, platform=said))
    match verdict:
        case platform_notices.JustNoted(why=why) if (
            state.phase is Phase.HOLDING and not platform_notices.hold(state)
        ):
            return begin.prepare(state, event.at_s, why)
        case platform_notices.JustNoted(why=why):
            return Step(state=state, why=why)
        case platform_notices.RestartAsked(why=why) if state.phase is Phase.HOLDING:
            return begin.withdraw(state, event.at_s, why)
        case platform_notices.RestartAsked(why=why):
            return drain.open_drain(state, _platform_incident(state, verdict, event.at_s), why)
        case platform_notices.LeaveAsked(ranks=ranks, why=why):
            incident = _platform_incident(state, verdict, event.at_s) if ranks else None
            return drain.leave(state, event.at_s, why, incident)


def _platform_incident(
    state: RunState, verdict: platform_notices.RestartAsked | platform_notices.LeaveAsked, now_s: float
) -> Incident:
    """No worker has died of it yet."""
    rank = verdict.ranks[0].rank if verdict.ranks else None
    return new_incident(state, now_s, Cause.PLATFORM, verdict.why, rank)
