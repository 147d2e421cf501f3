"""``--log_format=json``: one object an event, for log collectors, with what the plain narrator says."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from faultrun.journal.append import line_of, utc_now
from faultrun.model.events import Event, RunFinished, WorkerExit
from faultrun.model.run import Step
from faultrun.model.spec import RunSpec
from faultrun.observe.console_reporter import ConsoleReporter, Outcome

_FAULTS = frozenset({"SpawnFailed", "PrepareFailed", "NothingWhole", "GaspFailed", "HangDetected"})


class JsonReporter:
    """Implements ``ports.EventListener``; ``write`` takes one line without its end."""

    def __init__(self, spec: RunSpec, log_dir: Path, write: Callable[[str], None]) -> None:
        self._run_id = spec.run_id
        self._write = write
        self._said: list[str] = []
        self._plain = ConsoleReporter(spec, log_dir, self._said.append)

    @property
    def outcome(self) -> Outcome | None:
        """See ``PlainNarrator``."""
        return self._plain.outcome

    def tell(self, event: Event, step: Step) -> None:
        """See ``ports.EventListener``."""
        self._plain.tell(event, step)
        message = "\n".join(self._said)
        self._said.clear()
        line = line_of(event, step, {})
        head = {"at_utc": utc_now(), "level": _level(event, line), "run_id": self._run_id}
        self._write(as_text({**head, **_shortened(line), "message": message}))


def note(run_id: str, text: str) -> str:
    """What is said outside of any event, in the same form."""
    head = {"at_utc": utc_now(), "level": "info", "run_id": run_id, "event": "Note"}
    return as_text({**head, "message": text})


def as_text(data: Mapping[str, Any]) -> str:
    """One line."""
    return json.dumps(data, ensure_ascii=False, separators=(",", ":"))


def _shortened(line: Mapping[str, Any]) -> dict[str, Any]:
    """Without the actions, and of many ranks' steps only the first and the last: the journal has all."""
    short = {name: value for name, value in line.items() if name != "actions"}
    steps = short.get("steps")
    if isinstance(steps, list) and steps and all(isinstance(one, dict) for one in steps):
        known = [one.get("step", -1) for one in steps]
        short["steps"] = {"ranks": len(steps), "slowest": min(known), "furthest": max(known)}
    return short


def _level(event: Event, line: Mapping[str, Any]) -> str:
    name = line["event"]
    if isinstance(event, RunFinished):
        return "info" if event.exit_code in (0, 130, 143) else "error"
    failed = isinstance(event, WorkerExit) and not event.clean
    if failed or name in _FAULTS:
        return "error"
    return "warning" if name in ("StopRequested", "FaultNotice", "GaspRequested", "HangWarned") else "info"
