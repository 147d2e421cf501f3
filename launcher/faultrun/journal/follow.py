"""A journal that grows, read as it does; by others than its writer."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from faultrun.journal.read import line_of_bytes

_CHUNK = 1 << 20


class JournalFollower:
    """Yields each whole line once. The journal need not exist yet; half a line waits for its rest."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd = -1
        self._rest = b""

    def new_lines(self) -> Iterator[dict[str, Any]]:
        """What was appended since the last call; everything on the first."""
        if self._fd < 0:
            try:
                self._fd = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
            except OSError:
                return
        while chunk := os.read(self._fd, _CHUNK):
            *lines, self._rest = (self._rest + chunk).split(b"\n")
            for raw in lines:
                line = line_of_bytes(raw + b"\n")
                if line is not None:
                    yield line
