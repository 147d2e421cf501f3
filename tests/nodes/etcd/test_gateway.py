"""Which endpoint answers, what is done twice and what never, and how long nobody waits."""

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from faultrun.nodes.etcd.answers import EtcdRefused, EtcdReplaced, EtcdSilent
from faultrun.nodes.etcd.clock import boot_now
from faultrun.nodes.etcd.connection import NoAnswer
from faultrun.nodes.etcd.gateway import Answered, AnswerLost, Gateway
from faultrun.nodes.etcd.store import key_range, read
from support.machine.free_port import free_port
from support.machine.processes import wait_until
from support.nodes.etcd_cluster import EtcdMember, one_etcd
from support.nodes.silent_server import http_answer, listening

pytestmark = pytest.mark.long

OK = http_answer(200, b'{"header":{"cluster_id":"7","revision":"1"}}')
LOST = http_answer(503, b'{"error":"x","code":14,"message":"etcdserver: request timed out"}')
NO_LEADER = http_answer(503, b'{"error":"x","code":14,"message":"etcdserver: no leader"}')
LONG_S = 30.0

Opener = Callable[..., Gateway]


def nobody() -> str:
    return f"127.0.0.1:{free_port()}"


def test_a_dead_member_is_passed_over_and_not_asked_again(member: EtcdMember, open_gateway: Opener) -> None:
    dead = nobody()
    gateway = open_gateway(dead, member.endpoint)
    for _ in range(3):
        read(gateway, "/nothing/")
        assert gateway.current == member.endpoint


def test_a_member_that_hangs_costs_one_attempt(member: EtcdMember, open_gateway: Opener) -> None:
    with listening(None) as silent:
        gateway = open_gateway(silent.endpoint, member.endpoint, attempt_s=1.0)
        read(gateway, "/nothing/", within_s=LONG_S)
        read(gateway, "/nothing/", within_s=LONG_S)
        assert silent.heard == 1


def test_a_member_that_gets_the_rest_of_the_time_is_not_left_for_being_slower(open_gateway: Opener) -> None:
    with listening(None) as silent, listening(None) as slow:
        gateway = open_gateway(silent.endpoint, slow.endpoint, attempt_s=1.0)
        with pytest.raises(EtcdSilent):
            read(gateway, "/nothing/", within_s=1.9)
        wait_until(lambda: slow.heard == 1, what="its request")
        assert gateway.current == slow.endpoint


def test_nobody_answers_is_an_error_that_names_the_endpoints_and_why(open_gateway: Opener) -> None:
    with listening(None) as silent:
        gateway = open_gateway(nobody(), silent.endpoint, attempt_s=0.05)
        began_s = boot_now()
        with pytest.raises(EtcdSilent) as error:
            read(gateway, "/nothing/", within_s=0.3)
    assert boot_now() - began_s >= 0.3
    assert error.value.exit_code == 69
    assert silent.endpoint in error.value.what
    assert "no answer in time" in error.value.because or "refused" in error.value.because


def test_a_name_that_nobody_can_resolve_is_an_endpoint_that_does_not_answer(
    member: EtcdMember, open_gateway: Opener
) -> None:
    unknown = "no-such-host.invalid:1"
    assert read(open_gateway(unknown, member.endpoint), "/nothing/", within_s=LONG_S).revision > 0


def test_a_name_is_resolved(member: EtcdMember, open_gateway: Opener) -> None:
    named = f"localhost:{member.port}"
    assert read(open_gateway(named), "/nothing/", within_s=LONG_S).revision > 0


def test_a_connection_is_used_again(gateway: Gateway) -> None:
    read(gateway, "/nothing/")
    (kept,) = gateway._idle[gateway.current]
    read(gateway, "/nothing/")
    assert gateway._idle[gateway.current] == [kept]


def test_a_connection_that_was_closed_meanwhile_costs_nothing(open_gateway: Opener) -> None:
    with listening(OK) as server:
        gateway = open_gateway(server.endpoint)
        for _ in range(3):
            assert isinstance(gateway.ask_once("kv/txn", {}, within_s=LONG_S), Answered)
            wait_until(lambda: not any(one.fresh for one in gateway._idle[gateway.current]), what="its end")
    assert server.heard == 3


def test_an_answer_that_was_lost_is_asked_for_again_where_that_is_harmless(open_gateway: Opener) -> None:
    with listening(b"", LOST, OK) as server:
        gateway = open_gateway(server.endpoint)
        gateway.ask("kv/range", key_range("/x/"), within_s=LONG_S)
        assert server.heard == 3


@pytest.mark.parametrize("answer", [b"", LOST, b"HTTP/1.1 200 X\r\nContent-Length: 9\r\n\r\n{"])
def test_a_write_is_sent_once_and_a_lost_answer_is_unknown(answer: bytes, open_gateway: Opener) -> None:
    with listening(answer, OK) as server:
        lost = open_gateway(server.endpoint).ask_once("kv/txn", {}, within_s=LONG_S)
        assert isinstance(lost, AnswerLost)
        assert server.endpoint in lost.why
        assert server.heard == 1


def test_a_write_that_certainly_did_nothing_is_sent_again(open_gateway: Opener) -> None:
    with listening(NO_LEADER, OK) as server:
        gateway = open_gateway(nobody(), server.endpoint)
        assert isinstance(gateway.ask_once("kv/txn", {}, within_s=LONG_S), Answered)
        assert server.heard == 2


def test_a_write_that_never_left_is_an_error_and_not_unknown(open_gateway: Opener) -> None:
    with pytest.raises(EtcdSilent):
        open_gateway(nobody()).ask_once("kv/txn", {}, within_s=0.05)


def test_the_time_of_an_answer_is_that_of_its_own_request(open_gateway: Opener) -> None:
    with listening(LOST, OK) as server:
        gateway = open_gateway(server.endpoint)
        asked_s = boot_now()
        answered = gateway.ask("lease/keepalive", {}, within_s=LONG_S)
        assert asked_s + 0.02 <= answered.sent_at_s <= boot_now()  # the pause before the second attempt


def test_a_refusal_is_told_at_once_and_nobody_else_is_asked(member: EtcdMember, open_gateway: Opener) -> None:
    gateway = open_gateway(member.endpoint, nobody())
    with pytest.raises(EtcdRefused) as refused:
        gateway.ask("kv/put", {"key": "AA==", "lease": "77"}, within_s=LONG_S)
    assert refused.value.failure.lease_gone
    assert gateway.current == member.endpoint


def test_another_cluster_is_not_believed(member: EtcdMember, open_gateway: Opener) -> None:
    with listening(OK) as other:
        gateway = open_gateway(other.endpoint, member.endpoint)
        gateway.ask("kv/range", key_range("/x/"), within_s=LONG_S)
        gateway.suspect(other.endpoint)
        with pytest.raises(EtcdReplaced) as error:
            read(gateway, "/x/", within_s=LONG_S)
    assert "cluster 7" in error.value.because or "and 7 has answered" in error.value.because


def test_no_gateway_at_all_is_said_with_what_to_look_for(open_gateway: Opener) -> None:
    with (
        listening(http_answer(404, b"404 page not found\n")) as server,
        pytest.raises(EtcdSilent, match="page not found") as error,
    ):
        read(open_gateway(server.endpoint), "/x/", within_s=1.0)
    assert "enable-grpc-gateway" in error.value.hint


def test_who_suspects_an_endpoint_cuts_the_streams_at_it(member: EtcdMember, open_gateway: Opener) -> None:
    with listening(None) as other:
        gateway = open_gateway(member.endpoint, other.endpoint)
        opened, ended = threading.Event(), threading.Event()

        def follow() -> None:
            create = {"create_request": key_range("/x/")}
            with suppress(NoAnswer), gateway.stream("watch", create, silence_s=600) as stream:
                for _ in stream:
                    opened.set()
            ended.set()

        threading.Thread(target=follow, daemon=True).start()
        assert opened.wait(LONG_S)
        gateway.suspect(member.endpoint)
        assert ended.wait(LONG_S)
        assert gateway.current == other.endpoint


def test_a_stream_that_is_silent_ends(gateway: Gateway) -> None:
    create = {"create_request": key_range("/x/")}
    with gateway.stream("watch", create, silence_s=1.0) as stream:
        assert [message.get("created") for message in stream] == [True]


def test_a_stream_at_a_member_that_hangs_is_given_up_when_it_is_opened(open_gateway: Opener) -> None:
    with listening(None) as silent:
        gateway = open_gateway(silent.endpoint, nobody(), attempt_s=0.05)
        with (
            pytest.raises(NoAnswer),
            gateway.stream("watch", {"create_request": key_range("/x/")}, silence_s=LONG_S) as stream,
        ):
            list(stream)
        assert gateway.current != silent.endpoint


def test_every_request_asks_for_a_leader(open_gateway: Opener) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        gateway = open_gateway(f"127.0.0.1:{server.getsockname()[1]}")
        with pytest.raises(EtcdSilent):
            read(gateway, "/x/", within_s=0.5)
        sock, _ = server.accept()
        with sock:
            assert b"Grpc-Metadata-hasleader: true" in sock.recv(1 << 16)


def test_closing_ends_whoever_waits(open_gateway: Opener) -> None:
    gateway = open_gateway(nobody())
    said: list[str] = []

    def ask() -> None:
        try:
            read(gateway, "/x/", within_s=600)
        except EtcdSilent as error:
            said.append(error.because)

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    wait_until(lambda: gateway._failed_at_s[gateway.current] > 0, what="the first attempt")
    gateway.close()
    thread.join(LONG_S)
    assert len(said) == 1


def test_a_member_that_comes_back_answers_again(program: Path, tmp_path: Path, open_gateway: Opener) -> None:
    with one_etcd(tmp_path, program) as alone:
        gateway = open_gateway(alone.endpoint)
        before = read(gateway, "/x/")
        alone.kill()
        with pytest.raises(EtcdSilent):
            read(gateway, "/x/", within_s=0.1)
        alone.start()
        assert read(gateway, "/x/", within_s=LONG_S).revision == before.revision
