"""Real terminals: a tmux server of our own, one session for each size, and what is on their screens."""

import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_SETTINGS = """
set -g status off
set -g remain-on-exit on
set -g remain-on-exit-format ""
"""


@dataclass(frozen=True, slots=True)
class Tmux:
    """``folder`` keeps the server's socket; ``close`` ends it and whatever runs in it."""

    folder: Path

    def open(self, name: str, size: tuple[int, int], command: Sequence[str], env: Mapping[str, str]) -> None:
        """Run ``command`` on a terminal of ``size``, columns and rows."""
        (self.folder / "tmux.conf").write_text(_SETTINGS)
        columns, rows = size
        words = [f"-e{name}={value}" for name, value in env.items()]
        self._do("new-session", "-d", "-s", name, f"-x{columns}", f"-y{rows}", *words, *command)

    def screen(self, name: str) -> list[str]:
        """The rows that are on it now, without blanks at their ends."""
        return [line.rstrip() for line in self._do("capture-pane", "-p", "-t", name).split("\n")[:-1]]

    def resize(self, name: str, size: tuple[int, int]) -> None:
        """Give it another size, as a person at a window does."""
        self._do("resize-window", "-t", name, f"-x{size[0]}", f"-y{size[1]}")

    def close(self) -> None:
        """End the server."""
        subprocess.run([*self._server(), "kill-server"], check=False, stderr=subprocess.DEVNULL, timeout=60)

    def _server(self) -> list[str]:
        return ["tmux", "-S", str(self.folder / "tmux"), "-f", str(self.folder / "tmux.conf")]

    def _do(self, *words: str) -> str:
        size_of_ours = {"COLUMNS", "LINES"}  # pytest-xdist sets them: programs would believe them
        environ = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith("TMUX") and name not in size_of_ours
        }
        done = subprocess.run(
            [*self._server(), *words], check=True, capture_output=True, text=True, timeout=60, env=environ
        )
        return done.stdout
