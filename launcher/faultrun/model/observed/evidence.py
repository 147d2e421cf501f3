"""What is found at a dead worker: its own account, its log's last words, what the kernel says of it."""

import re
from dataclasses import dataclass, field
from enum import Enum

from faultrun.model.event_base import UNLESS_USED


class FaultClass(Enum):
    """What kind of trouble the evidence speaks of; it decides whether another attempt can help.

    DETERMINISTIC: the program is wrong and will fail again. RESOURCE: memory, disk or descriptors ran out.
    CONSEQUENCE: the word of a survivor whose peer was gone, so another rank failed first.
    """

    UNKNOWN = "unknown"
    DETERMINISTIC = "deterministic"
    TRANSIENT = "transient"
    RESOURCE = "resource"
    PREEMPTION = "preemption"
    HARDWARE = "hardware"
    CONSEQUENCE = "consequence"


@dataclass(frozen=True, slots=True, kw_only=True)
class Raised:
    """The exception that ended a worker.

    ``frame`` is the innermost frame of the user's own code, as ``train.py:41 in step``. ``at_s`` is when it
    was raised in run-seconds, None when only the log tells of it. ``came_from`` are the exceptions that led
    to it, as ``Kind: message``, the nearest first. A refusal by our SDK has its ``because`` and its ``hint``.
    """

    kind: str
    message: str = ""
    frame: str = ""
    at_s: float | None = None
    came_from: tuple[str, ...] = ()
    because: str = field(default="", metadata=UNLESS_USED)
    hint: str = field(default="", metadata=UNLESS_USED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A row of the table that was recognised: what it says to people, and the ``line`` that says it."""

    name: str
    fault_class: FaultClass
    says: str
    line: str = ""
    hint: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeathNote:
    """What a dead rank left behind. ``logged_step`` is the last global step its log mentions, if any.

    ``logged_epoch`` comes with ``logged_in_epoch`` where steps are counted anew in every epoch;
    at most ``logged_every`` lie between two that it tells, 0: unknown. ``reports`` tells whether it spoke the
    SDK, so that silence about steps means that there was none. ``told``: a signal to stop that its program
    took, and when one came last; ``trained_on``: whether it did more after that than finish its step.
    """

    rank: int
    last_line: str = ""
    logged_step: int | None = None
    logged_epoch: int | None = None
    logged_in_epoch: int | None = None
    raised: Raised | None = None
    finding: Finding | None = None
    reports: bool = False
    logged_every: int = field(default=1, metadata=UNLESS_USED)
    told: tuple[int, float] | None = field(default=None, metadata=UNLESS_USED)
    trained_on: bool | None = field(default=None, metadata=UNLESS_USED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """What makes two failures the same: what ended the rank, where in its code, and at which step."""

    what: str
    where: str = ""
    step: int | None = None

    def same_as(self, other: "Signature") -> bool:
        """Whether both are one failure that happened twice.

        Ranks report a step when it is finished, and one that fails between
        the update and the report may be one behind: steps beside each other are the same.
        """
        if (self.what, self.where) != (other.what, other.where):
            return False
        if self.step is None or other.step is None:
            return self.step == other.step
        return abs(self.step - other.step) <= 1


_LINE_CHARS = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One known failure. ``pattern`` is searched in an exception's ``Kind: message`` or in one log line.

    ``says`` is what a person is told before the line that was found,
    ``source`` where it is known from. ValueError: not a regular expression.
    """

    name: str
    fault_class: FaultClass
    pattern: str
    says: str
    source: str
    hint: str = ""

    def __post_init__(self) -> None:
        try:
            re.compile(self.pattern)
        except re.error as error:
            raise ValueError(f"{self.name}: {self.pattern!r} is not a regular expression: {error}") from error

    def may_be_in(self, lines: str) -> bool:
        """Whether one of several lines may match: what is asked for once instead of for each of them."""
        looks_around = any(part in self.pattern for part in ("(?!", "(?<", "\\A", "\\Z"))
        return looks_around or re.search(self.pattern, lines, re.MULTILINE) is not None

    def found_in(self, text: str) -> Finding | None:
        """The finding, if ``text`` matches."""
        if re.search(self.pattern, text) is None:
            return None
        line, fault_class = text[:_LINE_CHARS], self.fault_class
        return Finding(name=self.name, fault_class=fault_class, says=self.says, line=line, hint=self.hint)
