"""A run's numbers counted anew from the raw lines of its journal, by nothing of the product.

Short and plain, so that it can be read against ``docs/watching.md``: whoever doubts the account asks this.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from typing import Any

Line = Mapping[str, Any]
_ENDING = ("draining", "killing", "sweeping")


@dataclass(slots=True)
class Counted:
    """One life: where it began, when it did its first step, how far it came, when it stopped training."""

    number: int
    start: int
    first: int = 0
    first_s: float | None = None
    reached: int | None = None
    end_s: float | None = None
    ran: bool = False
    failed: bool = False

    def came_to(self, steps: Iterable[int | None]) -> None:
        known = [step for step in steps if step is not None]
        if known:
            self.reached = max([*known, self.reached or 0])


@dataclass(frozen=True, slots=True, kw_only=True)
class Recount:
    """What every outlet must say. ``recoveries_s`` by incident; None: it was not seen to train again."""

    wall_s: float
    incidents: int
    restarts: int
    recoveries_s: Mapping[int, float]
    lost_steps: int | None
    newest_step: int | None
    productive_s: float | None
    exit_code: int | None
    saves: int


def recount(lines: Sequence[Line]) -> Recount:
    """From the first line to the last."""
    lives, lost, productive_s = _lives(lines), 0, 0.0
    known = True
    high: int | None = None
    seen = any(life.first_s is not None for life in lives)
    usual_s = 0.0
    for life in lives:
        twice = 0
        if life.ran and high is not None and life.reached is not None:
            twice = max(0, min(life.reached, high) - life.start)
        lost += twice
        known = known and (seen or not life.ran)
        if life.first_s is not None and life.end_s is not None and life.reached is not None:
            trained_s, done = life.end_s - life.first_s, life.reached - life.first
            again = 0 if high is None else max(0, high - life.first)
            again_s = trained_s * min(1.0, again / done) if done else min(trained_s, again * usual_s)
            productive_s += trained_s - again_s
            usual_s = trained_s / done if done else usual_s
        if life.reached is not None:
            high = max(life.reached, high or 0)
    finished = [line for line in lines if line["event"] == "RunFinished"]
    return Recount(
        wall_s=lines[-1]["run_s"] - lines[0]["run_s"] + _uncounted_s(lines),
        incidents=len(_incidents(lines)),
        restarts=_restarts(lines),
        recoveries_s=_recoveries(lines),
        lost_steps=lost if known or len(lives) < 2 else None,
        newest_step=next((life.reached for life in reversed(lives) if life.reached is not None), None),
        productive_s=productive_s if known else None,
        exit_code=finished[-1]["exit_code"] if lines[-1]["phase"] == "finished" else None,
        saves=sum(line["event"] == "GaspSaved" for line in lines),
    )


def _uncounted_s(lines: Sequence[Line]) -> float:
    """Time without a supervisor that ``run_s`` did not count in journals of an earlier version."""
    gaps_s = [
        (_utc(after) - _utc(before)).total_seconds() - float(after["run_s"] - before["run_s"])
        for before, after in pairwise(lines)
        if after["event"] == "RunStarted"
    ]
    return sum(gap_s for gap_s in gaps_s if gap_s > 1)  # less is how long a line took to be written


def _utc(line: Line) -> datetime:
    return datetime.fromisoformat(line["at_utc"].replace("Z", "+00:00"))


def _planned(line: Line) -> Mapping[str, Any]:
    plan: Mapping[str, Any] = line.get("plan") or {}
    return plan if line["event"] == "PlanAdopted" else {}


def _restarts(lines: Sequence[Line]) -> int:
    """Of a node alone: plans after a fault, of which each answers an incident more."""
    plans = [plan for line in lines if (plan := _planned(line))]
    known, count = 0, 0
    for plan in plans:
        told = plan["ledger"]["incidents"]
        count += plan.get("reason") == "fault" and told > known
        known = told
    return count


def _lives(lines: Sequence[Line]) -> list[Counted]:
    lives: list[Counted] = []
    silent_from_s: float | None = None
    before_s = 0.0
    for line in lines:
        at_s = line["run_s"]
        if plan := _planned(line):
            lives.append(Counted(plan["incarnation"], (plan.get("point") or {}).get("global_step") or 0))
        elif lives:
            _live(lives[-1], line)
            if line["event"] == "HangSuspected":
                silent_from_s = at_s - line["suspicion"]["silent_s"]
            if line["event"] == "RunStarted" and lives[-1].end_s is None:
                lives[-1].end_s = before_s
            if lives[-1].end_s is None and line["phase"] in _ENDING:
                lives[-1].failed = line["event"] != "StopRequested"
                lives[-1].end_s = silent_from_s if line["event"] == "HangDetected" else at_s
        before_s = at_s
    if lives and lives[-1].end_s is None:
        lives[-1].end_s = before_s
    return lives


def _live(life: Counted, line: Line) -> None:
    match line["event"]:
        case "IncarnationStarted":
            life.ran = True
        case "FirstStep" | "FirstStepLogged" if life.end_s is None and life.first_s is None:
            life.first_s, life.first = line["run_s"], line["step"]
            life.start = min(life.start, (line.get("began") or line["step"]) - 1)
            life.came_to([line["step"]])
        case "Heartbeat" | "WorkersLost" if not life.failed:
            life.came_to([one["step"] for one in line["steps"]])
            if line.get("alive_s") is not None:
                life.end_s = max(life.end_s or 0.0, line["alive_s"])
        case "Drained" if not any(note["reports"] for note in line["notes"]):
            life.came_to([note["logged_step"] for note in line["notes"]])


def _incidents(lines: Sequence[Line]) -> list[int]:
    told = {
        action["fact"]["incident"]["number"]
        for line in lines
        for action in line["actions"]
        if (action.get("fact") or {}).get("incident")
    }
    return sorted(told)


def _recoveries(lines: Sequence[Line]) -> dict[int, float]:
    """By the incident before: what ``RecoveryTimed`` says, where it ended with a step."""
    found, newest = {}, 0
    for at, line in enumerate(lines):
        newest = max([newest, *_incidents(lines[at : at + 1])])
        if line["event"] == "RecoveryTimed" and line["first_step_s"] is not None:
            found[newest] = line["total_s"]
    return found
