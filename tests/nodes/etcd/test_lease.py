"""Leases of a real etcd: renewed, not renewed, ended, and what their clock says."""

import queue
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest

from faultrun.nodes.etcd.answers import EtcdRefused, EtcdSilent
from faultrun.nodes.etcd.clock import boot_now
from faultrun.nodes.etcd.gateway import Gateway
from faultrun.nodes.etcd.lease import LeaseGone, LeaseKeeper, Renewal, grant, renew, revoke
from faultrun.nodes.etcd.store import read, transact
from faultrun.nodes.etcd.transactions import GuardedWrite, WriteKey
from support.machine.processes import wait_until
from support.nodes.etcd_cluster import EtcdMember
from support.nodes.silent_server import http_answer, listening

pytestmark = pytest.mark.long

PATIENCE_S = 30.0

News = Renewal | LeaseGone | Exception


class Kept:
    """A keeper whose news and troubles come out of one queue."""

    def __init__(self, gateway: Gateway, granted: Renewal) -> None:
        self.news: queue.Queue[News] = queue.Queue()
        self.well = True
        self.keeper = LeaseKeeper(
            gateway, granted, may_renew=lambda: self.well, tell=self.news.put, troubled=self.news.put
        )
        self.keeper.start()

    def close(self) -> None:
        self.keeper.close()

    def next(self) -> News:
        return self.news.get(timeout=PATIENCE_S)


@pytest.fixture
def keep() -> Iterator[Callable[[Gateway, Renewal], Kept]]:
    kept: list[Kept] = []

    def begin(gateway: Gateway, granted: Renewal) -> Kept:
        kept.append(Kept(gateway, granted))
        return kept[-1]

    yield begin
    for keeper in kept:
        keeper.close()


def test_the_time_of_a_lease_runs_from_before_it_was_given(gateway: Gateway) -> None:
    asked_s = boot_now()
    granted = grant(gateway, 9.5)
    assert granted.ttl_s == 10.0
    assert asked_s <= granted.sent_at_s <= boot_now()


def test_a_lease_shorter_than_an_election_is_as_long_as_etcd_says(gateway: Gateway) -> None:
    assert grant(gateway, 0.1).ttl_s >= 1.0


def test_a_keepalive_gives_the_whole_time_again(gateway: Gateway) -> None:
    granted = grant(gateway, 60)
    renewed = renew(gateway, granted.lease)
    assert isinstance(renewed, Renewal)
    assert (renewed.lease, renewed.ttl_s) == (granted.lease, 60.0)
    assert renewed.sent_at_s > granted.sent_at_s


def test_a_lease_that_has_ended_is_told_so(gateway: Gateway) -> None:
    granted = grant(gateway, 60)
    revoke(gateway, granted.lease)
    assert renew(gateway, granted.lease) == LeaseGone(lease=granted.lease)
    assert renew(gateway, 12345) == LeaseGone(lease=12345)


def test_keys_live_as_long_as_the_lease_is_kept_and_end_with_it(
    gateway: Gateway, prefix: str, keep: Callable[[Gateway, Renewal], Kept]
) -> None:
    granted = grant(gateway, 2)
    transact(gateway, GuardedWrite(then=(WriteKey(key=prefix, value="x", lease=granted.lease),)))
    kept = keep(gateway, granted)
    last = granted
    while last.sent_at_s < granted.sent_at_s + granted.ttl_s:
        if isinstance(news := kept.next(), EtcdSilent):  # a renewal that took long is followed by the next
            continue
        assert isinstance(news, Renewal)
        assert news.sent_at_s > last.sent_at_s
        last = news
    assert prefix in read(gateway, prefix).keys
    kept.well = False
    wait_until(lambda: prefix not in read(gateway, prefix).keys, what="the end of the lease")
    assert boot_now() > last.sent_at_s + last.ttl_s
    kept.well = True
    wait_until(lambda: isinstance(kept.next(), LeaseGone), what="the word of it")


def test_a_member_that_is_silent_is_trouble_and_the_renewals_go_on(
    member: EtcdMember, open_gateway: Callable[..., Gateway], keep: Callable[[Gateway, Renewal], Kept]
) -> None:
    granted = grant(open_gateway(member.endpoint), 60)
    with listening(None) as silent:
        gateway = open_gateway(silent.endpoint, attempt_s=0.02)
        short = Renewal(lease=granted.lease, ttl_s=0.2, sent_at_s=granted.sent_at_s)
        kept = keep(gateway, short)
        assert isinstance(kept.next(), EtcdSilent)
        assert isinstance(kept.next(), EtcdSilent)


def test_a_keepalive_that_is_not_answered_moves_to_another_member(
    member: EtcdMember, open_gateway: Callable[..., Gateway]
) -> None:
    granted = grant(open_gateway(member.endpoint), 60)
    with listening(None) as silent:
        gateway = open_gateway(silent.endpoint, member.endpoint, attempt_s=0.05)
        assert isinstance(renew(gateway, granted.lease, within_s=PATIENCE_S), Renewal)
        assert gateway.current == member.endpoint


@pytest.mark.parametrize("odd", [b'{"result":{"TTL":"soon"}}', b'{"result":{"TTL":[]}}', b"{", b'{"code":2}'])
def test_no_answer_however_odd_ends_the_renewals(
    odd: bytes, open_gateway: Callable[..., Gateway], keep: Callable[[Gateway, Renewal], Kept]
) -> None:
    good = http_answer(200, b'{"result":{"ID":"5","TTL":"10"}}\n')
    with listening(http_answer(200, odd), good) as server:
        kept = keep(open_gateway(server.endpoint), Renewal(lease=5, ttl_s=10.0, sent_at_s=boot_now()))
        wait_until(lambda: isinstance(kept.next(), Renewal), what="a renewal")


def test_a_listener_that_fails_ends_nothing(gateway: Gateway) -> None:
    asked: queue.Queue[bool] = queue.Queue()

    def fail(news: object) -> None:
        asked.put(True)
        raise RuntimeError("a bug")

    granted = Renewal(lease=grant(gateway, 60).lease, ttl_s=0.1, sent_at_s=0.0)
    keeper = LeaseKeeper(gateway, granted, may_renew=lambda: True, tell=fail, troubled=fail)
    with closing(keeper):
        keeper.start()
        for _ in range(4):
            assert asked.get(timeout=PATIENCE_S)


def test_only_revoking_nothing_is_no_error(gateway: Gateway, open_gateway: Callable[..., Gateway]) -> None:
    revoke(gateway, 12345)
    refused = http_answer(403, b'{"error":"x","code":7,"message":"etcdserver: permission denied"}')
    with listening(refused) as server, pytest.raises(EtcdRefused):
        revoke(open_gateway(server.endpoint), 12345)
