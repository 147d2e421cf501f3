"""One line of ``faultrun doctor``: what was looked at, how it is, and what to do about it."""

from dataclasses import dataclass
from enum import Enum


class Status(Enum):
    """FAIL ends the doctor with 1: a run would not start, or not survive a fault."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """``fix`` is empty where all is well."""

    check: str
    status: Status
    what: str
    fix: str = ""

    def told(self, width: int) -> str:
        """One line for a person; ``width`` is that of the longest name."""
        line = f"{self.status.value:<4}  {self.check.ljust(width)}  {self.what}"
        return f"{line} · {self.fix}" if self.fix else line


def ok(check: str, what: str) -> Check:
    """All is well."""
    return Check(check=check, status=Status.OK, what=what)


def warn(check: str, what: str, fix: str) -> Check:
    """A run works, and may be slower, shorter of time or harder to understand."""
    return Check(check=check, status=Status.WARN, what=what, fix=fix)


def fail(check: str, what: str, fix: str) -> Check:
    """A run does not start, or loses what it should save."""
    return Check(check=check, status=Status.FAIL, what=what, fix=fix)
