"""What a supervisor and its member process write to each other: JSON objects with one of these keys.

The supervisor writes its node's statements, alarms, what its ranks do while the job stands still, and that
it leaves; the member process until when workers may live (CLOCK_BOOTTIME), events, and lines for a person.
"""

import contextlib
import json
import os
import selectors
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any

from faultrun.model.observed.node_fact import NodeFact

FACT, ALARM, RANKS, WHY, LEAVE = "fact", "alarm", "ranks", "why", "leave"

UNTIL, TELLS, SAYS = "until", "tells", "says"


class Words:
    """Lines to the supervisor: written at once, kept while a frozen one reads nothing."""

    def __init__(self, fd: int, selector: selectors.BaseSelector) -> None:
        os.set_blocking(fd, False)
        self._fd, self._selector = fd, selector
        self._unwritten = b""

    def write(self, words: dict[str, Any]) -> None:
        """Say it; in the order in which it is said."""
        waiting = bool(self._unwritten)
        self._unwritten += json.dumps(words).encode() + b"\n"
        self._flush()
        if self._unwritten and not waiting:
            self._selector.register(self._fd, selectors.EVENT_WRITE, self._flush_later)

    def _flush_later(self) -> None:
        self._flush()
        if not self._unwritten:
            self._selector.unregister(self._fd)

    def _flush(self) -> None:
        with contextlib.suppress(OSError):  # full, or the other end is gone
            while self._unwritten:
                self._unwritten = self._unwritten[os.write(self._fd, self._unwritten) :]


def dated(fact: NodeFact, run_s: float) -> NodeFact:
    """With the moment of its incident as every node can read it: run-seconds are this supervisor's own."""
    if (incident := fact.left.incident) is None:
        return fact
    at = datetime.now(timezone.utc) - timedelta(seconds=max(0.0, run_s - incident.at_s))
    incident = replace(incident, at_utc=at.isoformat(" ", "milliseconds"))
    return fact.with_left(replace(fact.left, incident=incident))
