"""A transaction in etcd's terms: whole keys, texts, numbers of leases. ``store.transact`` does it."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from faultrun.errors import assert_never
from faultrun.nodes.values.transaction import Compare, Delete, Operation, Put, StoredValue, Transaction

MOST_OPERATIONS = 128
"""etcd's default of --max-txn-ops, for the guards and for the writes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteKey:
    """Give a key a value; with a lease the key ends when the lease does."""

    key: str
    value: str
    lease: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardedWrite:
    """All of ``then`` is done at one revision if every guard holds, else nothing is."""

    guards: tuple[Compare, ...] = ()
    then: tuple[WriteKey | Delete, ...]

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

    def operation(one: Operation) -> WriteKey | Delete:
        match one:
            case Put(key=key, value=value, leased=leased):
                return WriteKey(key=root + key, value=encode(value), lease=lease if leased else 0)
            case Delete(key=key):
                return Delete(key=root + key)
            case _:
                assert_never(one)

    guards = tuple(replace(one, key=root + one.key) for one in transaction.compares)
    return GuardedWrite(guards=guards, then=tuple(map(operation, transaction.then)))
