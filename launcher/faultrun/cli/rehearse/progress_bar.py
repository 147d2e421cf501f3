"""How a rehearsal goes on, on stderr: a bar on a terminal, a line for each thing elsewhere."""

import os
import sys
import time
from typing import TYPE_CHECKING

import click

from faultrun.cli.console import say

if TYPE_CHECKING:
    from click._termui_impl import ProgressBar

_LABEL_WIDTH = 56


class TimeBar:
    """Fills while the time passes; ``close`` ends its line. With NO_COLOR or no terminal there is no bar."""

    def __init__(self, total_s: float) -> None:
        self._begin_s = time.monotonic()
        self._total_s = total_s
        self._bar: ProgressBar[int] | None = None
        if sys.stderr.isatty() and "NO_COLOR" not in os.environ:
            self._bar = click.progressbar(length=max(1, int(total_s)), file=sys.stderr, show_eta=False)

    def doing(self, text: str) -> None:
        """What is being done from now on."""
        if self._bar is None:
            say(f"rehearsal {time.monotonic() - self._begin_s:4.0f} s: {text}")
            return
        self._bar.label = text[:_LABEL_WIDTH].ljust(_LABEL_WIDTH)
        self._bar.render_progress()

    def tick(self) -> None:
        """Time has passed."""
        if self._bar is not None:
            passed_s = min(int(time.monotonic() - self._begin_s), int(self._total_s))
            self._bar.update(max(0, passed_s - self._bar.pos))

    def close(self) -> None:
        """Nothing follows."""
        if self._bar is not None:
            self._bar.render_finish()
