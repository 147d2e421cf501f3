"""What can be done before the rank is known, by framework."""

from importlib import import_module
from typing import Protocol


class Spoiled(Exception):
    """The rehearsal has changed what a program would notice, and it cannot be taken back."""


class Rehearsal(Protocol):
    """A framework's part of being a standby.

    ``threads``: how many idle ones its rehearsal may leave. ``frozen``: what it has loaded is taken out
    of the garbage collector's rounds (``gc.freeze``).
    """

    name: str
    threads: int
    frozen: bool

    def load(self) -> None:
        """Import what every program of the framework imports. ImportError when that is impossible."""
        ...

    def rehearse(self) -> str:
        """Do once what is slow the first time; return what could not be done, "" when all could.

        Afterwards the framework must be as it was after ``load``; Spoiled when it is not.
        """
        ...

    def changed(self) -> str:
        """Why the framework on the disk is not the one in memory; "" when it is."""
        ...

    def reseed(self) -> None:
        """Give every source of random numbers the state that it has in a fresh process."""
        ...


def rehearsal_for(framework: str) -> Rehearsal:
    """The rehearsal of a framework by its name; any other name means that only Python is started."""
    if framework in ("torch", "mindspore"):
        made: Rehearsal = import_module(f".rehearsal_{framework}", __package__).make()
        return made
    return Bare()


class Bare:
    """No framework: the interpreter alone."""

    name = "python"
    threads = 0
    frozen = False

    def load(self) -> None:
        """See ``Rehearsal``."""

    def rehearse(self) -> str:
        """See ``Rehearsal``."""
        return ""

    def changed(self) -> str:
        """See ``Rehearsal``."""
        return ""

    def reseed(self) -> None:
        """See ``Rehearsal``."""
