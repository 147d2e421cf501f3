"""Nonsense on the control socket: what makes sense is heard, and workers always get through."""

import contextlib
import json
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from faultrun.model.observed.dying_gasp import GaspAcknowledged
from faultrun.model.stop import StopRequested
from faultrun.model.wire import message
from support.machine.control_desk import Desk, open_desk


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    with open_desk(tmp_path) as desk:
        yield desk


@pytest.mark.long
def test_connections_that_nobody_closes_cost_nobody_else_theirs(desk: Desk) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    first = desk.worker(0)
    for _ in range(300):
        desk.peer()
        desk.heard(within_s=0)
    waiting = desk.peer()
    waiting.says("stop", source="user")
    desk.hears(StopRequested)
    second = desk.worker(1)
    for _ in range(300):
        desk.peer()
        desk.heard(within_s=0)
    first.says("ack", step=7)
    desk.hears(GaspAcknowledged)
    second.says("ack", step=7)
    desk.hears(GaspAcknowledged)
    desk.control.tell_end("stopped", 143)
    assert [waiting.is_told()["kind"] for _ in range(2)] == ["stopping", "ended"]
    assert (
        len(list(Path("/proc/self/fd").iterdir())) - before < 300 * 2 + 100
    )  # the test's own ends are most of them


@pytest.mark.long
def test_without_a_descriptor_connections_wait_and_then_come(desk: Desk) -> None:
    worker = desk.worker(0)
    desk.nothing()
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    late = desk.worker(1)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (worker.connection.fileno(), limit[1]))
        desk.nothing()
        worker.says("ack", step=7)
        desk.hears(GaspAcknowledged)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limit)
    late.says("ack", step=7)
    assert desk.hears(GaspAcknowledged).rank == 1


def test_a_rank_that_does_not_run_here_is_not_heard(desk: Desk) -> None:
    for rank in (2, -1, True, 10**30):
        stranger = desk.peer()
        stranger.says("hello", rank=rank, incarnation=3)
        stranger.says("ack", step=1)
    desk.nothing()


NONSENSE = st.one_of(
    st.binary(max_size=200),
    st.builds(
        lambda kind, fields: json.dumps({"kind": kind, **fields}).encode(),
        st.sampled_from(["hello", "ack", "saved", "failed", "step", "stop", "save", "status", "gasp", ""]),
        st.dictionaries(
            st.sampled_from(
                ["rank", "incarnation", "step", "path", "why", "took_s", "deadline_s", "source", "late_s"]
            ),
            st.one_of(
                st.integers(-2, 4),
                st.floats(),
                st.text(max_size=9),
                st.sampled_from([None, [], {}, 10**400, True, "\ud800", "x" * 3000]),
            ),
        ),
    ),
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(NONSENSE, max_size=6))
@example(
    [message("hello", rank=0, incarnation=3)[:-1], b'{"kind":"saved","step":1,"took_s":1' + b"0" * 400 + b"}"]
)
def test_no_bytes_on_the_socket_raise(desk: Desk, lines: list[bytes]) -> None:
    with contextlib.closing(desk.peer().connection) as connection:
        for line in lines:
            with contextlib.suppress(ConnectionError):
                connection.sendall(line + b"\n")
    for _ in range(2 * len(lines) + 2):
        desk.heard(within_s=0)
    desk.waiting.clear()
    desk.worker(0).says("ack", step=7)
    heard = [desk.heard() for _ in range(1)]
    while not isinstance(heard[-1], GaspAcknowledged):
        heard.append(desk.heard())
    assert heard[-1].rank == 0
