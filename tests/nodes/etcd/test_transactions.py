"""What a run wants written, told in etcd's terms; and what etcd makes of it."""

from faultrun.model.topology import BootId, NodeId
from faultrun.nodes.etcd.gateway import Gateway
from faultrun.nodes.etcd.lease import grant
from faultrun.nodes.etcd.store import read, transact
from faultrun.nodes.etcd.transactions import Committed, GuardedWrite, GuardFailed, WriteKey, in_etcds_terms
from faultrun.nodes.values.roster import Leadership
from faultrun.nodes.values.transaction import (
    Absent,
    Compare,
    CreatedAt,
    Delete,
    NothingNewer,
    Operation,
    Put,
    Transaction,
    Unchanged,
)

LED = Leadership(node=NodeId("a"), boot=BootId("b"))


def told(*compares: Compare, then: tuple[Operation, ...], root: str = "/r/", lease: int = 7) -> GuardedWrite:
    transaction = Transaction(what="a test", compares=compares, then=then)
    return in_etcds_terms(
        transaction, root=root, lease=lease, encode=lambda value: f"as {type(value).__name__}"
    )


def test_keys_lie_below_the_root_and_only_what_is_leased_gets_the_lease() -> None:
    write = told(
        Absent(key="a"),
        Unchanged(key="b", changed=3),
        CreatedAt(key="c", created=4),
        NothingNewer(key="node/", revision=5),
        then=(Put(key="d", value=LED), Put(key="e", value=LED, leased=True), Delete(key="f")),
    )
    assert write.guards == (
        Absent(key="/r/a"),
        Unchanged(key="/r/b", changed=3),
        CreatedAt(key="/r/c", created=4),
        NothingNewer(key="/r/node/", revision=5),
    )
    assert write.then == (
        WriteKey(key="/r/d", value="as Leadership"),
        WriteKey(key="/r/e", value="as Leadership", lease=7),
        Delete(key="/r/f"),
    )


def test_every_compare_holds_or_fails_in_a_real_etcd(gateway: Gateway, prefix: str) -> None:
    lease = grant(gateway, 60).lease

    def done(*compares: Compare) -> bool:
        write = told(*compares, then=(Put(key="x/a", value=LED, leased=True),), root=prefix, lease=lease)
        outcome = transact(gateway, write)
        assert isinstance(outcome, Committed | GuardFailed)
        return isinstance(outcome, Committed)

    assert done(Absent(key="x/a"), NothingNewer(key="x/", revision=1))
    first = read(gateway, prefix).keys[f"{prefix}x/a"]
    assert (first.value, first.lease, first.created) == ("as Leadership", lease, first.changed)
    assert not done(Absent(key="x/a"))
    assert done(Unchanged(key="x/a", changed=first.changed), CreatedAt(key="x/a", created=first.created))
    assert not done(Unchanged(key="x/a", changed=first.changed))
    assert done(CreatedAt(key="x/a", created=first.created))
    assert not done(CreatedAt(key="x/a", created=first.created - 1))
    assert not done(NothingNewer(key="x/", revision=first.changed))
    assert done(NothingNewer(key="x/", revision=read(gateway, prefix).revision))
