"""Which other runs keep their checkpoints in the same folders: most files do not say whose they are.

Each run holds a lock of its own name in a hidden folder beside the checkpoints. The kernel lets go of it
when the process ends; the name stays as a trace for whoever is still there, until somebody new comes.
"""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from filelock import BaseFileLock

from faultrun.checkpoints.gasp_manifest import beside
from faultrun.locks import Busy, held, hold

_PATIENCE_S = 1.0
"""Somebody who looks whether we live holds our lock for a moment."""


class Neighbours:
    """The runs beside run ``name`` in ``roots``; call it from one thread.

    ``several``: other nodes of this run hold its name as well as we could. Whoever does not have it asks
    again each time, for they may be gone; without flock that shows only of those of this machine.
    """

    def __init__(self, roots: Sequence[str], name: str, *, several: bool = False) -> None:
        self._name = name
        self._patience_s = None if several else _PATIENCE_S
        self._unheld: set[Path] = set()
        self._waiting = list(roots)
        self._first: dict[Path, frozenset[str]] = {}
        self._came: set[str] = set()
        self._locks: list[BaseFileLock] = []

    def others(self) -> tuple[str, ...]:
        """Every other run that lives, or that came since we are here, in words; sorted."""
        for root in list(self._waiting):
            with suppress(OSError):  # nobody may write there, or it is not there yet
                self._join(beside(root))
                self._waiting.remove(root)
        for registry in tuple(self._unheld):
            with suppress(OSError):
                self._hold(registry, wait_s=None)
        found: dict[str, str] = {}
        for registry, first in self._first.items():
            with suppress(OSError):
                for path in registry.iterdir():
                    if path.name in (self._name, f"{self._name}.lease") or path.name.startswith("."):
                        continue
                    holder = _holder(path)
                    if path.name not in first:
                        self._came.add(path.name)
                    if holder:
                        found[path.name] = f"run {path.name} ({holder})"
        return tuple(found.get(name, f"run {name}") for name in sorted(self._came | found.keys()))

    def _join(self, registry: Path) -> None:
        if registry in self._first:
            return
        registry.mkdir(exist_ok=True)
        self._hold(registry, wait_s=self._patience_s)
        others = [path for path in registry.iterdir() if path.name != self._name and path.name[0] != "."]
        self._first[registry] = frozenset(path.name for path in others if _holder(path))

    def _hold(self, registry: Path, wait_s: float | None) -> None:
        try:
            self._locks.append(hold(registry / self._name, wait_s=wait_s))
        except Busy:  # by a run of our name in another log_dir: whose a file is can be told even less
            self._unheld.add(registry)
        else:
            self._unheld.discard(registry)


def _holder(path: Path) -> str:
    """Who holds the name ``path``; '' when nobody does any more, and then it goes."""
    try:
        with held(path, wait_s=0.0):
            return ""
    except Busy as busy:
        return busy.holder
