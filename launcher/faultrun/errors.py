"""Errors a person is meant to read, and the exit code of each.

A bug is not one of these: bugs keep their traceback and end the program with 70.
"""

from typing import ClassVar, NoReturn


class FaultrunError(Exception):
    """Something a person must fix: what happened, because of what, and one thing to try."""

    exit_code: ClassVar[int] = 70

    def __init__(self, what: str, *, because: str, hint: str) -> None:
        super().__init__(what)
        self.what, self.because, self.hint = what, because, hint

    def __str__(self) -> str:
        """Three lines, as the command line prints them."""
        return f"{self.what}\n  because: {self.because}\n  try:     {self.hint}"


class CannotNow(FaultrunError):
    """The SDK cannot do it this time: another checkpoint, disk, process or moment may do.

    Whatever else the SDK raises is a refusal: the same program would meet it again.
    """


class UsageError(FaultrunError):
    """The command line is wrong (EX_USAGE)."""

    exit_code = 64


class NoWholeCheckpoint(FaultrunError):
    """Checkpoints exist and none of them is whole (EX_DATAERR); starting from zero would hide it."""

    exit_code = 65


class OutOfRoom(FaultrunError):
    """The system has no room left for what was to be written (EX_OSERR)."""

    exit_code = 71


class LogDirError(FaultrunError):
    """The log_dir cannot be written, or another run holds it (EX_CANTCREAT)."""

    exit_code = 73


class ConfigError(FaultrunError):
    """A configuration file, recipe or rewrite target is wrong (EX_CONFIG)."""

    exit_code = 78


def assert_never(value: NoReturn) -> NoReturn:
    """Let mypy prove that a ``match`` is complete (typing has this only from Python 3.11)."""
    raise AssertionError(f"unhandled: {value!r}")
