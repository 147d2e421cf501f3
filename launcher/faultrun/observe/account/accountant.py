"""Journal lines -> what the run cost. One pass, memory by incident and not by line.

Times are seconds since the run began: the journal's ``run_s``, and by the wall clock the time in which no
supervisor lived. A journal of a newer version, with events or phases that are not known here, is still
accounted for to the last second.
"""

from collections.abc import Sequence
from copy import copy, deepcopy
from dataclasses import replace

from faultrun.core.recovery.resume_verdict import StartPlace, logged_place
from faultrun.core.recovery_timing import silence_s, suspicion_after
from faultrun.journal.codec import wire_name
from faultrun.journal.lines import JournalLine
from faultrun.model.events import (
    Drained,
    FaultNotice,
    FirstStep,
    Heartbeat,
    IncarnationStarted,
    NothingWhole,
    PlanAdopted,
    RecoveryPointChosen,
    RunFinished,
    RunStarted,
    Timer,
    TimerFired,
    WorkerExit,
    WorkersLost,
    WorkerStarted,
)
from faultrun.model.incident import Aftermath
from faultrun.model.observed.agreement import IncarnationOver, PlanElsewhere
from faultrun.model.observed.dying_gasp import GaspSaved
from faultrun.model.observed.evidence import DeathNote
from faultrun.model.observed.hang import HangDetected, HangSuspected, PauseOver
from faultrun.model.observed.recovery import FirstStepLogged, RecoveryTimed, ResumeChecked
from faultrun.model.observed.rejoin import RankCanRejoin
from faultrun.model.observed.standby import StandbyChanged
from faultrun.model.plan import Plan, Reason
from faultrun.model.run import Phase
from faultrun.model.stop import StopRequested, StopSource
from faultrun.observe.account.fault_chains import CUT_SHORT
from faultrun.observe.account.incarnations import (
    FINISHED,
    HEALED,
    STILL_RUNNING,
    STOPPED,
    SUPERVISOR_LOST,
    IncarnationRecord,
)
from faultrun.observe.account.records import (
    ELSEWHERE,
    FAILED_AGAIN,
    NOT_OVER,
    RUN_ENDED,
    RUN_STOPPED,
    RUNNING_AGAIN,
    TRAINING_AGAIN,
    Account,
    IncidentRecord,
    incident_record,
)
from faultrun.observe.account.timeline import SPENT_IN, AccountClock, Samples, Spending, Timeline
from faultrun.observe.run_view import RunView

_NOTICE = wire_name(FaultNotice)
_ENDING = (Phase.REPLACING, Phase.DRAINING, Phase.KILLING, Phase.SWEEPING)


class Accountant:
    """Takes the lines of one journal in their order; ``account`` may be asked for at any time."""

    def __init__(self) -> None:
        self.view = RunView()
        self._clock = AccountClock()
        self._timeline = Timeline()
        self._samples = Samples()
        self._account = Account()
        self._life: IncarnationRecord | None = None
        self._left: IncarnationRecord | None = None
        """Its workers have ended; how far they were is known once their logs are read."""
        self._fault: IncidentRecord | None = None
        self._now_s = self._seen_s = 0.0
        """When the supervisor before wrote its last line."""
        self._reports_steps = self._blind = False
        self._left_off: StartPlace | None = None
        self._every = 1
        self._workers = 0
        self._suspected: HangSuspected | None = None

    def take(self, line: JournalLine) -> None:
        """Account for one line; what it does not know it only counts."""
        self._account.events[line.name] += 1 + line.beats_before
        self._pass_time(line)
        before = self.view.phase
        self.view.take(line)
        self._account.saves.heard(line)
        self._heard(line)
        if line.phase in _ENDING and before not in _ENDING:
            self._workers_end(line)
        self._suspected = suspicion_after(self._suspected, line.event)
        if line.judged is not None and self._fault is not None:
            self._fault.judged(line.judged)

    def _heard(self, line: JournalLine) -> None:  # noqa: C901, PLR0912  one row a case
        match line.event:
            case RunStarted():
                self._end_life(SUPERVISOR_LOST)
                self._close_fault(SUPERVISOR_LOST)
            case PlanAdopted(plan=plan) if plan is self.view.plan:
                self._planned(plan, line)
            case PlanElsewhere(plan=plan):
                self._told_of(plan.aftermath, line)
                if line.judged is not None and self._fault is not None:
                    self._fault.judged(line.judged)
                self._close_fault(ELSEWHERE)
            case WorkersLost():
                self._found_lost(line.event)
            case StandbyChanged(state=state):
                self._account.standbys[state.value] += 1
            case WorkerStarted(standby=True) if self._life is not None:
                self._life.standbys += 1
            case IncarnationStarted(ranks=ranks):
                self._runs(len(ranks))
            case FirstStep() | FirstStepLogged():
                self._trains(line.event)
            case Heartbeat(steps=steps) if self._is_of_now(line.event):
                self._stepped(max((one.step for one in steps), default=None))
            case PauseOver(all_stood=True, paused_s=paused_s) if self._life is not None:
                number, until_s = self._life.number, self._now_s
                self._timeline.relabel(until_s - paused_s, until_s, Spending.IDLE, number)
            case RecoveryTimed() if self._account.faults:
                self._account.faults[-1].timed(line.event)
            case ResumeChecked(why=why) if self._account.faults and self._life is not None:
                if self._life.after_fault == self._account.faults[-1].number:
                    self._account.faults[-1].resume = why
            case StopRequested() if self._fault is not None and self._life is None:
                # Its workers are still ending: it may be the first sign of this stop.
                self._fault.is_judged = False
            case GaspSaved() if self._fault is not None:
                self._fault.saved += 1
            case Drained(notes=notes):
                self._logged(notes)
            case RecoveryPointChosen() | NothingWhole():
                self._chose(line.event)
            case RunFinished():
                if line.judged is not None and self._fault is not None:
                    self._fault.judged(line.judged)
                self._end_life("ended")
                self._settle()
                self._close_fault(RUN_STOPPED if line.event.stopped else RUN_ENDED)

    def _pass_time(self, line: JournalLine) -> None:
        at_s, gap_s = self._clock.passes(line)
        self._seen_s = self._timeline.end_s if isinstance(line.event, RunStarted) else self._seen_s
        number = self._life.number if self._life is not None else -1
        self._timeline.advance(self._timeline.end_s + gap_s, Spending.AWAY, number)
        self._timeline.advance(at_s, self._kind(), number)
        self._now_s = self._timeline.end_s

    def _kind(self) -> Spending:
        phase = self.view.phase
        if phase is Phase.RUNNING and (self._life is None or self._life.running_s is None):
            return Spending.SPAWN
        return SPENT_IN.get(phase, Spending.IDLE) if phase is not None else Spending.IDLE

    def account(self, *, passed_s: float = 0.0, step: int | None = None) -> Account:
        """What is known by the last line taken, as if all that is open ended there.

        Or ``passed_s`` later: a run goes on between lines, and its furthest rank is at ``step`` by then.
        """
        now, known = copy(self), self._account
        now._account = replace(known, lives=list(known.lives), faults=list(known.faults))
        now._timeline = self._timeline.copy()
        now._goes_on(passed_s, step)
        now._end_life(STILL_RUNNING)
        now._settle()
        now._close_fault(NOT_OVER)
        if self._reports_steps:
            # Of lives before the first that reported.
            lives = now._account.lives = [life.in_hindsight() for life in now._account.lives]
            mute = {life.number for life in lives if life.first_step_s is None}
            now._timeline.rename(Spending.UNREPORTED, Spending.START, mute)
        return replace(
            now._account,
            restarts=self.view.restarts,
            began_utc=self._clock.began_utc,
            last_utc=self._clock.last_utc,
            wall_s=now._timeline.end_s,
            spent=dict.fromkeys(Spending, 0.0) | now._timeline.within(0.0),
            segments=tuple(now._timeline.segments),
            standbys=known.standbys.copy(),
            saves=deepcopy(known.saves),
            refused=known.refused.copy(),
            steps=self._samples.points(),
            events=known.events.copy(),
            ended=self.view.ended,
            phase=self.view.phase,
        )

    def _goes_on(self, passed_s: float, step: int | None) -> None:
        if self.view.last is None or self.view.phase is Phase.FINISHED:
            return
        self._life = life = None if self._life is None else replace(self._life)
        self._timeline.advance(self._now_s + passed_s, self._kind(), -1 if life is None else life.number)
        self._now_s = self._timeline.end_s
        if life is not None and life.first_step_s is not None and step is not None:
            life.stepped(self._now_s, step)
            self._account.high_step = max(step, self._account.high_step or step)

    def _workers_end(self, line: JournalLine) -> None:
        match line.event:
            case StopRequested():
                self._account.stops += 1
                self._end_life(STOPPED)
            case IncarnationOver(stop=StopSource()):
                self._account.stops += 1
                self._end_life(STOPPED)
            case WorkerExit(clean=True):
                self._end_life(FINISHED)
            case TimerFired(timer=Timer.HEAL) | RankCanRejoin(waits=True) if line.phase is Phase.REPLACING:
                self._end_life(HEALED)
            case _:
                began_s, life = self._stuck_since(line), self._life
                step = None if life is None else life.now_at(reports_steps=self._reports_steps)
                number = len(self._account.faults) + (2 if self._fault is not None else 1)
                self._end_life(f"incident {number}")
                self._close_fault(FAILED_AGAIN)
                self._fault = incident_record(line, number, began_s, step)

    def _stuck_since(self, line: JournalLine) -> float:
        """When the fault began: a death is noticed at once, a hang long after the last step."""
        if not isinstance(line.event, HangDetected):
            return self._now_s
        since_s = max(0.0, self._now_s - silence_s(line.event, self._suspected))
        if self._life is not None:
            self._life.stuck_s = since_s
            self._timeline.relabel(since_s, self._now_s, Spending.DETECT, self._life.number)
        return since_s

    def _close_fault(self, end: str) -> None:
        fault, self._fault = self._fault, None
        if fault is None:
            return
        # It was not judged: the platform asked all to leave, or it was the first sign of a stop.
        was_stop = end == STOPPED or (self.view.stopping and not fault.is_judged)
        if self._account.lives and (fault.cause == _NOTICE or was_stop):
            self._account.stops += 1
            self._account.lives[-1] = replace(self._account.lives[-1], end=STOPPED)
            return
        self._account.faults.append(replace(fault))
        self._account.faults[-1].closed(self._timeline, end)

    def _end_life(self, end: str) -> None:
        if self._life is not None:
            self._settle()
            end_s = self._seen_s if end == SUPERVISOR_LOST else self._now_s
            self._left = replace(self._life, end_s=end_s, end=end, workers=self._workers)
            self._life = None

    def _settle(self) -> None:
        """All is known of the life that has ended: split its running time, charge the fault before it."""
        if self._left is None:
            return
        life, self._left = replace(self._left), None
        self._blind |= not life.known_end
        recompute_s = life.settle(self._timeline, self._account.step_s, reports_steps=self._reports_steps)
        self._account.followed(life, recompute_s)
        self._account.step_s = life.step_s or self._account.step_s

    def _told_of(self, aftermath: Aftermath | None, line: JournalLine) -> None:
        """Count an incident of which there is the other nodes' word alone: no rank of this one was in it."""
        faults = self._account.faults
        goes_on = self._fault is not None or any(one.end in CUT_SHORT for one in faults[-1:])
        if aftermath and not goes_on and aftermath.incident.number not in {one.number for one in faults}:
            self._fault = incident_record(line, aftermath.incident.number, self._now_s, None)
            self._fault.judged(aftermath.incident)

    def _planned(self, plan: Plan, line: JournalLine) -> None:
        self._end_life("ended")
        self._settle()
        self._told_of(plan.aftermath, line)
        faults = self._account.faults
        if self._fault is None and faults and faults[-1].end in CUT_SHORT:
            self._fault = replace(faults[-1], cut=faults.pop().end)  # it goes on, until training does
        elif self._fault and not self._fault.cut and plan.reason is Reason.CONTINUED and not plan.aftermath:
            self._close_fault(STOPPED)  # what this node took for one, the nodes together know to be a stop
        self._life = IncarnationRecord(
            number=plan.incarnation,
            begin_s=self._now_s,
            resumed_from=plan.point.path if plan.point is not None else "",
            resumed_step=plan.point.global_step if plan.point is not None else None,
            high_before=self._account.high_step,
            blind=self._blind,
            left_off=self._left_off,
            every=self._every,
            stayed=bool(plan.kept),
            reports=bool(plan.kept) and any(one.reports for one in self._account.lives[-1:]),
            after_fault=self._fault.number if self._fault is not None else None,
        )
        if self._fault is not None:
            self._fault.resumes_with(plan)

    def _runs(self, workers: int) -> None:
        self._workers = max(self._workers, workers)
        if self._life is not None:
            self._life.running_s = self._now_s
        if not self._reports_steps:
            self._close_fault(RUNNING_AGAIN)

    def _trains(self, first: FirstStep | FirstStepLogged) -> None:
        self._reports_steps = True
        if self._life is not None and self._is_of_now(first):
            self._stepped(self._life.begins(first, self._timeline, self._now_s))
            self._close_fault(TRAINING_AGAIN)
            self._trains_late(self._life)

    def _is_of_now(self, event: FirstStep | FirstStepLogged | Heartbeat) -> bool:
        """Whether it tells of the newest life: the log of one before may be read after that has begun."""
        return self._life is None or self._life.number == event.incarnation

    def _trains_late(self, life: IncarnationRecord) -> None:
        """Steps were not expected, so the recovery was over when the workers ran: now it is."""
        fault = self._account.faults[-1] if self._account.faults else None
        if fault is not None and fault.end == RUNNING_AGAIN and fault.number == life.after_fault:
            self._account.faults[-1] = replace(fault)
            self._account.faults[-1].closed(self._timeline, TRAINING_AGAIN)

    def _stepped(self, step: int | None) -> None:
        if step is None:
            return
        if self._life is not None:
            self._account.high_step = max(step, self._account.high_step or step)
            self._samples.add(self._now_s, step)
            self._life.stepped(self._now_s, step)
        elif self._left is not None and self._left.end == STOPPED:
            self._reached_before(step)  # told to save, all go on to the step that is saved

    def _logged(self, notes: Sequence[DeathNote]) -> None:
        """Where ranks do not report, their logs tell how far they were; the life has ended by now."""
        step = max((one.logged_step for one in notes if one.logged_step is not None), default=None)
        if self._left is not None and not self._left.reports:
            for note in notes:
                if (place := logged_place(note)) is not None:
                    self._told(place, note.logged_every)
            self._left.unread = bool(notes) and step is None and self._left.first is not None
            self._reached_before(step)
        self._settle()

    def _told(self, place: StartPlace, every: int) -> None:
        """A log came so far, and tells one step in ``every``."""
        if self._left is not None:
            self._left.every = max(self._left.every, every) if every else self._left.every
            self._left.last = max(self._left.last or place, place)
        self._every = max(self._every, every) if every else 0
        self._left_off = max(self._left_off or place, place)

    def _found_lost(self, found: WorkersLost) -> None:
        """The workers of a lost supervisor trained on for a while; how far was not written until now."""
        if (life := self._left) is None:
            return
        if found.alive_s is not None:
            alive_s = min(self._now_s, self._clock.of_run_s(found.alive_s))
            self._timeline.relabel(life.end_s, alive_s, Spending.TRAINING, life.number, Spending.AWAY)
            life.end_s = max(life.end_s, alive_s)
        life.unread = False
        for one in found.steps if found.by_log else ():
            self._told(StartPlace(step=one.step, epoch=one.epoch, by_log=True), self._every)
        self._reached_before(max((one.step for one in found.steps), default=None))
        self._settle()

    def _reached_before(self, step: int | None) -> None:
        """How far the life was that has ended."""
        if step is not None and self._left is not None:
            self._left.stepped(self._left.end_s, step)
            self._account.high_step = max(step, self._account.high_step or step)

    def _chose(self, event: RecoveryPointChosen | NothingWhole) -> None:
        # What never got its final name was never a candidate: that is how a careful writer is interrupted.
        whys = [one.why for one in event.refused if not one.why.startswith("never finished")]
        self._account.refused.update(why[:80] for why in whys)
        if self._fault is not None:
            self._fault.looked_for(event, len(whys))
        self._settle()
