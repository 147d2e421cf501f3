"""Which other runs keep their checkpoints in the same folders: most files do not say whose they are.

Each run holds a lock of its own in a hidden folder beside the checkpoints. The kernel lets go of it
when the process ends; the name stays as a trace for runs that still live, until a new run comes.
"""

import os
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path

from faultrun.checkpoints.formats.faultrun_manifest import beside
from faultrun.locks import LEASE_S, Busy, Lock, held, hold

_PATIENCE_S = 1.0
"""A process that looks whether we live holds our lock for a moment."""
_MOMENT_S = 0.3
"""For that long at most, on a busy machine too."""
_LOST_S, _LOOK_AGAIN_S = 100.0, 0.5
"""A file server keeps the locks of a machine that was lost for its lease, 90 s by default."""
_LEASE = ".lease"
_REGISTRY, _MOST_FOLDERS = ".faultrun", 1000
_APART = "@"
"""It stands in no run id."""


class OtherRuns:
    """The runs beside run ``run_id`` in ``roots``; call it from one thread.

    Several runs may have one id, of a job or a person. ``apart`` tells them apart: the first supervisor of
    the log_dir, or what several nodes meet by. ``namesakes`` are those of the last look that have our id.
    ``several``: other nodes of this run hold its name as well as we could. A node that does not have it asks
    again each time, for they may be gone; without flock that shows only of those of this machine. Who holds a
    name no longer than ``moment_s`` only looks. What is older than ``until_s``, by the folder's clock, may be
    of another that was there; ``alone``: since then there is none.
    """

    def __init__(
        self,
        roots: Sequence[str],
        run_id: str,
        *,
        apart: str = "",
        several: bool = False,
        moment_s: float = _MOMENT_S,
    ) -> None:
        self.namesakes: tuple[str, ...] = ()
        self.until_s, self.alone = 0.0, True
        self._run_id = run_id
        self.name = f"{run_id}{_APART}{apart}"
        """Ours, as others find it."""
        self._moment_s = moment_s
        self._patience_s = None if several else _PATIENCE_S
        self._unheld: set[Path] = set()
        self._living: set[Path] = set()
        self._living_here: set[Path] = set()
        self._traces: set[Path] = set()
        self._roots, self._waiting = tuple(roots), list(roots)
        self._first_below: dict[Path, frozenset[str]] = {}
        self._first: dict[Path, frozenset[str]] = {}
        self._came: set[str] = set()
        self._locks: list[Lock] = []

    def others(self) -> tuple[str, ...]:
        """Every other run that lives, or that came since we are here, in words; sorted."""
        for root in list(self._waiting):
            with suppress(OSError):  # it may not be written, or it is not there yet
                self._join(beside(root))
                self._waiting.remove(root)
        for registry in tuple(self._unheld):
            with suppress(OSError):
                self._hold(registry, wait_s=None)
        found: dict[str, str] = {}
        before = len(self._came)
        for registry, first in self._first.items():
            with suppress(OSError):
                for name in self._names(registry):
                    if holder := self._holder(registry / name):
                        self._traces.discard(registry / name)
                        found[name] = f"{_shown(name)} ({holder})"
                    if name not in first and registry / name not in self._traces:
                        self._came.add(name)
        alone, self.alone = self.alone, not found and len(self._came) == before
        for registry in self._first if not (alone and self.alone) else ():
            with suppress(OSError):
                self.until_s = max(self.until_s, _now(registry))
        self.namesakes = tuple(filter(self.is_namesake, found))
        return tuple(found.get(name, _shown(name)) for name in sorted(self._came | found.keys()))

    def folders_below(self) -> tuple[str, ...]:
        """Folders below ours in which another run keeps its checkpoints, that lives or came since; sorted."""
        found = set()
        for registry, folder in _registries_below(self._roots):
            with suppress(OSError):
                names = self._names(registry)
                living = {name for name in names if self._holder(registry / name)}
                first = self._first_below.setdefault(registry, frozenset(names) - living)
                if not first.issuperset(names):
                    found.add(folder)
        return tuple(sorted(found))

    def is_namesake(self, name: str) -> bool:
        """Whether the run that others find as ``name`` has our id."""
        return name.partition(_APART)[0] == self._run_id

    def _join(self, registry: Path) -> None:
        if registry in self._first:
            return
        registry.mkdir(exist_ok=True)
        self._hold(registry, wait_s=self._patience_s)
        names = self._names(registry)
        self._wait_for_lost(registry / name for name in names if self.is_namesake(name))
        self._first[registry] = frozenset(name for name in names if self._holder(registry / name))
        gone = (registry / name for name in names if name not in self._first[registry])
        self._traces |= {path for path in gone if path.with_name(f"{path.name}{_LEASE}").exists()}

    def _wait_for_lost(self, namesakes: Iterable[Path]) -> None:
        """What a machine that was lost held, as this run or another, is let go of by its file server."""
        until_s = time.monotonic() + _LOST_S
        for path in namesakes:
            while self._holder(path) and path not in self._living_here and time.monotonic() < until_s:
                time.sleep(_LOOK_AGAIN_S)

    def _names(self, registry: Path) -> list[str]:
        """Names of the other runs in ``registry``; where there is no flock, a file beside holds each name."""
        there = {path.name.removesuffix(_LEASE) for path in registry.iterdir() if path.name[0] != "."}
        return sorted(there - {self.name})

    def _hold(self, registry: Path, wait_s: float | None) -> None:
        try:
            self._locks.append(hold(registry / self.name, wait_s=wait_s))
        except Busy:  # by another node
            self._unheld.add(registry)
        else:
            self._unheld.discard(registry)

    def _holder(self, path: Path) -> str:
        """Who holds the name ``path``; '' when none does any more, and then it goes.

        A process that merely looks holds it for a moment, as we do: it is asked again before that is
        believed. A lease is only looked at: its holder renews it as long as it lives.
        """
        lease = path.with_name(f"{path.name}{_LEASE}")
        if lease.exists():
            lives = lease.stat().st_mtime > _now(path.parent) - 1.5 * LEASE_S
            return "its lease is renewed" if lives else ""
        try:
            with held(path, wait_s=0.0 if path in self._living else self._moment_s):
                self._living.discard(path)
                return ""
        except Busy as busy:
            self._living.add(path)
            self._living_here |= {path} if busy.pid is not None else set()
            return busy.holder


def _registries_below(roots: Iterable[str]) -> Iterator[tuple[Path, str]]:
    """The registries of folders below ``roots``, each with that folder. Hidden folders are not entered."""
    for root in roots:
        for folder, names, _ in islice(os.walk(root), _MOST_FOLDERS):
            for name in names:
                if (own := name.removesuffix(_REGISTRY)) != name:
                    inside = f"{folder}/{own[1:]}" if own else folder
                    yield from [(Path(folder, name), inside)] if inside != root else ()
            names[:] = [name for name in names if not name.startswith(".")]


def _shown(name: str) -> str:
    return f"run {name.partition(_APART)[0]}"


def _now(folder: Path) -> float:
    """The time of the folder's file server, whatever our clock says."""
    path = folder / f".{os.urandom(8).hex()}"
    try:
        with path.open("x") as file:
            return os.fstat(file.fileno()).st_mtime
    finally:
        path.unlink(missing_ok=True)
