"""A copy on the next node is the one that its rank made, whole, of this life and run, or there is none."""

import io
import mmap
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from faultrun.model.observed.rendezvous_store import meeting_seal
from faultrun.model.wire import message, parse
from faultrun.sdk.snapshots.buffer import SnapshotFull, SnapshotOwner, Snapshots, Texts, bytes_needed
from faultrun.sdk.snapshots.receiver import Rude, SnapshotReceiver
from faultrun.sdk.snapshots.sender import SHARE, NotHeld, SnapshotSender

OWNER = SnapshotOwner(run_id="run", rank=1)
TEXTS = Texts(label=b"whose", plan=b"plan", pickled=b"p" * 70)
PARTS = 3, 100, 1 << 20, 64
SIZE = bytes_needed(TEXTS, PARTS)
WITHIN_S = 60.0


def state(step: int) -> list[memoryview]:
    return [memoryview(bytearray([step]) * size) for size in PARTS]


def rank_at(*steps: int, incarnation: int = 0, memory: bytearray | None = None) -> Snapshots:
    copies = Snapshots(bytearray(SIZE) if memory is None else memory, OWNER)
    for step in steps:
        copies.write(step, incarnation, TEXTS, state(step))
    return copies


def room(_rank: int, size_bytes: int) -> mmap.mmap:
    return mmap.mmap(-1, size_bytes)


class Nodes:
    """Two ends of a connection, each in a thread of its own where it waits."""

    def __init__(self, receiver: SnapshotReceiver, secret: str = "secret") -> None:
        ours, theirs = socket.socketpair()
        self.receiver, self.ended = receiver, list[bool | Exception]()
        self._ours = ours
        self._thread = threading.Thread(target=self._serve, args=(theirs,), daemon=True)
        self._thread.start()
        ours.settimeout(WITHIN_S)
        self.rests, self._heard = list[float](), ours.makefile("rb")
        self.sender = SnapshotSender(
            self._heard, self.sent, secret, clock=iter(range(10**9)).__next__, rest=self.rests.append
        )
        self.before: Callable[[bytes | memoryview], object] = len

    def sent(self, data: bytes | memoryview) -> None:
        getattr(self, "before", len)(data)
        self._ours.sendall(data)

    def _serve(self, connection: socket.socket) -> None:
        try:
            with connection.makefile("rb") as stream:
                self.ended.append(self.receiver.serve(stream, connection.sendall, bool))
        except (Rude, OSError) as error:
            self.ended.append(error)
        connection.close()

    def hang_up(self) -> bool | Exception:
        with suppress(OSError):
            self._ours.shutdown(socket.SHUT_RDWR)
        self._thread.join(WITHIN_S)
        return self.ended[0]

    def close(self) -> None:
        self.hang_up()
        self._heard.close()
        self._ours.close()


Link = Callable[..., Nodes]


@pytest.fixture
def link() -> Iterator[Link]:
    with ExitStack() as stack:
        yield lambda *told: stack.enter_context(closing(Nodes(*told)))


def receiver(
    secret: str = "secret", room_for: Callable[[int, int], mmap.mmap | str] = room
) -> SnapshotReceiver:
    return SnapshotReceiver("run", secret, room_for)


def assert_there(copies: Snapshots, *steps: int) -> None:
    assert copies.steps == set(steps)
    for step in steps:
        assert copies.is_sound(step)
        found = copies.read(step)
        assert found is not None
        assert found.texts == TEXTS
        assert bytes(found.parts[64:164]) == bytes([step]) * 100


def test_what_a_rank_has_is_on_the_next_node_and_marked_so_and_sent_once(link: Link) -> None:
    nodes, copies = link(receiver()), rank_at(6, 7)
    nodes.sender.keep(1, copies, SIZE)
    assert nodes.sender.send_newest(1)
    assert_there(nodes.receiver.ranks[1], 6, 7)
    assert copies.is_elsewhere(6)
    assert copies.is_elsewhere(7)
    nodes.sender.send_newest(1)
    assert not nodes.sender.send_newest(1)
    copies.write(8, 0, TEXTS, state(8))
    assert not copies.is_elsewhere(8)
    assert nodes.sender.send_newest(1)
    assert_there(nodes.receiver.ranks[1], 7, 8)
    nodes.sender.say_bye()
    assert nodes.hang_up() is True


def test_it_takes_no_more_than_its_share_of_the_time(link: Link) -> None:
    nodes = link(receiver())
    nodes.sender.keep(1, rank_at(6), SIZE)
    nodes.sender.send_newest(1)
    # The clock of this test goes on by one at each look.
    assert set(nodes.rests) == {min(1.0, (1 - SHARE) / SHARE)}


def test_whoever_goes_without_a_word_is_lost_and_what_it_had_stays(link: Link) -> None:
    nodes = link(receiver())
    nodes.sender.keep(1, rank_at(6), SIZE)
    nodes.sender.send_newest(1)
    assert nodes.hang_up() is False
    assert_there(nodes.receiver.ranks[1], 6)


def test_a_copy_that_is_written_over_while_it_leaves_is_none_there_and_the_next_one_is(link: Link) -> None:
    nodes, copies = link(receiver()), rank_at(6)
    nodes.sender.keep(1, copies, SIZE)
    nodes.sender.send_newest(1)
    copies.write(7, 0, TEXTS, state(7))

    def write_over(data: bytes | memoryview) -> None:
        if len(data) == 1 << 20:
            nodes.before = len
            copies.write(8, 0, TEXTS, state(8))
            copies.write(9, 0, TEXTS, state(9))

    nodes.before = write_over
    nodes.sender.send_newest(1)
    assert 7 not in nodes.receiver.ranks[1].steps
    assert 6 in nodes.receiver.ranks[1].steps
    nodes.sender.send_newest(1)
    assert_there(nodes.receiver.ranks[1], 8, 9)


def test_after_all_went_back_a_copy_of_the_life_before_goes_once_one_of_this_is_there(link: Link) -> None:
    nodes, copies = link(receiver()), rank_at(6, 7)
    nodes.sender.keep(1, copies, SIZE)
    nodes.sender.send_newest(1)
    copies.drop_after(6)
    copies.belong_to(1)
    assert not copies.is_elsewhere(6), "the next node has that of an earlier life"
    assert nodes.receiver.ranks[1].newest_incarnation == 0
    nodes.sender.send_newest(1)
    assert_there(nodes.receiver.ranks[1], 6)
    assert nodes.receiver.ranks[1].newest_incarnation == 1


def test_strangers_have_nothing_taken_from_them(link: Link) -> None:
    nodes = link(receiver(secret="another"))
    with pytest.raises((NotHeld, OSError)):
        nodes.sender.keep(1, rank_at(6), SIZE)
    assert isinstance(nodes.hang_up(), Rude)
    assert not nodes.receiver.ranks


def test_where_memory_is_short_the_next_node_says_so(link: Link) -> None:
    nodes = link(receiver(room_for=lambda _rank, _size: "9 MiB are more than half of the 2 MiB free"))
    with pytest.raises(NotHeld, match="half of the 2 MiB free"):
        nodes.sender.keep(1, rank_at(6), SIZE)


def test_a_copy_larger_than_its_room_writes_nothing() -> None:
    memory = bytearray(SIZE)
    with pytest.raises(SnapshotFull):
        Snapshots(memory, OWNER).make_room(7, SIZE)
    assert memory == bytearray(SIZE)


class Heard:
    """What a receiver is told, byte for byte; the seal is right."""

    def __init__(self, said: bytes) -> None:
        self.said, self.stream = said, io.BytesIO()

    def answer(self, line: bytes) -> None:
        told = parse(line)
        if told is not None and told["kind"] == "nonce":
            hello = message("hello", seal=meeting_seal("secret", told["nonce"]))
            self.stream.write(hello + self.said)
            self.stream.seek(0)


def recorded(*steps: int) -> bytes:
    """All that a sender says after its hello."""
    said = list[bytes]()
    with closing(Nodes(receiver())) as nodes:
        nodes.before = lambda data: said.append(bytes(data))
        nodes.sender.keep(1, small(*steps), SMALL)
        nodes.sender.send_newest(1)
    return b"".join(said)


SMALL_PARTS = (10, 70)
SMALL = bytes_needed(TEXTS, SMALL_PARTS)


def small(*steps: int) -> Snapshots:
    copies = Snapshots(bytearray(SMALL), OWNER)
    for step in steps:
        copies.write(step, 0, TEXTS, [memoryview(bytearray([step]) * size) for size in SMALL_PARTS])
    return copies


SAID = recorded(6, 7)
SENT = {step: found.parts.tobytes() for step in (6, 7) if (found := small(6, 7).read(step)) is not None}


@given(st.data())
def test_whatever_comes_a_copy_that_counts_is_one_that_was_sent(data: st.DataObject) -> None:
    said = bytearray(SAID)
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(said) - 1))
        match data.draw(st.sampled_from(["flip", "cut", "drop", "twice"])):
            case "flip":
                said[at] ^= 1 << data.draw(st.integers(0, 7))
            case "cut":
                del said[at:]
            case "drop":
                del said[at : at + data.draw(st.integers(1, 200))]
            case "twice":
                said[at:at] = said[at : at + data.draw(st.integers(1, 200))]
        if not said:
            break
    memory = bytearray(SMALL)
    heard = Heard(bytes(said))
    taken = SnapshotReceiver("run", "secret", lambda _rank, _size: memory)  # type: ignore[arg-type,return-value]
    with suppress(Rude):
        taken.serve(heard.stream, heard.answer, bool)
    copies = Snapshots(memory, OWNER)
    for step in copies.steps:
        found = copies.read(step)
        assert found is not None
        assert found.texts == TEXTS
        assert found.parts.tobytes() == SENT[step]


@given(st.binary(max_size=300))
def test_nothing_that_is_said_is_taken_for_a_copy_or_raises_what_is_not_rude(said: bytes) -> None:
    heard = Heard(said)
    taken = receiver()
    with suppress(Rude):
        taken.serve(heard.stream, heard.answer, bool)
    assert not taken.ranks or not any(one.steps for one in taken.ranks.values())


@pytest.mark.parametrize("nonce", [b"", b"\n", b'{"kind":"nonce"', bytes(range(60, 100))])
def test_who_answers_something_else_is_left(nonce: bytes) -> None:
    with pytest.raises(NotHeld):
        SnapshotSender(io.BytesIO(nonce), len, "secret")
