"""One calm line at the bottom of a terminal: ranks up, step, rate, time, restarts. Painted by a sidecar.

Every writer to the terminal begins with ``CLEAR``, in one write: whoever comes second wipes the line away
before its own text, so a line of the log and the live line never share a row.
"""

import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from faultrun.core.span import span
from faultrun.model.wire import SLOT_BYTES, unpack_progress
from faultrun.observe.sidecar import CLEAR
from faultrun.observe.survey_meter import METER, read_meter

_PHASES = {
    "surveying": "looking for a checkpoint",
    "awaiting_plan": "agreeing on a plan",
    "backing_off": "waiting before the restart",
    "holding": "held back by the platform",
    "preparing": "preparing",
    "awaiting_go": "preparing",
    "draining": "workers are saving",
    "killing": "ending workers",
    "sweeping": "cleaning up",
}
_NO_HANG = frozenset({"PauseOver", "HangDismissed", "WorkerExit", "PlanAdopted"})
_PACE_OVER_S = 15.0
_BAR = 24
_GIB = 1 << 30
_USUAL_COLUMNS = 80  # a terminal that was made without a size has none


class LiveLine:
    """Implements ``sidecar.Work``. ``fd`` is the terminal."""

    interval_s = 1.0

    def __init__(
        self, fd: int, log_dir: Path, world_size: int, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._fd = fd
        self._log_dir = log_dir
        self._world_size = world_size
        self._now = now
        self._began_s = now()
        self._phase = ""
        self._phase_s = self._began_s
        self._incarnation = -1
        self._restarts = 0
        self._up: set[int] = set()
        self._looks: list[tuple[float, int]] = []
        self._shown = False
        self._silent = ""

    def begin(self, lifeline: int) -> None:
        """See ``sidecar.Work``."""

    def take(self, line: Mapping[str, Any]) -> None:
        """See ``sidecar.Work``."""
        match line.get("event"):
            case "RunStarted":
                self._up.clear()
            case "PlanAdopted":
                plan = line.get("plan")
                ledger = plan.get("ledger") if isinstance(plan, dict) else None
                self._restarts = ledger.get("total_restarts", 0) if isinstance(ledger, dict) else 0
                number = plan.get("incarnation") if isinstance(plan, dict) else None
                # Of the plan: a timer that rings late carries the number of the life that set it.
                self._incarnation = number if isinstance(number, int) else self._incarnation
                self._up.clear()
                self._looks.clear()
            case "WorkerStarted":
                self._up.add(line.get("rank", -1))
            case "WorkerExit":
                self._up.discard(line.get("rank", -1))
            case "HangWarned":
                self._silent = f"rank {line.get('rank')} may hang"
        if line.get("event") in _NO_HANG:
            self._silent = ""
        phase = line.get("phase")
        if isinstance(phase, str) and phase != self._phase:
            self._phase, self._phase_s = phase, self._now()

    def tick(self) -> None:
        """See ``sidecar.Work``: paint, if the terminal is ours to paint on now."""
        with suppress(OSError):
            if os.tcgetpgrp(self._fd) != os.getpgrp():
                return
            columns = os.get_terminal_size(self._fd).columns or _USUAL_COLUMNS
            text = self.text()[: max(0, columns - 1)]
            os.write(self._fd, CLEAR + b"\x1b[2m" + text.encode(errors="replace") + b"\x1b[0m")
            self._shown = True

    def end(self) -> None:
        """See ``sidecar.Work``: leave an empty row."""
        if self._shown:
            with suppress(OSError):
                os.write(self._fd, CLEAR)

    def text(self) -> str:
        """What the line says now."""
        words = [f"{len(self._up)}/{self._world_size} ranks"]
        if self._phase == "running":
            words += self._progress()
        elif self._phase:
            words += self._verification() if self._phase == "surveying" else []
            since_s = int(self._now() - self._phase_s)
            words.append(_PHASES.get(self._phase, self._phase) + (f" {span(since_s)}" if since_s else ""))
        words.append(span(int(self._now() - self._began_s)))
        if self._restarts:
            words.append(f"{self._restarts} restart{'s' if self._restarts != 1 else ''}")
        return "  ".join(words)

    def _progress(self) -> list[str]:
        if len(self._up) < self._world_size and not self._looks:
            return [f"starting [{_bar(len(self._up) / max(1, self._world_size))}]"]
        step = self._slowest_step()
        if step is None:
            return ["running"]
        now_s = self._now()
        self._looks.append((now_s, step))
        while len(self._looks) > 2 and now_s - self._looks[0][0] > _PACE_OVER_S:
            self._looks.pop(0)
        (first_s, first), (last_s, last) = self._looks[0], self._looks[-1]
        rate = (
            f"{(last - first) / (last_s - first_s):.3g} steps/s" if last > first and last_s > first_s else ""
        )
        return [word for word in (f"step {step:,}", rate, self._silent) if word]

    def _verification(self) -> list[str]:
        meter = read_meter(self._log_dir / METER)
        if meter is None or meter[1] <= 0:
            return []
        share = min(1.0, meter[0] / meter[1])
        return [f"verifying [{_bar(share)}] {meter[0] / _GIB:.1f} of {meter[1] / _GIB:.1f} GiB"]

    def _slowest_step(self) -> int | None:
        """Of the ranks that report; the others wait for it."""
        try:
            page = (self._log_dir / f"incarnation_{self._incarnation}" / "progress").read_bytes()
        except OSError:
            return None
        slots = (unpack_progress(page[at : at + SLOT_BYTES]) for at in range(0, len(page), SLOT_BYTES))
        return min((slot.step for slot in slots if slot is not None), default=None)


def _bar(share: float) -> str:
    done = int(share * _BAR)
    return "#" * done + "." * (_BAR - done)
