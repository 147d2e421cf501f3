"""The checkpoints of a hostile history: what was saved, and what the campaign has done to it since."""

import os
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.campaigns.hostile_plan import Deed

_AN_HOUR_S = 3600.0
_LAST = "last.safetensors"
_LEFT_AT_LEAST = 2
"""Whole files that no deed may take: the history shall stay one that can be resumed."""


@dataclass(slots=True)
class Shelf:
    """``ckpt`` as the campaign knows it. ``spoiled`` holds (time, first name) of files cut or removed."""

    folder: Path
    spoiled: list[tuple[float, str]] = field(default_factory=list)
    done: list[str] = field(default_factory=list)
    _first_names: dict[str, str] = field(default_factory=dict)
    _ruined: set[int] = field(default_factory=set)

    def do(self, deeds: Iterable[Deed]) -> None:
        """Do what can be done; a file that its owner takes away meanwhile is left."""
        for deed in deeds:
            with suppress(FileNotFoundError):
                self._do(deed)

    def take_away(self) -> None:
        """The whole folder is gone, as a mount that dropped."""
        self.folder.rename(self.folder.with_suffix(".away"))

    def bring_back(self) -> None:
        """And is there again; what was made in its place meanwhile is kept beside it."""
        if self.folder.exists():
            self.folder.rename(self.folder.with_suffix(f".meanwhile-{time.monotonic_ns()}"))
        self.folder.with_suffix(".away").rename(self.folder)

    def _do(self, deed: Deed) -> None:
        whole = self._whole()
        if not whole:
            return
        newest, oldest = whole[-1], whole[0]
        match deed:
            case Deed.RENAME:
                fresh = newest.with_name(f"kept_{len(self.done)}.safetensors")
                first = self._first(newest)
                newest.rename(fresh)
                self._first_names[str(fresh)] = first
            case Deed.LINK:
                link = newest.with_name(f"linked_{len(self.done)}.safetensors")
                os.link(newest, link)
                self._first_names[str(link)] = self._first(newest)
            case Deed.CUT | Deed.REMOVE:
                if len(whole) <= _LEFT_AT_LEAST:
                    return
                self._spoil(newest, deed)
            case Deed.NEW_IN_THE_PAST:
                _date(newest, -_AN_HOUR_S)
            case Deed.OLD_IN_THE_FUTURE:
                _date(oldest, _AN_HOUR_S)
        self.done.append(f"{deed.value}: {newest.name}")

    def _spoil(self, path: Path, deed: Deed) -> None:
        self.spoiled.append((time.monotonic(), self._first(path)))
        if deed is Deed.REMOVE:
            path.unlink()
            return
        info = path.stat()
        self._ruined.add(info.st_ino)
        os.truncate(path, info.st_size // 2)

    def _first(self, path: Path) -> str:
        return self._first_names.get(str(path), str(path))

    def _whole(self) -> list[Path]:
        """Finished files that are not ruined, the oldest save first; ``last`` is written again and again."""
        found = []
        for path in self.folder.rglob("*.safetensors"):
            if path.name.startswith(".") or path.name == _LAST:
                continue
            try:
                info = path.stat()
            except FileNotFoundError:
                continue
            if info.st_ino not in self._ruined and info.st_nlink == 1:
                found.append((info.st_ctime_ns, path))
        return [path for _, path in sorted(found)]


def _date(path: Path, by_s: float) -> None:
    info = path.stat()
    os.utime(path, (info.st_atime + by_s, info.st_mtime + by_s))
