"""Tell what happens to a log collector: an object for each event (``--log_format=json``)."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from faultrun.journal.append import line_of, utc_now
from faultrun.model.events import (
    Event,
    FaultNotice,
    NothingWhole,
    PrepareFailed,
    RunFinished,
    SpawnFailed,
    WorkerExit,
)
from faultrun.model.observed.dying_gasp import GaspFailed, GaspRequested
from faultrun.model.observed.hang import HangDetected, HangWarned
from faultrun.model.run import Step
from faultrun.model.spec.run_spec import RunSpec
from faultrun.model.stop import StopRequested
from faultrun.observe.console.reporters import ConsoleReporter, Outcome


class JsonReporter:
    """One object an event, for log collectors, with what ``ConsoleReporter`` says; ``write`` takes a line."""

    def __init__(self, spec: RunSpec, log_dir: Path, write: Callable[[str], None]) -> None:
        self._about = _about(spec)
        self._write = write
        self._said: list[str] = []
        self._plain = ConsoleReporter(spec, log_dir, self._said.append)

    @property
    def outcome(self) -> Outcome | None:
        """The last word on the run, once it is over."""
        return self._plain.outcome

    def tell(self, event: Event, step: Step) -> None:
        """Write one JSON object for the event; its message is what a person would be told."""
        self._plain.tell(event, step)
        message = "\n".join(self._said)
        self._said.clear()
        line = line_of(event, step, {})
        head = {"at_utc": utc_now(), "level": _level(event), **self._about}
        self._write(as_text({**head, **_shortened(line), "message": message}))


def note(spec: RunSpec, text: str) -> str:
    """What is said outside of any event, in the same form."""
    head = {"at_utc": utc_now(), "level": "info", **_about(spec), "event": "Note"}
    return as_text({**head, "message": text})


def as_text(data: Mapping[str, Any]) -> str:
    """One line."""
    return json.dumps(data, ensure_ascii=False, separators=(",", ":"))


def _about(spec: RunSpec) -> dict[str, str]:
    return {"run_id": spec.run_id, "host": spec.node}


def _shortened(line: Mapping[str, Any]) -> dict[str, Any]:
    """Without the actions, and of many ranks' steps only the first and the last: the journal has all."""
    short = {name: value for name, value in line.items() if name != "actions"}
    steps = short.get("steps")
    if isinstance(steps, list) and steps and all(isinstance(one, dict) for one in steps):
        known = [one.get("step", -1) for one in steps]
        short["steps"] = {"ranks": len(steps), "slowest": min(known), "furthest": max(known)}
    return short


def _level(event: Event) -> str:
    match event:
        case RunFinished(exit_code=code):
            return "info" if code in (0, 130, 143) else "error"
        case WorkerExit(clean=False):
            return "error"
        case SpawnFailed() | PrepareFailed() | NothingWhole() | GaspFailed() | HangDetected():
            return "error"
        case StopRequested() | FaultNotice() | GaspRequested() | HangWarned():
            return "warning"
        case _:
            return "info"
