"""Journal lines -> what the run cost. One pass, memory by incident and not by line.

Times are seconds since the run began: the journal's ``run_s``, and by the wall clock the time in which no
supervisor lived. A journal of a newer version, with events or phases that are not known here, is still
accounted for to the last second.
"""

from copy import copy, deepcopy
from dataclasses import replace

from faultrun.journal.lines import JournalLine
from faultrun.model.checkpoint import Refusal
from faultrun.model.events import (
    Drained,
    FirstStep,
    Heartbeat,
    IncarnationStarted,
    NothingWhole,
    PlanAdopted,
    RecoveryPointChosen,
    RunFinished,
    RunStarted,
    WorkerExit,
)
from faultrun.model.gasp import GaspSaved
from faultrun.model.hang import HangDetected, HangDismissed, HangSuspected
from faultrun.model.plan import Plan, Reason
from faultrun.model.recovery import FirstStepLogged, RecoveryTimed, ResumeChecked
from faultrun.model.run import Phase
from faultrun.model.standby import StandbyChanged
from faultrun.model.stop import StopRequested
from faultrun.observe.account.records import (
    FINISHED,
    NOT_OVER,
    RUNNING_AGAIN,
    SUPERVISOR_LOST,
    TRAINING_AGAIN,
    Account,
    IncarnationRecord,
    IncidentRecord,
    incident_record,
)
from faultrun.observe.account.timeline import (
    AccountClock,
    Samples,
    Spending,
    Timeline,
)
from faultrun.observe.view import RunView

_SPENT_IN = {
    Phase.NEW: Spending.CHOOSE,
    Phase.SURVEYING: Spending.CHOOSE,
    Phase.AWAITING_PLAN: Spending.CHOOSE,
    Phase.BACKING_OFF: Spending.BACKOFF,
    Phase.HOLDING: Spending.IDLE,
    Phase.PREPARING: Spending.SPAWN,
    Phase.AWAITING_GO: Spending.SPAWN,
    Phase.RUNNING: Spending.TRAINING,
    Phase.DRAINING: Spending.DRAIN,
    Phase.KILLING: Spending.DRAIN,
    Phase.SWEEPING: Spending.DRAIN,
}
"""What a moment of each phase is spent on, until more is known."""

_ENDING = (Phase.DRAINING, Phase.KILLING, Phase.SWEEPING)


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
        self._now_s = 0.0
        self._reports_steps = False
        self._workers = 0
        self._silent_from_s: float | None = None

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
        if line.judged is not None and self._fault is not None:
            self._fault.judged(line.judged)

    def _heard(self, line: JournalLine) -> None:  # noqa: C901, PLR0912  one row a case
        match line.event:
            case RunStarted():
                self._taken_up()
            case PlanAdopted(plan=plan):
                self._planned(plan)
            case HangSuspected(suspicion=suspicion):
                self._silent_from_s = max(0.0, self._now_s - max(0.0, suspicion.silent_s))
            case HangDismissed():
                self._silent_from_s = None
            case StandbyChanged(state=state):
                self._account.standbys[state.value] += 1
            case IncarnationStarted(ranks=ranks):
                self._runs(len(ranks))
            case FirstStep() | FirstStepLogged():
                self._trains(line.event)
            case Heartbeat(steps=steps):
                self._stepped(max((one.step for one in steps), default=None))
            case RecoveryTimed() if self._account.faults:
                self._account.faults[-1].timed(line.event)
            case ResumeChecked(why=why) if self._account.faults and self._life is not None:
                if self._life.after_fault == self._account.faults[-1].number:
                    self._account.faults[-1].resume = why
            case GaspSaved() if self._fault is not None:
                self._fault.saved += 1
            case Drained(notes=notes):
                steps_logged = (note.logged_step for note in notes)
                self._logged(max((step for step in steps_logged if step is not None), default=None))
            case RecoveryPointChosen(refused=refused) | NothingWhole(refused=refused):
                self._chose(refused)
            case RunFinished():
                self._end_life("ended")
                self._settle()
                self._close_fault("the run ended")

    def _pass_time(self, line: JournalLine) -> None:
        at_s, gap_s = self._clock.passes(line)
        number = self._life.number if self._life is not None else -1
        self._timeline.advance(self._timeline.end_s + gap_s, Spending.AWAY, number)
        self._timeline.advance(at_s, self._kind(), number)
        self._now_s = self._timeline.end_s

    def _kind(self) -> Spending:
        phase = self.view.phase
        if phase is Phase.RUNNING and (self._life is None or self._life.running_s is None):
            return Spending.SPAWN
        return _SPENT_IN.get(phase, Spending.IDLE) if phase is not None else Spending.IDLE

    @property
    def faults_over(self) -> int:
        """How many incidents ``account`` would show as over; cheap, for those who ask after every line."""
        return len(self._account.faults)

    @property
    def now_kind(self) -> Spending | None:
        """What the time since the last line is spent on; None before the first and after the last."""
        if self.view.last is None or self.view.phase is Phase.FINISHED:
            return None
        kind = self._kind()
        if kind is Spending.TRAINING and (self._life is None or self._life.first_step_s is None):
            return Spending.START if self._reports_steps else Spending.UNREPORTED
        return kind

    def account(self) -> Account:
        """What is known by the last line taken, as if all that is open ended there."""
        now, known = copy(self), self._account
        now._account = replace(known, lives=list(known.lives), faults=list(known.faults))
        now._timeline = self._timeline.copy()
        now._end_life("still running")
        now._settle()
        now._close_fault(NOT_OVER)
        if self._reports_steps:
            # Of lives before the first that reported.
            now._timeline.rename(Spending.UNREPORTED, Spending.START)
        return replace(
            now._account,
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

    def _workers_end(self, line: JournalLine) -> None:
        match line.event:
            case StopRequested():
                self._account.stops += 1
                self._end_life("stopped")
            case WorkerExit(clean=True):
                self._end_life(FINISHED)
            case _:
                began_s, step = self._stuck_since(line), self._reached()
                number = len(self._account.faults) + (2 if self._fault is not None else 1)
                self._end_life(f"incident {number}")
                self._close_fault("failed again before its first step")
                self._fault = incident_record(line, number, began_s, step)

    def _reached(self) -> int | None:
        """How far this life is: nobody is further than where it began before its first step."""
        life = self._life
        if life is None or life.reached_step is not None or not self._reports_steps:
            return life.reached_step if life is not None else None
        return life.start_step

    def _stuck_since(self, line: JournalLine) -> float:
        """When the fault began: a death is noticed at once, a hang long after the last step."""
        since_s, self._silent_from_s = self._silent_from_s, None
        if since_s is None or not isinstance(line.event, HangDetected):
            return self._now_s
        number = self._life.number if self._life is not None else -1
        self._timeline.relabel(since_s, self._now_s, Spending.DETECT, number)
        return since_s

    def _close_fault(self, end: str) -> None:
        if self._fault is not None:
            self._account.faults.append(replace(self._fault))
            self._account.faults[-1].closed(self._timeline, end)
            self._fault = None

    def _end_life(self, end: str) -> None:
        if self._life is not None:
            self._settle()
            self._left = replace(self._life, end_s=self._now_s, end=end, workers=self._workers)
            self._life = None

    def _settle(self) -> None:
        """All is known of the life that has ended: split its running time, charge the fault before it."""
        if self._left is None:
            return
        life, self._left = replace(self._left), None
        recompute_s = life.settle(self._timeline, self._account.step_s, reports_steps=self._reports_steps)
        for at, fault in enumerate(self._account.faults):
            if life.after_fault == fault.number:
                self._account.faults[at] = replace(fault)
                self._account.faults[at].went_on(recompute_s, life.start_step)
        self._account.lives.append(life)
        self._account.step_s = life.step_s or self._account.step_s

    def _planned(self, plan: Plan) -> None:
        self._end_life("ended")
        self._settle()
        self._life = IncarnationRecord(
            number=plan.incarnation,
            begin_s=self._now_s,
            resumed_from=plan.point.path if plan.point is not None else "",
            resumed_step=plan.point.global_step if plan.point is not None else None,
            high_before=self._account.high_step,
            after_fault=self._fault.number if self._fault is not None else None,
        )
        if self._fault is not None:
            self._fault.resumes_with(plan)
        self._account.restarts += plan.reason is Reason.FAULT

    def _runs(self, workers: int) -> None:
        self._workers = max(self._workers, workers)
        if self._life is not None:
            self._life.running_s = self._now_s
        if not self._reports_steps:
            self._close_fault(RUNNING_AGAIN)

    def _trains(self, first: FirstStep | FirstStepLogged) -> None:
        self._reports_steps = True
        if self._life is not None:  # else the log of a life that has ended was read: nothing trains again
            self._stepped(self._life.begins(first, self._timeline, self._now_s))
            self._close_fault(TRAINING_AGAIN)

    def _stepped(self, step: int | None) -> None:
        if step is None:
            return
        self._account.high_step = max(step, self._account.high_step or step)
        self._samples.add(self._now_s, step)
        if self._life is not None:
            self._life.stepped(self._now_s, step)

    def _logged(self, step: int | None) -> None:
        """Where ranks do not report, their logs tell how far they were; the life has ended by now."""
        if step is not None and self._left is not None and not self._left.reports:
            self._left.stepped(self._left.end_s, step)
            self._account.high_step = max(step, self._account.high_step or step)
        self._settle()

    def _chose(self, refused: tuple[Refusal, ...]) -> None:
        # What never got its final name was never a candidate: that is how a careful writer is interrupted.
        whys = [one.why for one in refused if not one.why.startswith("never finished")]
        self._account.refused.update(why[:80] for why in whys)
        if self._fault is not None:
            self._fault.refused = len(whys)
        self._settle()

    def _taken_up(self) -> None:
        self._end_life(SUPERVISOR_LOST)
        self._settle()
        self._close_fault(SUPERVISOR_LOST)
