"""Dying-gasp saves while the lines are read: asked, done, failed, cut off."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from faultrun.model.account import Saves

_MOST_TIMES = 10_000


@dataclass(slots=True)
class OpenSaves:
    """Of the whole run."""

    asked: int = 0
    saved: int = 0
    failed: int = 0
    cut: int = 0
    times_s: list[float] = field(default_factory=list)

    def done(self, line: Mapping[str, Any]) -> None:
        """A rank saved."""
        self.saved += 1
        took_s = line.get("took_s")
        if isinstance(took_s, (int, float)) and len(self.times_s) < _MOST_TIMES:
            self.times_s.append(float(took_s))

    def close(self) -> Saves:
        """The finished record."""
        took_s = median(self.times_s) if self.times_s else None
        return Saves(asked=self.asked, saved=self.saved, failed=self.failed, cut=self.cut, took_s=took_s)
