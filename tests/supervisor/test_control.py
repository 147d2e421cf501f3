"""The control socket, with real sockets at its other end: what workers say, what controllers ask."""

import contextlib
import json
import socket
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from faultrun.model.events import FirstStep, Heartbeat
from faultrun.model.observed.dying_gasp import GaspAcknowledged, GaspFailed, GaspSaved, SaveRequested
from faultrun.model.observed.rejoin import MemoryFaultFound, RankCanRejoin, RankRejoined
from faultrun.model.spec.windows import Deadline
from faultrun.model.stop import StopRequested, StopSource
from faultrun.model.wire import SLOT_BYTES, message, pack_word
from faultrun.supervisor.control import Control
from faultrun.supervisor.reactor import Reactor, RunClock
from faultrun.supervisor.snapshots.memory import SnapshotMemory
from faultrun.unix_sockets import short
from support.machine.control_desk import Desk, open_desk


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    with open_desk(tmp_path) as desk:
        yield desk


def write_step(desk: Desk, slot: int, step: int) -> None:
    with desk.page.path.open("r+b") as file:
        file.seek(slot * SLOT_BYTES)
        file.write(pack_word(step, epoch=1, phase=0, at_monotonic_s=1.0, count=1))


def test_a_worker_acknowledges_saves_or_fails(desk: Desk) -> None:
    worker = desk.worker(1)
    worker.says("ack", step=7)
    acknowledged = desk.hears(GaspAcknowledged)
    assert (acknowledged.rank, acknowledged.step, acknowledged.incarnation) == (1, 7, 3)

    worker.says("saved", path="p", step=7, size_bytes=9, took_s=0.5, digest="crc32:0", replica_group=[1, 0])
    saved = desk.hears(GaspSaved)
    assert (saved.rank, saved.path, saved.step, saved.size_bytes, saved.took_s) == (1, "p", 7, 9, 0.5)
    assert saved.replica_group == (0, 1)

    worker.says("failed", why="disk full")
    failed = desk.hears(GaspFailed)
    assert (failed.rank, failed.why) == (1, "disk full")


def test_an_acknowledgement_without_a_step_is_one(desk: Desk) -> None:
    desk.worker(0).says("ack")
    assert desk.hears(GaspAcknowledged).step is None


def test_the_first_step_is_told_once_all_ranks_have_done_one(desk: Desk) -> None:
    first, second = desk.worker(0), desk.worker(1)
    write_step(desk, 0, 11)
    first.says("step", step=11)
    desk.nothing()
    write_step(desk, 1, 12)
    second.says("step", step=12)
    event = desk.hears(FirstStep)
    assert (event.step, event.incarnation) == (12, 3)
    first.says("step", step=13)
    desk.nothing()


def test_a_step_is_one_of_a_new_group_once_its_rank_is_in_it_and_beyond_where_that_stands(desk: Desk) -> None:
    ranks = desk.worker(0), desk.worker(1)
    desk.nothing()
    desk.control.begin(4, desk.page, kept=frozenset({0, 1}))
    for rank, worker in enumerate(ranks):
        write_step(desk, rank, 20)  # both evaluate behind it, and have not heard of the group
        desk.control.send_join(rank, {"store": "/s", "page": "/p:0", "timeout_s": 30.0})
        worker.says("step", step=20)
    desk.nothing()
    for worker in ranks:
        worker.says("rejoined", incarnation=4, step=20)
        assert desk.hears(RankRejoined).step == 20
    ranks[0].says("step", step=20)  # which others had finished
    write_step(desk, 0, 21)
    ranks[0].says("step", step=21)
    desk.nothing()
    write_step(desk, 1, 21)
    ranks[1].says("step", step=21)
    event = desk.hears(FirstStep)
    assert (event.step, event.began) == (21, 21)


def test_what_others_had_said_before_a_fault_is_heard_before_it(desk: Desk) -> None:
    ranks = desk.worker(0), desk.worker(1)
    desk.nothing()
    for worker in ranks:
        worker.says("rejoined", incarnation=3, step=20)
    ranks[0].says("memory_fault", incarnation=3, what="bad")  # read in one piece with what it said before
    assert [type(desk.heard()) for _ in range(3)] == [RankRejoined, RankRejoined, MemoryFaultFound]


def test_it_is_known_how_far_ranks_are_that_wait_between_two_steps(desk: Desk) -> None:
    worker = desk.worker(0)
    write_step(desk, 0, 71)
    worker.says("can_rejoin", incarnation=3, trains_on="", waits=True)
    assert [(one.rank, one.step) for one in desk.hears(Heartbeat).steps] == [(0, 71)]
    assert desk.hears(RankCanRejoin).waits


def test_the_request_to_save_reaches_the_asked_ranks_only(desk: Desk) -> None:
    first, second = desk.worker(0), desk.worker(1)
    desk.nothing()
    desk.control.request_gasp(frozenset({1, 5}), Deadline.after(29.5, desk.reactor.now()), peers_lost=True)
    assert second.is_told() == {"kind": "gasp", "deadline_s": 29.5, "reason": "peer"}
    first.connection.setblocking(False)
    with pytest.raises(BlockingIOError):
        first.connection.recv(1)


def test_a_rank_that_connects_after_the_request_hears_it_with_what_is_left_of_the_window(desk: Desk) -> None:
    desk.control.request_gasp(frozenset({1}), Deadline.after(29.5, desk.reactor.now()), peers_lost=True)
    late = desk.worker(1)
    desk.nothing()
    told = late.is_told()
    assert (told["kind"], told["reason"]) == ("gasp", "peer")
    assert 0 < told["deadline_s"] <= 29.5


def test_a_rank_that_connects_after_a_peer_has_died_is_of_those_that_stay_and_hears_of_it(desk: Desk) -> None:
    first = desk.worker(0)
    desk.nothing()
    desk.control.free_survivors(frozenset({0, 1}), 30.0)
    desk.control.begin(4, desk.page, kept=frozenset({0, 1}))
    told = {"kind": "peer_lost", "incarnation": 3, "timeout_s": 30.0}
    assert first.is_told() == told
    late = desk.worker(1)
    desk.nothing()
    assert list(desk.control.connected) == [0, 1]
    assert late.is_told() == told
    desk.control.begin(5, desk.page)
    desk.worker(1, incarnation=4)
    desk.nothing()
    assert not desk.control.connected, "nobody stayed: whoever speaks of a life before is of that"


@pytest.mark.parametrize(("said", "source"), [("prestop", StopSource.PRESTOP), ("user", StopSource.CONTROL)])
def test_a_controller_stops_a_run_and_hears_its_last_word(desk: Desk, said: str, source: StopSource) -> None:
    controller = desk.peer()
    controller.says("stop", source=said, late_s=1.5)
    event = desk.hears(StopRequested)
    assert (event.source, event.late_s) == (source, 1.5)
    assert controller.is_told() == {"kind": "stopping", "window_s": 30.0}
    controller.connection.shutdown(socket.SHUT_WR)
    desk.control.tell_end("stopped by faultrun stop", 143)
    assert controller.is_told() == {"kind": "ended", "line": "stopped by faultrun stop", "exit_code": 143}


def test_a_save_without_a_stop_is_an_event_and_the_answers_of_the_workers_go_back(desk: Desk) -> None:
    worker, controller = desk.worker(1), desk.peer()
    desk.nothing()
    controller.says("save", deadline_s=12)
    event = desk.hears(SaveRequested)
    assert (event.window_s, event.incarnation) == (12.0, 3)
    assert controller.is_told() == {"kind": "saving", "ranks": [1], "deadline_s": 12.0}
    desk.control.request_save(event.window_s)
    assert worker.is_told() == {"kind": "save", "deadline_s": 12.0}
    worker.says("saved", path="p", step=7, took_s=0.5)
    desk.heard()
    assert controller.is_told() == {"kind": "saved", "rank": 1, "path": "p", "step": 7, "took_s": 0.5}


def test_a_time_that_nobody_can_mean_is_a_minute(desk: Desk) -> None:
    desk.peer().says("save", deadline_s="soon")
    assert desk.hears(SaveRequested).window_s == 60.0


def test_a_reason_that_grows_when_it_is_passed_on_harms_nobody(desk: Desk) -> None:
    worker, controller = desk.worker(1), desk.peer()
    desk.nothing()
    controller.says("save")
    desk.heard()
    controller.is_told()
    line = json.dumps({"kind": "failed", "why": "盘" * 20_000}, ensure_ascii=False).encode() + b"\n"
    worker.connection.sendall(line)
    while not isinstance(desk.heard(), GaspFailed):
        pass
    assert controller.is_told()["kind"] == "failed"


def test_a_request_of_an_unknown_kind_is_not_answered(desk: Desk) -> None:
    controller = desk.peer()
    controller.says("dance")
    controller.says("save", deadline_s=12)
    desk.heard()
    assert controller.is_told()["kind"] == "saving"


def test_a_worker_of_another_incarnation_is_not_heard(desk: Desk) -> None:
    late = desk.worker(0, incarnation=2)
    late.says("saved", path="old", step=1)
    desk.nothing()
    desk.control.request_gasp(frozenset({0}), Deadline.after(1, desk.reactor.now()), peers_lost=False)
    late.connection.setblocking(False)
    with pytest.raises(BlockingIOError):
        late.connection.recv(1)


def test_a_worker_that_was_heard_is_forgotten_when_the_next_incarnation_begins(desk: Desk) -> None:
    worker = desk.worker(0)
    desk.nothing()
    desk.control.begin(4, desk.page)
    worker.says("saved", path="old", step=1)
    desk.nothing()


@pytest.mark.parametrize(
    "nonsense",
    [
        b"\xff\xfe\n",
        b"\0" * 100 + b"\n",
        b"{}\n[]\nnull\n1\n",
        b'{"kind":1}\n',
        b'{"kind":"hello","rank":"zero","incarnation":3}\n',
        b'{"kind":"hello"}\n{"kind":"ack","step":1}\n',
        b'{"kind":"saved","step":"many","rank":0}\n',
        b'{"kind":"x","deep":' + b"[" * 30_000 + b"]" * 30_000 + b"}\n",
        b"x" * 200_000 + b"\n",
        b"no line end",
        b"\n" * 1000,
    ],
    ids=lambda nonsense: repr(nonsense[:24]),
)
def test_nonsense_leads_to_nothing_and_others_are_still_heard(desk: Desk, nonsense: bytes) -> None:
    peer = desk.peer()
    peer.connection.setblocking(False)
    with contextlib.suppress(BlockingIOError, ConnectionError):
        peer.connection.send(nonsense)
    desk.nothing()
    peer.connection.close()
    desk.worker(1).says("ack", step=1)
    desk.hears(GaspAcknowledged)


@pytest.mark.parametrize(
    "said",
    [
        {"kind": "saved", "path": 1, "step": 10**18, "size_bytes": "big", "took_s": "slow", "digest": None},
        {"kind": "saved", "path": "\udc80", "step": 0, "replica_group": ["a"]},
        {"kind": "ack", "step": "seven"},
        {"kind": "failed", "why": {"a": 1}},
        {"kind": "step", "step": None},
    ],
    ids=repr,
)
def test_a_worker_with_strange_values_does_not_stop_the_supervisor(desk: Desk, said: dict[str, Any]) -> None:
    worker = desk.worker(1)
    desk.nothing()
    worker.connection.sendall(json.dumps(said).encode() + b"\n")
    worker.says("ack", step=1)
    while True:
        event = desk.heard()
        if isinstance(event, GaspAcknowledged) and event.step == 1:
            break


def test_a_line_may_come_in_pieces_and_two_at_once(desk: Desk) -> None:
    worker = desk.worker(1)
    desk.nothing()
    line = message("ack", step=1)
    worker.connection.sendall(line[:5])
    desk.nothing()
    worker.connection.sendall(line[5:] + b"\n")
    desk.hears(GaspAcknowledged)


@pytest.mark.long
def test_who_does_not_read_does_not_hold_up_the_supervisor(desk: Desk) -> None:
    worker = desk.worker(1)
    desk.nothing()
    for _ in range(20_000):
        desk.control.request_gasp(frozenset({1}), Deadline.after(1, desk.reactor.now()), peers_lost=False)
    worker.says("ack", step=1)
    desk.hears(GaspAcknowledged)


def test_only_our_own_user_may_open_the_socket_and_it_goes_at_the_end(tmp_path: Path) -> None:
    reactor = Reactor(RunClock())
    control = Control(tmp_path, reactor, 30.0, SnapshotMemory(lambda: None))
    assert stat.S_IMODE(control.path.stat().st_mode) == 0o600
    control.close()
    assert not control.path.exists()
    reactor.close()


def test_a_socket_that_another_run_has_put_there_is_left_to_it(tmp_path: Path) -> None:
    reactor = Reactor(RunClock())
    control = Control(tmp_path, reactor, 30.0, SnapshotMemory(lambda: None))
    asked: list[bool] = []

    def has_place() -> bool:
        asked.append(True)
        return False

    control.has_place = has_place
    control.path.unlink()
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(control.path))
        until_s, save = reactor.now() + 30.0, SaveRequested(at_s=0.0, incarnation=0, window_s=1.0)
        while not asked and reactor.now() < until_s:
            reactor.call_at(reactor.now() + 0.1, lambda: [save])
            reactor.wait()
        control.close()
        assert control.path.exists()
    assert asked
    reactor.close()


def test_a_socket_that_a_killed_supervisor_left_is_replaced(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(tmp_path / "control.sock"))
    reactor = Reactor(RunClock())
    control = Control(tmp_path, reactor, 30.0, SnapshotMemory(lambda: None))
    with socket.socket(socket.AF_UNIX) as peer:
        peer.connect(str(control.path))
    control.close()
    reactor.close()


@pytest.mark.parametrize("depth", [0, 1, 4])
@pytest.mark.parametrize("clean", ["the socket", "its folder", "something else lies there"])
def test_a_socket_that_is_cleaned_away_is_made_again_however_long_its_path(
    tmp_path: Path, depth: int, clean: str
) -> None:
    folder = tmp_path.joinpath(*["a" * 60] * depth)
    folder.mkdir(parents=True, exist_ok=True)
    reactor = Reactor(RunClock())
    control = Control(folder, reactor, 30.0, SnapshotMemory(lambda: None))
    assert control.path == folder / "control.sock"
    control.path.unlink()
    if clean == "its folder":
        folder.rmdir()
    elif clean == "something else lies there":
        control.path.write_text("")

    def comes_back() -> tuple[()]:
        folder.mkdir(exist_ok=True)
        return ()

    reactor.call_at(reactor.now() + 3.0, comes_back)
    with socket.socket(socket.AF_UNIX) as peer:
        until_s = reactor.now() + 30.0
        while reactor.now() < until_s:
            reactor.call_at(
                reactor.now() + 0.1, lambda: [SaveRequested(at_s=0.0, incarnation=0, window_s=1.0)]
            )
            reactor.wait()
            with contextlib.suppress(OSError), short(str(control.path)) as address:
                peer.connect(address)
                break
        assert peer.getpeername()
    control.close()
    assert not control.path.exists()
    reactor.close()
