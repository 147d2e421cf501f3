"""The rendezvous as stories: who asks when, and who is answered then."""

import json
from collections.abc import Iterator
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from faultrun.frameworks.mindspore_cluster import MindSporeCluster, SchedulerAnswer
from faultrun.frameworks.mindspore_wire import (
    Frames,
    Name,
    NotUnderstood,
    SchedulerRequest,
    frame,
    read_fields,
    read_request,
)

register, unregister, heartbeat, write, read, delete = (
    partial(SchedulerRequest, name=name)
    for name in (Name.REGISTER, Name.UNREGISTER, Name.HEARTBEAT, Name.WRITE, Name.READ, Name.DELETE)
)


def joins(rank: int, role: str = "MS_WORKER") -> SchedulerRequest:
    return register(node=str(rank), host=f"host{rank}", role=role)


def key(rank: int) -> bytes:
    return b"MCCL_COLLECTIVE_RANK_MS_WORKER_%d" % rank


def told(answers: list[SchedulerAnswer]) -> list[tuple[int, Name]]:
    return [(answer.link, answer.name) for answer in answers]


def formed(size: int) -> MindSporeCluster:
    """All ranks through ``init()``; rank r registered on link r and asks on link 100+r."""
    cluster = MindSporeCluster(size)
    for rank in range(size):
        cluster.receive(rank, joins(rank))
    for rank in range(size):
        cluster.receive(100 + rank, write(key=key(rank), value=b"127.0.0.1:8118"))
        for peer in range(size):
            cluster.receive(100 + rank, read(key=key(peer)))
    assert cluster.formed
    return cluster


def dies(cluster: MindSporeCluster, rank: int) -> list[SchedulerAnswer]:
    return [*cluster.lose(rank), *cluster.lose(100 + rank)]


@pytest.mark.parametrize("order", [[0, 1, 2, 3], [3, 1, 0, 2]])
def test_nobody_is_welcome_before_the_last_rank_is_there(order: list[int]) -> None:
    cluster = MindSporeCluster(4)
    for rank in order[:-1]:
        assert cluster.receive(10 + rank, joins(rank)) == []
    assert not cluster.complete

    answers = cluster.receive(10 + order[-1], joins(order[-1]))

    assert told(answers) == [(10 + rank, Name.SUCCESS) for rank in range(4)]
    assert [read_fields(answer.body).get(2, 0) for answer in answers] == [0, 1, 2, 3]
    assert {read_fields(answer.body)[3] for answer in answers} == {4}


def test_a_worker_that_lost_its_patience_registers_again_and_is_answered_where_it_asked_last() -> None:
    cluster = MindSporeCluster(2)
    cluster.receive(10, joins(0))
    cluster.lose(10)
    assert cluster.ranks == frozenset()
    cluster.receive(11, joins(0))
    cluster.receive(12, joins(0))
    assert told(cluster.receive(20, joins(1))) == [(12, Name.SUCCESS), (20, Name.SUCCESS)]


def test_a_registration_whose_connection_broke_is_not_answered_there() -> None:
    cluster = MindSporeCluster(2)
    cluster.receive(1, joins(0))
    cluster.receive(2, heartbeat(node="0"))
    cluster.lose(1)
    assert cluster.receive(3, joins(1)) == []
    assert told(cluster.receive(4, joins(0))) == [(4, Name.SUCCESS), (3, Name.SUCCESS)]


def test_every_first_heartbeat_says_that_the_cluster_is_complete() -> None:
    cluster = MindSporeCluster(2)
    assert read_fields(cluster.receive(0, heartbeat(node="0"))[0].body) == {1: 1, 3: 2}
    cluster.receive(0, joins(0))
    cluster.receive(1, joins(1))
    assert read_fields(cluster.receive(0, heartbeat(node="0"))[0].body) == {1: 1, 2: 1, 3: 2}


def test_the_address_of_a_peer_is_waited_for_and_any_other_key_is_not() -> None:
    cluster = MindSporeCluster(2)
    assert cluster.receive(5, read(key=key(1))) == []
    assert cluster.receive(5, read(key=key(1))) == []
    assert told(cluster.receive(6, read(key=b"else"))) == [(6, Name.MISSING)]

    (answer,) = cluster.receive(7, write(key=key(1), value=b"127.0.0.1:8374"))

    assert (answer.link, answer.name) == (5, Name.FOUND)
    assert read_fields(answer.body) == {1: key(1), 2: b"127.0.0.1:8374"}


def test_keys_are_written_read_and_deleted() -> None:
    cluster = MindSporeCluster(1)
    assert told(cluster.receive(0, delete(key=b"k"))) == [(0, Name.MISSING)]
    assert cluster.receive(0, write(key=b"k", value=b"v")) == []
    assert read_fields(cluster.receive(0, read(key=b"k"))[0].body) == {1: b"k", 2: b"v"}
    assert told(cluster.receive(0, delete(key=b"k"))) == [(0, Name.FOUND)]
    assert told(cluster.receive(0, read(key=b"k"))) == [(0, Name.MISSING)]


def test_hosts_are_told_by_rank_once_all_are_known() -> None:
    cluster = MindSporeCluster(2)
    cluster.receive(1, joins(1))
    assert told(cluster.receive(1, SchedulerRequest(name=Name.HOST_NAMES))) == [(1, Name.MISSING)]
    cluster.receive(0, joins(0))
    (answer,) = cluster.receive(1, SchedulerRequest(name=Name.HOST_NAMES))
    assert json.loads(answer.body) == {"hostnames": ["host0", "host1"]}


def test_the_cluster_has_formed_when_every_rank_was_told_every_address() -> None:
    assert formed(3).complete
    half = MindSporeCluster(2)
    half.receive(0, joins(0))
    half.receive(1, joins(1))
    half.receive(0, write(key=key(0), value=b"a"))
    half.receive(0, read(key=key(0)))
    assert not half.formed


def test_whoever_leaves_first_waits_for_the_others() -> None:
    cluster = formed(3)
    assert cluster.receive(2, unregister(node="2")) == []
    assert cluster.receive(0, unregister(node="0")) == []
    answers = cluster.receive(1, unregister(node="1"))
    assert [(answer.link, answer.body) for answer in answers] == [(0, b"3"), (1, b"3"), (2, b"3")]


def test_whoever_died_is_not_waited_for() -> None:
    cluster = formed(3)
    cluster.receive(0, unregister(node="0"))
    assert dies(cluster, 1) == []
    assert told(dies(cluster, 2)) == [(0, Name.SUCCESS)]


def test_a_worker_that_gave_up_its_heartbeat_is_still_there() -> None:
    cluster = formed(2)
    assert cluster.lose(0) == cluster.lose(1) == []
    assert cluster.receive(100, unregister(node="0")) == []
    assert told(cluster.receive(101, unregister(node="1"))) == [(100, Name.SUCCESS), (101, Name.SUCCESS)]


def test_a_worker_that_lost_its_patience_and_left_keeps_nobody() -> None:
    cluster = formed(2)
    cluster.receive(100, unregister(node="0"))
    assert dies(cluster, 0) == []
    assert told(cluster.receive(101, unregister(node="1"))) == [(101, Name.SUCCESS)]


def test_a_worker_that_asks_to_leave_again_is_answered_when_the_others_leave() -> None:
    cluster = formed(2)
    cluster.receive(0, unregister(node="0"))
    assert cluster.receive(50, unregister(node="0")) == []
    assert told(cluster.receive(1, unregister(node="1"))) == [(50, Name.SUCCESS), (1, Name.SUCCESS)]


def test_nobody_leaves_a_cluster_that_never_was_complete() -> None:
    cluster = MindSporeCluster(2)
    cluster.receive(0, joins(0))
    assert told(cluster.receive(0, unregister(node="0"))) == [(0, Name.INCOMPLETE)]


def test_a_connection_that_was_replaced_after_the_start_may_break() -> None:
    cluster = formed(2)
    cluster.receive(30, heartbeat(node="0"))
    cluster.lose(0)
    cluster.receive(1, unregister(node="1"))
    assert told(cluster.receive(30, unregister(node="0"))) == [(30, Name.SUCCESS), (1, Name.SUCCESS)]


def test_workers_that_all_left_may_form_a_cluster_again() -> None:
    cluster = formed(2)
    for rank in range(2):
        cluster.receive(rank, unregister(node=str(rank)))
    assert cluster.receive(7, joins(1)) == []
    assert not cluster.complete
    assert told(cluster.receive(8, joins(0))) == [(8, Name.SUCCESS), (7, Name.SUCCESS)]


@pytest.mark.parametrize(
    "request_",
    [
        register(node="2", host="h", role="MS_WORKER"),
        register(node="d0c2-random", host="h", role="MS_WORKER"),
        register(node="0", host="h", role="MS_SERVER"),
        register(node="0", host="h" * 300, role="MS_WORKER"),
        heartbeat(node=""),
        unregister(node="-1"),
        heartbeat(node="²"),
    ],
    ids=repr,
)
def test_a_node_that_is_not_ours_is_not_understood(request_: SchedulerRequest) -> None:
    with pytest.raises(NotUnderstood):
        MindSporeCluster(2).receive(0, request_)


def test_what_is_kept_is_bounded() -> None:
    cluster = MindSporeCluster(2)
    with pytest.raises(NotUnderstood, match="bytes to keep"):
        for number in range(200):
            cluster.receive(0, write(key=b"%d" % number, value=bytes(200_000)))
    with pytest.raises(NotUnderstood, match="addresses"):
        for number in range(200):
            cluster.receive(0, read(key=key(number)))
    for _ in range(1000):
        cluster.receive(0, write(key=b"0", value=bytes(200_000)))


nodes = st.sampled_from(["0", "1", "2", "x", ""])
keys = st.sampled_from([key(0), key(1), b"k", b""])
requests: st.SearchStrategy[SchedulerRequest] = st.one_of(
    st.builds(register, node=nodes, host=st.text(max_size=3), role=st.just("MS_WORKER")),
    st.builds(unregister, node=nodes),
    st.builds(heartbeat, node=nodes),
    st.builds(write, key=keys, value=st.binary(max_size=3)),
    st.builds(read, key=keys),
    st.builds(delete, key=keys),
    st.just(SchedulerRequest(name=Name.HOST_NAMES)),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 5), st.none() | requests), max_size=60))
def test_whatever_is_asked_nothing_breaks_and_only_who_asked_is_answered(
    story: list[tuple[int, SchedulerRequest | None]],
) -> None:
    cluster, waiting = MindSporeCluster(2), set[int]()
    for link, request in story:
        for answer in _played(cluster, link, request):
            assert answer.link in waiting | {link}
        waiting = waiting | {link} if request is not None else waiting - {link}


def _played(
    cluster: MindSporeCluster, link: int, request: SchedulerRequest | None
) -> Iterator[SchedulerAnswer]:
    try:
        yield from cluster.lose(link) if request is None else cluster.receive(link, request)
    except NotUnderstood as error:
        assert str(error)


pieces = st.binary(max_size=30) | st.builds(
    lambda name, body: (
        b"RPC0" + b"".join(n.to_bytes(4, "big") for n in (len(name), 0, 0, len(body))) + name + body
    ),
    st.sampled_from([b"0", b"1", b"2", b"6", b"7", b"8", b"9", b"10", b""]),
    st.binary(max_size=12)
    | st.sampled_from([b"\n\x010\x1a\tMS_WORKER", b"\n\x011\x1a\tMS_WORKER", b"\n\x010"]),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), pieces), max_size=30))
def test_whatever_bytes_arrive_they_are_answered_or_not_understood(story: list[tuple[int, bytes]]) -> None:
    cluster = MindSporeCluster(2)
    streams = {link: Frames() for link in range(4)}
    for link, data in story:
        if not _understood(cluster, streams[link], link, data):
            streams[link] = Frames()
            cluster.lose(link)


def _understood(cluster: MindSporeCluster, frames: Frames, link: int, data: bytes) -> bool:
    try:
        for name, body in frames.feed(data):
            for answer in cluster.receive(link, read_request(name, body)):
                assert frame(answer.name, answer.body, ("127.0.0.1", 8118)).startswith(b"RPC0")
    except NotUnderstood as error:
        return not str(error)
    return True
