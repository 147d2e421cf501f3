"""A transaction in etcd's terms: whole keys, texts, numbers of leases. ``store.transact`` does it."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from faultrun.errors import assert_never
from faultrun.nodes.values.transaction import (
    Absent,
    Compare,
    CreatedAt,
    Delete,
    NothingNewer,
    Put,
    StoredValue,
    Transaction,
    Unchanged,
)

MOST_OPERATIONS = 128
"""etcd's default of --max-txn-ops, for the guards and for the writes."""


class GuardKind(Enum):
    """What must hold for a key and a revision."""

    CREATED_AT = "it was created then, and lives since; 0: there is no such key"
    CHANGED_AT = "it was written last then; 0: there is no such key"
    NOTHING_NEWER = "no key that begins so was written after that; that some have ended is no change"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyGuard:
    """One thing that must hold."""

    key: str
    kind: GuardKind
    revision: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteKey:
    """Give a key a value; with a lease the key ends when the lease does."""

    key: str
    value: str
    lease: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveKey:
    """End a key; nothing happens where there is none."""

    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardedWrite:
    """All of ``then`` is done at one revision if every guard holds, else nothing is."""

    guards: tuple[KeyGuard, ...] = ()
    then: tuple[WriteKey | RemoveKey, ...]

    def __post_init__(self) -> None:
        """ValueError: etcd would refuse it."""
        if max(len(self.guards), len(self.then)) > MOST_OPERATIONS:
            raise ValueError(f"a transaction of etcd has at most {MOST_OPERATIONS} guards and writes")


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """Everything was done, at ``revision``."""

    revision: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardFailed:
    """A guard did not hold, and nothing was done. ``revision``: when that was so."""

    revision: int


def in_etcds_terms(
    transaction: Transaction, *, root: str, lease: int, encode: Callable[[StoredValue], str]
) -> GuardedWrite:
    """What a run wants written, below ``root``; ``lease`` is this node's."""

    def operation(put_or_delete: Put | Delete) -> WriteKey | RemoveKey:
        key = root + put_or_delete.key
        if isinstance(put_or_delete, Delete):
            return RemoveKey(key=key)
        leased = lease if put_or_delete.leased else 0
        return WriteKey(key=key, value=encode(put_or_delete.value), lease=leased)

    return GuardedWrite(
        guards=tuple(_guard(compare, root) for compare in transaction.compares),
        then=tuple(map(operation, transaction.then)),
    )


def _guard(compare: Compare, root: str) -> KeyGuard:
    match compare:
        case Absent(key=key):
            return KeyGuard(key=root + key, kind=GuardKind.CREATED_AT, revision=0)
        case Unchanged(key=key, changed=revision):
            return KeyGuard(key=root + key, kind=GuardKind.CHANGED_AT, revision=revision)
        case CreatedAt(key=key, created=revision):
            return KeyGuard(key=root + key, kind=GuardKind.CREATED_AT, revision=revision)
        case NothingNewer(folder=folder, revision=revision):
            return KeyGuard(key=root + folder, kind=GuardKind.NOTHING_NEWER, revision=revision)
        case _:
            assert_never(compare)
