"""What can be done before the rank is known, by framework."""

import os
import sys
from importlib import import_module


class CannotStandBy(Exception):
    """This process would be another worker than a fresh one; the text says why."""


class Rehearsal:
    """A framework's part of being a standby; by itself no framework: the interpreter alone."""

    name = "python"
    modules: tuple[str, ...] = ()
    """What every program of the framework imports; the first one is the package itself."""
    threads = 0
    """How many idle threads its rehearsal may leave."""
    frozen = False
    """Whether what it has loaded is taken out of the garbage collector's rounds (``gc.freeze``)."""

    def __init__(self) -> None:
        self._file: tuple[int, ...] = ()

    def load(self) -> None:
        """Import the modules. ImportError when that is impossible."""
        for name in self.modules:
            import_module(name)
        self._file = self._file_now()

    def rehearse(self) -> str:
        """Do once what is slow the first time; return what could not be done, "" when all could.

        Afterwards the framework must be as it was after ``load``; CannotStandBy when it is not.
        """
        return ""

    def changed(self) -> bool:
        """Whether the framework on the disk is another than the one in memory."""
        return self._file_now() != self._file

    def reseed(self) -> None:
        """Give every source of random numbers what it has in a fresh process: numpy's is never the same."""
        if (numpy := sys.modules.get("numpy")) is not None:
            numpy.random.seed()

    def _file_now(self) -> tuple[int, ...]:
        return file_of(self.name)


def file_of(package: str) -> tuple[int, ...]:
    """Device, inode, size and mtime of an imported package's first file; empty if it has none."""
    try:
        found = os.stat(getattr(sys.modules.get(package), "__file__", None) or "")
    except OSError:
        return ()
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def rehearsal_for(framework: str) -> Rehearsal:
    """The rehearsal of a framework by its name; any other name means that only Python is started."""
    name = {"torch": "TorchRehearsal", "mindspore": "MindSporeRehearsal"}.get(framework)
    if name is None:
        return Rehearsal()
    made: Rehearsal = getattr(import_module(f".rehearsal_{framework}", __package__), name)()
    return made
