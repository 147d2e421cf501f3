"""A watch and a lease while members of a real etcd hang, die or are cut off: no key is missed, no lease ends.

Whoever writes asks other members than whoever watches, so only its own keepalives show the watching
client that its member is gone. Nothing is healed before every key was seen.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest
from benchmarks.harness.netns import refused

from faultrun.model.spec.nodes_spec import EtcdAccess
from faultrun.nodes.etcd.gateway import Gateway
from faultrun.nodes.etcd.lease import LeaseGone, LeaseKeeper, Renewal, grant
from faultrun.nodes.etcd.prefix_watch import PrefixWatch
from faultrun.nodes.etcd.store import transact
from faultrun.nodes.etcd.transactions import Committed, GuardedWrite, WriteKey
from support.machine.processes import PATIENCE_S, wait_until
from support.nodes.etcd_cluster import EtcdCluster
from support.nodes.hosts import Host, Network, network

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(refused()), reason=f"hosts have no links here: {refused()}"),
]

_TTL_S = 30.0
_RENEWED_AS_IF_OF_S = 6.0
_BEFORE = 20
_AFTER = 20

Fault = Callable[[Network, Host], None]

FAULTS: dict[str, Fault] = {
    "hangs": lambda hosts, member: member.freeze(),
    "is killed": lambda hosts, member: member.kill(),
    "loses its link": lambda hosts, member: hosts.cut(member),
    "loses the other members": lambda hosts, member: hosts.part(
        [member], [other for other in hosts.hosts.values() if other is not member]
    ),
}


@pytest.fixture(scope="module")
def cluster(program: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Network, EtcdCluster]]:
    """Three members of this etcd on hosts of their own; the test is on the desk, which reaches all."""
    with network("e0", "e1", "e2") as hosts, hosts.desk.inside():
        etcd = EtcdCluster(hosts, ("e0", "e1", "e2"), tmp_path_factory.mktemp("cluster"), program)
        etcd.start()
        yield hosts, etcd


class Client:
    """One node's: a watch and a lease on one gateway, beginning at ``first``."""

    def __init__(self, etcd: EtcdCluster, first: Host, prefix: str) -> None:
        access = _from(etcd, first)
        with closing(Gateway(replace(access, endpoints=access.endpoints[:1]))) as only:
            granted = grant(only, _TTL_S, within_s=PATIENCE_S)  # once it has come back from the test before
        self.gateway = Gateway(access)
        self.rung = threading.Event()
        self.lost: list[LeaseGone] = []
        self.troubles: list[Exception] = []
        self.watch = PrefixWatch(
            self.gateway, prefix, changed=self.rung.set, troubled=self.troubles.append, silence_s=600
        )
        self.keeper = LeaseKeeper(
            self.gateway,
            replace(granted, ttl_s=_RENEWED_AS_IF_OF_S),
            may_renew=lambda: True,
            tell=self._hear,
            troubled=self.troubles.append,
        )
        self.watch.start()
        self.keeper.start()

    def await_keys(self, keys: set[str]) -> None:
        while (state := self.watch.state()) is None or not keys <= set(state.keys):
            missing = keys - set(state.keys if state else ())
            assert self.rung.wait(PATIENCE_S), f"{len(missing)} keys were missed: {self.troubles}"
            self.rung.clear()

    def close(self) -> None:
        self.gateway.close()
        self.watch.close()
        self.keeper.close()

    def _hear(self, news: Renewal | LeaseGone) -> None:
        if isinstance(news, LeaseGone):
            self.lost.append(news)


class Writer:
    """Writes key after key at another member, and knows which of them are certainly there."""

    def __init__(self, etcd: EtcdCluster, first: Host, prefix: str) -> None:
        self.gateway = Gateway(_from(etcd, first))
        self.written: set[str] = set()
        self._prefix = prefix
        self._numbers = count()

    def write(self, keys: int) -> None:
        """Until so many more are there."""
        until = len(self.written) + keys
        while len(self.written) < until:
            key = f"{self._prefix}{next(self._numbers)}"
            write = GuardedWrite(then=(WriteKey(key=key, value="x"),))
            if isinstance(transact(self.gateway, write, within_s=PATIENCE_S), Committed):
                self.written.add(key)

    def close(self) -> None:
        self.gateway.close()


def _from(etcd: EtcdCluster, first: Host) -> EtcdAccess:
    """Every endpoint, that of ``first`` in front."""
    endpoints = etcd.endpoints.split(",")
    at = list(etcd.members.values()).index(first)
    return EtcdAccess(endpoints=(*endpoints[at:], *endpoints[:at]))


@pytest.mark.parametrize(
    ("member", "fault"),
    [
        ("leader", "hangs"),
        ("follower", "hangs"),
        ("leader", "is killed"),
        ("leader", "loses its link"),
        ("follower", "loses its link"),
        ("leader", "loses the other members"),
    ],
)
def test_no_key_is_missed_when_the_member_of_the_watch(
    member: str, fault: str, cluster: tuple[Network, EtcdCluster], prefix: str
) -> None:
    hosts, etcd = cluster
    leader = etcd.await_leader()
    followers = [host for host in etcd.members.values() if host is not leader]
    struck, other = (leader, followers[0]) if member == "leader" else (followers[0], followers[1])
    with ExitStack() as stack:
        client, writer = Client(etcd, struck, prefix), Writer(etcd, other, prefix)
        stack.callback(client.close)
        stack.callback(writer.close)
        writer.write(_BEFORE)
        client.await_keys(writer.written)
        FAULTS[fault](hosts, struck)
        writer.write(_AFTER)
        client.await_keys(writer.written)
        assert client.lost == []
    hosts.heal()
    struck.thaw()
    if not struck.pids:
        etcd.start_member(struck)
    etcd.await_leader()


def test_a_dead_member_delays_nobody_for_ever(cluster: tuple[Network, EtcdCluster], prefix: str) -> None:
    _, etcd = cluster
    dead, *rest = etcd.members.values()
    dead.kill()
    etcd.await_leader(rest)
    with ExitStack() as stack:
        client, writer = Client(etcd, rest[0], prefix), Writer(etcd, dead, prefix)
        stack.callback(client.close)
        stack.callback(writer.close)
        writer.write(_BEFORE)
        client.await_keys(writer.written)
        assert client.lost == []
    etcd.start_member(dead)
    etcd.await_leader()


def test_no_key_is_missed_and_no_lease_ends_while_all_members_are_away(
    cluster: tuple[Network, EtcdCluster], prefix: str
) -> None:
    _, etcd = cluster
    first, second, _ = etcd.members.values()
    with ExitStack() as stack:
        client, writer = Client(etcd, first, prefix), Writer(etcd, second, prefix)
        stack.callback(client.close)
        stack.callback(writer.close)
        writer.write(_BEFORE)
        client.await_keys(writer.written)
        for member in etcd.members.values():
            member.kill()
        wait_until(lambda: client.troubles, what="a word of it")
        for member in etcd.members.values():
            etcd.start_member(member)
        etcd.await_leader()
        writer.write(_AFTER)
        client.await_keys(writer.written)
        assert client.lost == []
