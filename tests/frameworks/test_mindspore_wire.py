"""MindSpore's cluster protocol: the bytes that were seen on the wire of 2.10.0, and any others."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from faultrun.frameworks.mindspore_wire import (
    MAX_FRAME_BYTES,
    Frames,
    Name,
    NotUnderstood,
    SchedulerRequest,
    frame,
    read_fields,
    read_request,
    write_fields,
)

ASKED: dict[bytes, SchedulerRequest] = {
    b'0|\n\x011\x12\x05hostB\x1a\tMS_WORKER"\t127.0.0.1(\x01': SchedulerRequest(
        name=Name.REGISTER, node="1", host="hostB", role="MS_WORKER"
    ),
    b"1|\n\x010": SchedulerRequest(name=Name.UNREGISTER, node="0"),
    b"2|\n\x010": SchedulerRequest(name=Name.HEARTBEAT, node="0"),
    b"6|\n MCCL_COLLECTIVE_RANK_MS_WORKER_0\x12\x0e127.0.0.1:8118": SchedulerRequest(
        name=Name.WRITE, key=b"MCCL_COLLECTIVE_RANK_MS_WORKER_0", value=b"127.0.0.1:8118"
    ),
    b"7|\n MCCL_COLLECTIVE_RANK_MS_WORKER_1": SchedulerRequest(
        name=Name.READ, key=b"MCCL_COLLECTIVE_RANK_MS_WORKER_1"
    ),
    b"8|\n\x01k": SchedulerRequest(name=Name.DELETE, key=b"k"),
    b"9|MS_WORKER": SchedulerRequest(name=Name.HOST_NAMES),
}
"""What workers of 2.10.0 sent: name and body."""

TOLD = {
    b"RPC0\0\0\0\x01\0\0\0\x10\0\0\0\x01\0\0\0\x063@127.0.0.1:34697@\x08\x01\x10\x01\x18\x02": (
        Name.SUCCESS,
        write_fields({1: 1, 2: 1, 3: 2}),
    ),
    b"RPC0\0\0\0\x01\0\0\0\x10\0\0\0\x01\0\0\0\x043@127.0.0.1:34697@\x08\x01\x18\x02": (
        Name.SUCCESS,
        write_fields({1: 1, 2: 0, 3: 2}),
    ),
    b"RPC0\0\0\0\x02\0\0\0\x10\0\0\0\x01\0\0\0\x0811@127.0.0.1:34697@\n\x01k\x12\x03vvv": (
        Name.FOUND,
        write_fields({1: b"k", 2: b"vvv"}),
    ),
    b"RPC0\0\0\0\x02\0\0\0\x10\0\0\0\x01\0\0\0\x0712@127.0.0.1:34697@\n\x05nokey": (
        Name.MISSING,
        write_fields({1: b"nokey"}),
    ),
    b"RPC0\0\0\0\x01\0\0\0\x10\0\0\0\x01\0\0\0\x013@127.0.0.1:34697@3": (Name.SUCCESS, b"3"),
    b"RPC0\0\0\0\x01\0\0\0\x10\0\0\0\x01\0\0\0\x015@127.0.0.1:34697@5": (Name.INCOMPLETE, b"5"),
}
"""What the scheduler process of 2.10.0 sent, and how we would say it."""


def sent(name: bytes, body: bytes, sender: bytes = b"4711@127.0.0.1:40123") -> bytes:
    """A frame as a worker sends it: it names itself, which nobody reads."""
    to = b"@127.0.0.1:34697"
    lengths = (len(name), len(to), len(sender), len(body))
    return b"RPC0" + b"".join(length.to_bytes(4, "big") for length in lengths) + name + to + sender + body


@pytest.mark.parametrize("seen", ASKED, ids=lambda seen: repr(ASKED[seen])[:20])
def test_what_workers_ask_is_understood(seen: bytes) -> None:
    name, _, body = seen.partition(b"|")
    assert read_request(name, body) == ASKED[seen]


@pytest.mark.parametrize("seen", TOLD, ids=lambda seen: repr(seen[36:50]))
def test_we_answer_byte_for_byte_as_the_scheduler_process_did(seen: bytes) -> None:
    name, body = TOLD[seen]
    assert frame(name, body, ("127.0.0.1", 34697)) == seen


def test_on_another_host_the_scheduler_names_that_host() -> None:
    assert b"@10.77.0.1:25762@" in frame(Name.SUCCESS, b"3", ("10.77.0.1", 25762))


@settings(deadline=None)
@given(cuts=st.lists(st.integers(1, 400), max_size=20))
def test_frames_arrive_whole_however_the_bytes_are_cut(cuts: list[int]) -> None:
    messages = [tuple(seen.partition(b"|")[::2]) for seen in ASKED]
    stream = b"".join(sent(*message) for message in messages)
    frames, found = Frames(), []
    for cut in [*cuts, len(stream)]:
        found += frames.feed(stream[:cut])
        stream = stream[cut:]
    assert found == messages


@settings(deadline=None)
@given(
    data=st.binary(max_size=200),
    name=st.sampled_from([b"0", b"1", b"2", b"6", b"7", b"8", b"9", b"10", b"x"]),
)
def test_whatever_a_body_holds_it_is_a_request_or_not_understood(data: bytes, name: bytes) -> None:
    try:
        assert read_request(name, data) is not None
    except NotUnderstood as error:
        assert str(error)


@settings(deadline=None)
@given(data=st.lists(st.binary(max_size=60) | st.just(sent(b"2", b"\n\x010")), max_size=6))
def test_whatever_arrives_it_is_frames_or_not_understood(data: list[bytes]) -> None:
    frames = Frames()
    try:
        for piece in data:
            frames.feed(piece)
    except NotUnderstood as error:
        assert str(error)


def test_a_frame_that_claims_to_be_huge_is_refused_before_it_is_kept() -> None:
    head = b"RPC0" + b"".join(length.to_bytes(4, "big") for length in (1, 1, 1, MAX_FRAME_BYTES))
    with pytest.raises(NotUnderstood, match="a frame of"):
        Frames().feed(head)


@settings(deadline=None)
@given(
    st.dictionaries(
        st.integers(1, 15), st.integers(1, 2**63) | st.binary(min_size=1, max_size=300), max_size=6
    )
)
def test_fields_that_were_written_are_read_back(fields: dict[int, int | bytes]) -> None:
    assert read_fields(write_fields(fields)) == fields


@pytest.mark.parametrize(
    "body", [b"\n", b"\n\x05ab", b"\x80" * 11, b"\x0b", b"\n\xff\xff\xff\xff\xff\xff\xff\xff\x7f"]
)
def test_a_body_that_is_cut_off_is_not_understood(body: bytes) -> None:
    with pytest.raises(NotUnderstood):
        read_fields(body)
