"""Questions between nodes over real TCP: answered at once, sealed, bounded, and deaf to strangers."""

import os
import selectors
import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from faultrun.model.topology import BootId, RunId
from faultrun.nodes.peers.exchange import Call, PeerListener, ask_all
from faultrun.nodes.peers.seal import LONGEST_LINE, Seal
from support.machine.processes import PATIENCE_S, wait_until

pytestmark = pytest.mark.long

SEAL = Seal(RunId("job42"), BootId("b00t"))


@dataclass
class Node:
    """One that repeats what it is asked, in a thread that turns its selector."""

    listener: PeerListener
    seal: Seal = SEAL

    @property
    def addr(self) -> str:
        return f"127.0.0.1:{self.listener.port}"

    def call(self, **says: Any) -> Call:
        return Call(self.addr, self.seal, says)


@contextmanager
def node(seal: Seal = SEAL) -> Iterator[Node]:
    selector = selectors.DefaultSelector()
    over, wake = os.eventfd(0), threading.Event()
    listener = PeerListener(
        ("127.0.0.1", 0), selector, lambda: known.seal, lambda asked: {"heard": asked["n"]}
    )
    known = Node(listener, seal)
    selector.register(over, selectors.EVENT_READ, wake.set)

    def turn() -> None:
        while not wake.is_set():
            for key, _ in selector.select(listener.cut_late()):
                key.data()
        listener.close()

    thread = threading.Thread(target=turn)
    thread.start()
    yield known
    os.eventfd_write(over, 1)
    thread.join()
    os.close(over)
    selector.close()


def test_everybody_is_asked_at_once_and_answers_come_in_order() -> None:
    with node() as one, node(replace(SEAL, boot=BootId("other"))) as two:
        calls = [two.call(n=2), one.call(n=1), two.call(n=3)]
        assert ask_all(calls, PATIENCE_S) == [{"heard": 2}, {"heard": 1}, {"heard": 3}]


def test_nobody_to_ask_is_answered_by_nobody() -> None:
    assert ask_all([], PATIENCE_S) == []


def test_who_is_away_costs_the_others_nothing() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        gone = f"127.0.0.1:{closed.getsockname()[1]}"
    with node() as one:
        answers = ask_all([replace_addr(one.call(n=1), gone), one.call(n=2)], PATIENCE_S)
    assert answers == [None, {"heard": 2}]


def replace_addr(call: Call, addr: str) -> Call:
    return Call(addr, call.seal, call.says)


def test_who_never_answers_is_waited_for_no_longer_than_asked() -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute, node() as one:
        addr = f"127.0.0.1:{mute.getsockname()[1]}"
        assert ask_all([replace_addr(one.call(n=1), addr), one.call(n=2)], 1.0) == [None, {"heard": 2}]


@pytest.mark.parametrize("addr", ["", "nowhere", "127.0.0.1:http", "127.0.0.1:99999", "[::1:7"])
def test_an_address_that_is_none_is_no_answer(addr: str) -> None:
    assert ask_all([Call(addr, SEAL, {"n": 1})], 1.0) == [None]


@pytest.mark.parametrize("seal", [replace(SEAL, boot=BootId("b00s")), replace(SEAL, run_id=RunId("job43"))])
def test_who_does_not_know_the_boot_or_the_run_gets_no_answer(seal: Seal) -> None:
    with node() as one:
        assert ask_all([Call(one.addr, seal, {"n": 1}), one.call(n=2)], PATIENCE_S) == [None, {"heard": 2}]


def test_a_node_that_goes_on_under_another_boot_is_another() -> None:
    with node() as one:
        before = one.call(n=1)
        one.seal = replace(SEAL, boot=BootId("again"))
        assert ask_all([before, one.call(n=2)], PATIENCE_S) == [None, {"heard": 2}]


def test_an_answer_to_an_earlier_question_is_no_answer() -> None:
    line, nonce = SEAL.question({"n": 1})
    assert SEAL.read_question(line) == ({"n": 1}, nonce)
    answer = SEAL.answer(nonce, {"deaf": True})
    assert SEAL.read_answer(answer, nonce) == {"deaf": True}
    with pytest.raises(ValueError, match="another question"):
        SEAL.read_answer(answer, SEAL.question({"n": 1})[1])
    with pytest.raises(ValueError, match="not sealed"):
        SEAL.read_question(answer)


def test_more_than_is_ever_read_is_not_sent() -> None:
    with pytest.raises(ValueError, match="longest that is read"):
        SEAL.question({"n": "x" * LONGEST_LINE})
    with node() as one:
        assert ask_all([one.call(n="x" * LONGEST_LINE), one.call(n=2)], PATIENCE_S) == [None, {"heard": 2}]


@given(st.binary(max_size=200))
def test_no_bytes_pass_for_a_question(line: bytes) -> None:
    with pytest.raises(ValueError):
        SEAL.read_question(line)


SEALED_NONSENSE = SEAL.question({"no": "number"})[0]


@pytest.mark.parametrize(
    "said",
    [b"GET / HTTP/1.1\r\n\r\n", b"\n", b"\xff" * 100 + b"\n", b"x" * (LONGEST_LINE * 2), SEALED_NONSENSE],
    ids=["http", "nothing", "bytes", "no end", "sealed nonsense"],
)
def test_a_stranger_is_cut_off_and_nobody_else_is_hurt(said: bytes) -> None:
    with node() as one, caller(one) as stranger:
        stranger.sendall(said)
        assert ended(stranger)
        assert ask_all([one.call(n=1)], PATIENCE_S) == [{"heard": 1}]


def test_who_says_nothing_or_half_a_line_holds_up_nobody_and_is_cut_off() -> None:
    with node() as one, caller(one) as silent, caller(one) as slow:
        slow.sendall(SEAL.question({"n": 1})[0][:10])
        assert ask_all([one.call(n=2)], PATIENCE_S) == [{"heard": 2}]
        assert ended(silent)
        assert ended(slow)


def test_a_crowd_of_silent_strangers_keeps_nobody_out() -> None:
    with node() as one:
        crowd = [socket.create_connection(("127.0.0.1", one.listener.port)) for _ in range(200)]
        try:
            assert ask_all([one.call(n=1)], PATIENCE_S) == [{"heard": 1}]
            wait_until(lambda: all(ended(sock) for sock in crowd), what="the end of the crowd")
        finally:
            for sock in crowd:
                sock.close()


def caller(one: Node) -> "closing[socket.socket]":
    sock = socket.create_connection(("127.0.0.1", one.listener.port))
    sock.settimeout(PATIENCE_S)
    return closing(sock)


def ended(sock: socket.socket) -> bool:
    sock.settimeout(PATIENCE_S)
    try:
        return sock.recv(1) == b""
    except ConnectionResetError:
        return True
