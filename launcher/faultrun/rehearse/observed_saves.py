"""The checkpoints that a rehearsed training writes, and how: under new names, or over old ones."""

import os
from pathlib import Path

from faultrun.checkpoints.catalog import Catalog
from faultrun.checkpoints.format import Stamp
from faultrun.checkpoints.registry import Registry


class RehearsedSaves:
    """What is new under ``folders`` since this was made, in the formats of ``registry``.

    A save counts once two looks in a row found it unchanged. ``paths`` are the saves, each path once, the
    newest last. ``in_place`` is a save that was later written to under its own name and inode: a kill at
    that moment takes it away.
    """

    def __init__(self, folders: tuple[str, ...], registry: Registry | None = None) -> None:
        self._catalog = Catalog(folders, registry=registry) if folders else None
        self._before = self._listed()
        self._last: dict[str, Stamp] = {}
        self._settled: dict[str, Stamp] = {}
        self.times_s: list[float] = []
        self.in_place = ""

    @property
    def paths(self) -> tuple[str, ...]:
        """The saves that are still there."""
        there = {path: stamp for path, stamp in self._settled.items() if self._last.get(path) is not None}
        return tuple(sorted(there, key=lambda path: there[path].mtime_ns))

    @property
    def every_s(self) -> float | None:
        """The time between two saves; None before there were two."""
        if len(self.times_s) < 2:
            return None
        return (self.times_s[-1] - self.times_s[0]) / (len(self.times_s) - 1)

    def look(self, at_s: float) -> bool:
        """Look once more, ``at_s`` on the caller's clock; whether a save is finished that was not before."""
        now = {path: stamp for path, stamp in self._listed().items() if self._before.get(path) != stamp}
        found = False
        for path, stamp in now.items():
            if (settled := self._settled.get(path)) == stamp:
                continue
            if settled is not None and settled.inode == stamp.inode and not Path(path).is_dir():
                self.in_place = self.in_place or path
            if self._last.get(path) == stamp:
                self._settled[path] = stamp
                self.times_s.append(at_s)
                found = True
        self._last = now
        return found

    def _listed(self) -> dict[str, Stamp]:
        return self._catalog.listed() if self._catalog is not None else {}


def tear(checkpoint: str) -> str:
    """Cut the largest file of ``checkpoint`` in half, as a kill inside a save leaves it; which one.

    Empty where there is no file to cut.
    """
    path = Path(checkpoint)
    if path.is_dir():
        files = [file for file in path.rglob("*") if file.is_file()]
    else:
        files = [path] if path.is_file() else list(path.parent.glob(f"{path.name}*"))
    if (largest := max(files, key=lambda file: file.stat().st_size, default=None)) is None:
        return ""
    os.truncate(largest, largest.stat().st_size // 2)
    return str(largest)
