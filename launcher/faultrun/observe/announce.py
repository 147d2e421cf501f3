"""What the world is told of a run: warnings, incidents, restarts and its end, from journal lines."""

from collections.abc import Iterator, Mapping
from typing import Any

from faultrun.model.plan import Reason
from faultrun.observe.account_fault import number_of, what_happened

_LONGEST = 2000
KINDS = ("hang-warning", "hang-over", "incident", "restart", "give-up", "finished")


class Announcer:
    """Takes a journal's lines in order; says each thing once.

    ``text`` is a sentence for people, under the name that chat systems look for.
    """

    def __init__(self, run_id: str, log_dir: str) -> None:
        self._about = {"run_id": run_id, "log_dir": log_dir}
        self._told = 0
        self._stopped = False
        self._plan: Mapping[str, Any] = {}
        self._untold: Mapping[str, Any] | None = None
        self._checked: Mapping[str, Any] = {}

    def take(self, line: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """What is to be told after ``line``; usually nothing."""
        name = line.get("event")
        if name in ("RunFinished", "Drained"):
            yield from self._restarted({})
        yield from self._judged(line)
        if name == "StopRequested":
            self._stopped = True
        elif name == "RunStarted":
            self._stopped = False
        elif name == "PlanAdopted":
            plan = line.get("plan")
            self._plan = plan if isinstance(plan, dict) else {}
        elif name == "IncarnationStarted" and (number_of(line.get("incarnation")) or 0) > 0:
            self._untold = line
            if self._plan.get("reason") == Reason.CONTINUED.value:
                yield from self._restarted({})
        elif name == "ResumeChecked":
            self._checked = line
        elif name == "RecoveryTimed":
            yield from self._restarted(line)
        elif name == "HangWarned":
            yield self._warned(line)
        elif name == "PauseOver" and line.get("warned"):
            rank, paused_s = number_of(line.get("rank")), line.get("paused_s")
            yield self._say("hang-over", line, str(line.get("why", "")), rank=rank, paused_s=paused_s)
        elif name == "RunFinished":
            yield self._ended(line)

    def _warned(self, line: Mapping[str, Any]) -> dict[str, Any]:
        rank, step = number_of(line.get("rank")), number_of(line.get("step"))
        why, where = str(line.get("because", ""))[:_LONGEST], "" if step is None else f" after step {step}"
        return self._say(
            "hang-warning",
            line,
            f"rank {rank} may hang{where}: {why}",
            rank=rank,
            step=step,
            explanation=why,
            silent_s=line.get("silent_s"),
            stacks=line.get("folder"),
        )

    def _judged(self, line: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        actions = line.get("actions")
        for action in actions if isinstance(actions, list) else ():
            fact = action.get("fact") if isinstance(action, dict) else None
            incident = fact.get("incident") if isinstance(fact, dict) else None
            number = number_of(incident.get("number")) if isinstance(incident, dict) else None
            if incident is None or number is None or number <= self._told:
                continue
            self._told = number
            rank, step = number_of(incident.get("rank")), number_of(incident.get("step"))
            what = what_happened(incident)[:_LONGEST]
            who = "" if rank is None else f" rank {rank}:"
            where = "" if step is None else f" at step {step}"
            yield self._say(
                "incident",
                line,
                f"incident {number}:{who} {what}{where}",
                number=number,
                rank=rank,
                step=step,
                cause=incident.get("cause"),
                fault_class=incident.get("fault_class"),
                explanation=what,
                card=f"incident_{number}.txt",
            )

    def _restarted(self, timed: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """Once a recovery is timed, with its one number; without, at the end of a life that was not timed."""
        line, self._untold = self._untold, None
        if line is None:
            return
        point = self._plan.get("point")
        point = point if isinstance(point, dict) else {}
        path, step = str(point.get("path", "")), number_of(point.get("global_step"))
        total_s, trains = timed.get("total_s"), timed.get("first_step_s") is not None
        after_s = float(total_s) if isinstance(total_s, (int, float)) else None
        source = (
            f" from {path}" + ("" if step is None else f" (step {step})") if path else " from the beginning"
        )
        checked = self._checked if self._checked.get("incarnation") == line.get("incarnation") else {}
        if checked.get("began") == "elsewhere":
            source = f": {checked.get('because') or checked.get('why')}"
        took = (
            ""
            if after_s is None
            else f", {'training' if trains else 'workers running'} again {after_s:.1f} s after the fault"
        )
        incarnation = number_of(line.get("incarnation"))
        yield self._say(
            "restart",
            line,
            f"incarnation {incarnation} runs{source}{took}",
            reason=self._plan.get("reason"),
            resumed_from=path,
            resumed_step=step,
            began=checked.get("began"),
            began_step=number_of(checked.get("step")),
            after_s=after_s if trains else None,
            running_after_s=None if trains else after_s,
        )

    def _ended(self, line: Mapping[str, Any]) -> dict[str, Any]:
        code = number_of(line.get("exit_code"))
        why = str(line.get("because") or line.get("why") or "")[:_LONGEST]
        kind = "finished" if code == 0 or self._stopped else "give-up"
        word = "stopped" if self._stopped else "finished" if code == 0 else "gave up"
        return self._say(
            kind, line, f"{word}: {why}; exit code {code}", exit_code=code, why=why, stopped=self._stopped
        )

    def _say(self, kind: str, line: Mapping[str, Any], text: str, **more: Any) -> dict[str, Any]:
        run = f"faultrun {self._about['run_id']}: "
        return {
            "kind": kind,
            **self._about,
            "at_utc": line.get("at_utc"),
            "incarnation": line.get("incarnation"),
            "text": run + text,
            **more,
        }
