"""Journal lines -> what the run cost. One pass, memory by incident and not by line.

Works on the lines as they stand, not on decoded events: a million of them take seconds, and a journal of a
newer version, with events or phases that are not known here, is still accounted for to the last second.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from faultrun.model.recovery import PARTS
from faultrun.observe.account_fault import OpenFault, left_well, list_of, number_of, timed, went_on
from faultrun.observe.account_life import FINISHED, OpenLife, may_count_anew
from faultrun.observe.account_model import (
    NOT_OVER,
    RUNNING_AGAIN,
    SUPERVISOR_LOST,
    TRAINING_AGAIN,
    Account,
    Fault,
    Life,
    Spending,
)
from faultrun.observe.account_saves import OpenSaves
from faultrun.observe.account_time import SPENT_IN, Away, Samples, Timeline

_RUNNING = "running"
_OVER = "finished"
_ENDING = frozenset({"draining", "killing", "sweeping"})


class Accountant:
    """Takes the lines of one journal in their order; ``account`` may be asked for at any time."""

    def __init__(self) -> None:
        self._away = Away()
        self._timeline = Timeline()
        self._samples = Samples()
        self._events: Counter[str] = Counter()
        self._refused: Counter[str] = Counter()
        self._lives: list[Life] = []
        self._faults: list[Fault] = []
        self._life: OpenLife | None = None
        self._left: tuple[OpenLife, float, str] | None = None
        """Its workers ended at that time, so; how far they were is known once their logs are read."""
        self._fault: OpenFault | None = None
        self._phase = ""
        self._now_s = 0.0
        self._high: int | None = None
        self._reports_steps = False
        self._step_s: float | None = None
        self._saves = OpenSaves()
        self._stops = 0
        self._restarts = 0
        self._workers = 0
        self._standbys: Counter[str] = Counter()
        self._silent_from_s: float | None = None
        self._ended: tuple[int, str] | None = None

    def take(self, line: Mapping[str, Any]) -> None:
        """Account for one line; what it does not know it only counts."""
        name = line.get("event")
        run_s = line.get("run_s")
        if not isinstance(name, str) or not isinstance(run_s, (int, float)):
            return
        self._events[name] += 1
        self._pass_time(self._away.at_s(line, float(run_s), name == "RunStarted"))
        known = _HANDLERS.get(name)
        if known is not None:
            known(self, line)
        phase = str(line.get("phase", self._phase))
        if phase != self._phase:
            self._enter(phase, line)

    def pass_over(self, name: str, count: int) -> None:
        """Count lines that were not worth taking: heartbeats between two others."""
        self._events[name] += max(0, count)

    def _pass_time(self, at_s: float) -> None:
        number = self._life.number if self._life is not None else -1
        self._timeline.advance(self._timeline.end_s + self._away.gap_s, Spending.AWAY, number)
        self._timeline.advance(at_s, self._kind(), number)
        self._now_s = self._timeline.end_s

    def _kind(self) -> Spending:
        life = self._life
        if self._phase == _RUNNING and (life is None or life.running_s is None):
            return Spending.SPAWN
        return SPENT_IN.get(self._phase, Spending.IDLE)

    @property
    def faults_over(self) -> int:
        """How many incidents ``account`` would show as over; cheap, for those who ask after every line."""
        return len(self._faults)

    @property
    def now_kind(self) -> Spending | None:
        """What the time since the last line is spent on; None before the first and after the last."""
        if self._phase in ("", _OVER):
            return None
        kind = self._kind()
        if kind is Spending.TRAINING and (self._life is None or self._life.first_step_s is None):
            return Spending.START if self._reports_steps else Spending.UNREPORTED
        return kind

    def account(self) -> Account:
        """What is known by the last line taken."""
        lives, faults = list(self._lives), list(self._faults)
        timeline = self._timeline.copy()
        if self._left is not None:
            lives.append(self._close_life(*self._left, timeline, faults))
        if self._life is not None:
            lives.append(self._close_life(self._life, self._now_s, "still running", timeline, faults))
        if self._reports_steps:
            timeline.rename(Spending.UNREPORTED, Spending.START)  # of lives before the first that reported
        if self._fault is not None:
            faults.append(self._fault.close(timeline, NOT_OVER))
        segments = timeline.segments()
        return Account(
            began_utc=self._away.began_utc,
            last_utc=self._away.last_utc,
            wall_s=timeline.end_s,
            spent=timeline.spent(),
            segments=segments,
            lives=tuple(lives),
            faults=tuple(faults),
            stops=self._stops,
            restarts=self._restarts,
            standbys=dict(self._standbys),
            saves=self._saves.close(),
            refused=dict(self._refused),
            steps=self._samples.points(),
            step_s=self._life.step_s if self._life is not None and self._life.step_s else self._step_s,
            high_step=self._high,
            events=dict(self._events),
            ended=self._ended,
            phase=self._phase,
        )

    def _enter(self, phase: str, line: Mapping[str, Any]) -> None:
        before, self._phase = self._phase, phase
        if phase not in _ENDING or before in _ENDING:
            return
        if line["event"] == "StopRequested":
            self._stops += 1
            self._end_life("stopped")
        elif left_well(line):
            self._end_life(FINISHED)
        else:
            began_s, step = self._stuck_since(line), self._reached()
            self._end_life(f"incident {len(self._faults) + (2 if self._fault is not None else 1)}")
            self._close_fault("failed again before its first step")
            self._fault = OpenFault(line, began_s, len(self._faults) + 1, step)

    def _reached(self) -> int | None:
        """How far this life is: nobody is further than where it began before its first step."""
        life = self._life
        if life is None or life.newest is not None or not self._reports_steps:
            return life.newest if life is not None else None
        return life.start_step

    def _stuck_since(self, line: Mapping[str, Any]) -> float:
        """When the fault began: a death is noticed at once, a hang long after the last step."""
        since_s, self._silent_from_s = self._silent_from_s, None
        if since_s is None or line["event"] != "HangDetected":
            return self._now_s
        number = self._life.number if self._life is not None else -1
        self._timeline.relabel(since_s, self._now_s, Spending.DETECT, number)
        return since_s

    def _close_fault(self, end: str) -> None:
        if self._fault is not None:
            self._faults.append(self._fault.close(self._timeline, end))
            self._fault = None

    def _end_life(self, end: str) -> None:
        if self._life is None:
            return
        self._settle()
        self._left, self._life = (self._life, self._now_s, end), None

    def _settle(self) -> None:
        """All is known of the life that has ended."""
        if self._left is None:
            return
        self._lives.append(self._close_life(*self._left, self._timeline, self._faults))
        self._step_s = self._left[0].step_s or self._step_s
        self._left = None

    def _close_life(
        self, life: OpenLife, end_s: float, end: str, timeline: Timeline, faults: list[Fault]
    ) -> Life:
        """Split its running time into start, recompute and training, and charge the fault before it."""
        recompute_s = life.settle(timeline, end_s, self._step_s, self._reports_steps)
        for at, fault in enumerate(faults):
            if life.after_fault == fault.number:
                faults[at] = went_on(fault, recompute_s, life.start_step)
        return life.close(end_s, self._workers, end, reports_steps=self._reports_steps)

    def _plan(self, line: Mapping[str, Any]) -> None:
        plan = line.get("plan")
        plan = plan if isinstance(plan, dict) else {}
        point = plan.get("point")
        point = point if isinstance(point, dict) else {}
        self._end_life("ended")
        self._settle()
        number = number_of(plan.get("incarnation"))
        after = self._fault.number if self._fault is not None else None
        resumed = number_of(point.get("global_step"))
        self._life = OpenLife(
            number=-1 if number is None else number,
            begin_s=self._now_s,
            resumed_from=str(point.get("path", "")),
            resumed_step=resumed,
            high_before=self._high,
            after_fault=after,
        )
        if self._fault is not None:
            self._fault.resumes(resumed, str(point.get("path", "")))
        if plan.get("reason") == "fault":
            self._restarts += 1

    def _suspected(self, line: Mapping[str, Any]) -> None:
        suspicion = line.get("suspicion")
        silent_s = suspicion.get("silent_s") if isinstance(suspicion, dict) else None
        if isinstance(silent_s, (int, float)):
            self._silent_from_s = max(0.0, self._now_s - max(0.0, float(silent_s)))

    def _dismissed(self, _line: Mapping[str, Any]) -> None:
        self._silent_from_s = None

    def _standby(self, line: Mapping[str, Any]) -> None:
        self._standbys[str(line.get("state", ""))[:20]] += 1

    def _started(self, line: Mapping[str, Any]) -> None:
        self._workers = max(self._workers, len(list_of(line, "ranks")))
        if self._life is not None:
            self._life.running_s = self._now_s
        if not self._reports_steps:
            self._close_fault(RUNNING_AGAIN)

    def _first_step(self, line: Mapping[str, Any]) -> None:
        self._reports_steps = True
        step = number_of(line.get("step"))
        life = self._life
        if life is None:  # the log of a life that has ended was read: nothing trains again
            return
        life.reports = life.reports or line.get("event") == "FirstStep"
        life.uncounted = may_count_anew(line)
        step = None if life.uncounted else step
        life.first_step(self._timeline, self._now_s, step)
        self._stepped(step)
        self._close_fault(TRAINING_AGAIN)

    def _timed(self, line: Mapping[str, Any]) -> None:
        """Said right after the line that closed the fault."""
        parts = {name: line.get(name) for name in PARTS}
        times = {name: float(took_s) for name, took_s in parts.items() if isinstance(took_s, (int, float))}
        if self._faults:
            self._faults[-1] = timed(self._faults[-1], times, line.get("total_s"))

    def _checked(self, line: Mapping[str, Any]) -> None:
        """The first step was laid beside the recovery point."""
        if self._faults and self._life is not None and self._life.after_fault == self._faults[-1].number:
            self._faults[-1] = replace(self._faults[-1], resume=str(line.get("because") or ""))

    def _heartbeat(self, line: Mapping[str, Any]) -> None:
        known = (number_of(one.get("step")) for one in list_of(line, "steps") if isinstance(one, dict))
        self._stepped(max((step for step in known if step is not None), default=None))

    def _stepped(self, step: int | None) -> None:
        if step is None:
            return
        self._high = step if self._high is None else max(self._high, step)
        self._samples.add(self._now_s, step)
        if self._life is not None:
            self._life.stepped(self._now_s, step)

    def _drained(self, line: Mapping[str, Any]) -> None:
        """The final judgement on the incident travels in what is then told to the agreement."""
        for action in list_of(line, "actions"):
            fact = action.get("fact") if isinstance(action, dict) else None
            incident = fact.get("incident") if isinstance(fact, dict) else None
            if isinstance(incident, dict) and self._fault is not None:
                self._fault.judged(incident)
        notes = (one.get("logged_step") for one in list_of(line, "notes") if isinstance(one, dict))
        self._logged(max((step for step in map(number_of, notes) if step is not None), default=None))

    def _logged(self, step: int | None) -> None:
        """Where ranks do not report, their logs tell how far they were; the life has ended by now."""
        if step is not None and self._left is not None and not self._left[0].reports:
            life, end_s, _ = self._left
            life.stepped(end_s, step)
            self._high = step if self._high is None else max(self._high, step)
        self._settle()

    def _chosen(self, line: Mapping[str, Any]) -> None:
        refused = [one for one in list_of(line, "refused") if isinstance(one, dict)]
        # What never got its final name was never a candidate: that is how a careful writer is interrupted.
        refused = [one for one in refused if not str(one.get("why", "")).startswith("never finished")]
        for one in refused:
            self._refused[str(one.get("why", ""))[:80]] += 1
        if self._fault is not None:
            self._fault.refused = len(refused)
        self._drained(line)

    def _gasp(self, line: Mapping[str, Any]) -> None:
        self._saves.heard(line)
        if self._fault is not None and line.get("event") == "GaspSaved":
            self._fault.saved += 1

    def _run_started(self, _line: Mapping[str, Any]) -> None:
        if self._life is not None:
            self._end_life(SUPERVISOR_LOST)
        self._settle()
        self._close_fault(SUPERVISOR_LOST)
        self._ended = None

    def _finished(self, line: Mapping[str, Any]) -> None:
        code = number_of(line.get("exit_code"))
        why = str(line.get("because") or line.get("why") or "")
        self._ended = (-1 if code is None else code, why)
        self._end_life("ended")
        self._settle()
        self._close_fault("the run ended")


_HANDLERS = {
    "RunStarted": Accountant._run_started,
    "PlanAdopted": Accountant._plan,
    "HangSuspected": Accountant._suspected,
    "HangDismissed": Accountant._dismissed,
    "StandbyChanged": Accountant._standby,
    "IncarnationStarted": Accountant._started,
    "FirstStep": Accountant._first_step,
    "FirstStepLogged": Accountant._first_step,
    "RecoveryTimed": Accountant._timed,
    "ResumeChecked": Accountant._checked,
    "Heartbeat": Accountant._heartbeat,
    "Drained": Accountant._drained,
    "RecoveryPointChosen": Accountant._chosen,
    "NothingWhole": Accountant._chosen,
    "GaspRequested": Accountant._gasp,
    "GaspSaved": Accountant._gasp,
    "GaspVerified": Accountant._gasp,
    "GaspFailed": Accountant._gasp,
    "TimerFired": Accountant._gasp,
    "RunFinished": Accountant._finished,
}
