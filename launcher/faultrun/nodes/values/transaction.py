"""One write to the run's keys, all of it or nothing: what must still hold, and what is then changed.

It says what, in no store's own words: ``nodes/etcd`` tells it to etcd. A revision counts the changes
of the whole store; a key has the one at which it was created and the one at which it changed last.
"""

from dataclasses import dataclass

from faultrun.model.plan import Plan
from faultrun.nodes.values.roster import Alarm, Leadership, PlanHeader, Roster, Statement

StoredValue = Statement | Leadership | Alarm | PlanHeader | Roster | Plan
"""What a key of the run holds; which of them its name tells (``nodes.values.membership.value_type``)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Absent:
    """There is no such key."""

    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Unchanged:
    """The key is there, and was changed last at this revision."""

    key: str
    changed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatedAt:
    """The key is there, and was created at this revision: it is the same one still."""

    key: str
    created: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NothingNewer:
    """No key that begins with ``key`` was changed after this revision; that some ended is no change."""

    key: str
    revision: int


Compare = Absent | Unchanged | CreatedAt | NothingNewer


@dataclass(frozen=True, slots=True, kw_only=True)
class Put:
    """Write a key. ``leased``: it ends with this node's lease, which the writer knows."""

    key: str
    value: StoredValue
    leased: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Delete:
    """Remove a key, if it is there."""

    key: str


Operation = Put | Delete


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction:
    """``then`` is done as a whole if every compare holds, else nothing is. ``what`` is for people."""

    what: str
    compares: tuple[Compare, ...]
    then: tuple[Operation, ...]
