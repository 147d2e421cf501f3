"""Dying-gasp saves while the lines are read: asked, done, failed, cut off; and what the windows kept."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from faultrun.observe.account_fault import list_of
from faultrun.observe.account_model import Saves

_MOST_TIMES = 10_000


@dataclass(slots=True)
class OpenSaves:
    """Of the whole run."""

    asked: int = 0
    saved: int = 0
    failed: int = 0
    cut: int = 0
    windows: int = 0
    kept: int = 0
    times_s: list[float] = field(default_factory=list)
    _asked_now: frozenset[int] = frozenset()
    _copies: dict[tuple[str, str], frozenset[int]] = field(default_factory=dict)

    def heard(self, line: Mapping[str, Any]) -> None:
        """One line of an event of the gasp, or of a timer."""
        key = str(line.get("rank")), str(line.get("path"))
        match line.get("event"):
            case "GaspRequested":
                self._close_window()
                self._asked_now = _ranks(line, "ranks")
                self.asked += len(self._asked_now)
                self.windows += 1
            case "GaspSaved":
                self._done(line)
                self._copies[key] = _ranks(line, "replica_group") or self._asked_now
            case "GaspVerified" if line.get("whole") is False:
                self._copies.pop(key, None)
            case "GaspFailed":
                self.failed += 1
            case "TimerFired" if line.get("timer") == "grace" and line.get("phase") == "killing":
                self.cut += 1
            case _:
                return

    def close(self) -> Saves:
        """The finished record."""
        self._close_window()
        return Saves(
            asked=self.asked,
            saved=self.saved,
            failed=self.failed,
            cut=self.cut,
            windows=self.windows,
            kept=self.kept,
            took_s=median(self.times_s) if self.times_s else None,
        )

    def _done(self, line: Mapping[str, Any]) -> None:
        self.saved += 1
        took_s = line.get("took_s")
        if isinstance(took_s, (int, float)) and len(self.times_s) < _MOST_TIMES:
            self.times_s.append(float(took_s))

    def _close_window(self) -> None:
        """Kept is a window that left a copy of what every rank held that was asked."""
        if self._copies and frozenset().union(*self._copies.values()) >= self._asked_now:
            self.kept += 1
        self._copies, self._asked_now = {}, frozenset()


def _ranks(line: Mapping[str, Any], name: str) -> frozenset[int]:
    return frozenset(rank for rank in list_of(line, name) if isinstance(rank, int))
