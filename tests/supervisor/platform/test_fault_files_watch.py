"""Changes of files are noticed however they are made, and what a hostile file does stays with the watcher."""

import os
import select
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from faultrun.cli.run.helpers import fault_file_watcher_for
from faultrun.model.events import FaultNotice
from faultrun.model.observed.platform_notice import (
    FaultRanks,
    Notice,
    RankStatus,
    ResetNotice,
    RestartKind,
    TableVersion,
    UnreadableNotice,
)
from faultrun.model.spec.run_spec import FaultFiles, Rendezvous
from faultrun.platforms.file_watch import FileWatch
from faultrun.supervisor.launch.progress_page import LiveWorkers
from faultrun.supervisor.platform.fault_files import FaultFileWatcher, sources
from faultrun.supervisor.reactor import Reactor, RunClock
from support.checkpoints.platform_files import INITIALIZING, ConfigMapVolume, reset, text, write_whole
from support.machine.processes import PATIENCE_S, stand_still
from support.stories.specs import a_spec

WITHIN_S = 10.0


def noticed(watch: FileWatch) -> bool:
    """Whether the kernel tells of a change, and it concerns the files."""
    ready, _, _ = select.select([watch.fd], [], [], WITHIN_S)
    return bool(ready) and watch.touched()


def write_in_place(path: Path) -> None:
    with path.open("r+") as file:
        file.write("y")


@pytest.mark.parametrize(
    "change",
    [
        write_in_place,
        lambda path: path.write_text("yy"),
        lambda path: write_whole(path, "yy"),
        lambda path: path.unlink(),
    ],
)
def test_the_kernel_tells_every_change_of_a_file(tmp_path: Path, change: Callable[[Path], object]) -> None:
    path = tmp_path / "reset.json"
    path.write_text("x")
    watch = FileWatch([path])
    assert not watch.touched()
    change(path)
    assert noticed(watch)
    assert not watch.touched()
    watch.close()


def test_a_file_that_appears_is_noticed_and_other_files_are_not(tmp_path: Path) -> None:
    watch = FileWatch([tmp_path / "reset.json"])
    (tmp_path / "checkCode").write_text("x")
    assert not watch.touched()
    (tmp_path / "reset.json").write_text("x")
    assert noticed(watch)
    watch.close()


def test_a_config_map_is_followed_from_swap_to_swap(tmp_path: Path) -> None:
    volume = ConfigMapVolume(tmp_path / "config", reset_json="0")
    watch = FileWatch([volume.path("reset.json")])
    for content in ("1", "2", "3"):
        volume.publish(reset_json=content)
        assert noticed(watch)
        while watch.touched():
            """A swap is several changes."""
        assert volume.path("reset.json").read_text() == content
    watch.close()


def test_a_link_to_a_file_elsewhere_is_watched_there(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    (tmp_path / "a" / "real").write_text("x")
    (tmp_path / "b" / "reset.json").symlink_to(tmp_path / "a" / "real")
    watch = FileWatch([tmp_path / "b" / "reset.json"])
    write_in_place(tmp_path / "a" / "real")
    assert noticed(watch)
    watch.close()


def test_where_the_kernel_tells_nothing_the_files_identity_does(tmp_path: Path) -> None:
    """As on a network file system, and before the folder exists."""
    path = tmp_path / "later" / "reset.json"
    watch = FileWatch([path])
    watch.close()
    assert not watch.touched()
    path.parent.mkdir()
    path.write_text("x")
    assert watch.touched()
    assert not watch.touched()
    write_whole(path, "y")
    assert watch.touched()


class Ears:
    """Hears what the watcher tells, through a real reactor."""

    def __init__(self, watcher: FaultFileWatcher) -> None:
        self._reactor = Reactor(RunClock())
        self.first = watcher.first()
        watcher.attach(self._reactor, LiveWorkers(self._reactor.clock, incarnation=7))

    def hears(self) -> FaultNotice:
        event = self._reactor.wait()[0]
        assert isinstance(event, FaultNotice)
        assert event.incarnation == 7
        return event

    def next(self) -> Notice:
        """The next notice, which is news."""
        event = self.hears()
        assert not event.known
        return event.notice


@contextmanager
def looking(folder: Path, *, in_place: bool = False, table: Path | None = None) -> Iterator[Ears]:
    files = FaultFiles(
        fault_config=str(folder / "fault-npus"),
        reset_config=str(folder / "reset.json"),
        restart_in_place=in_place,
    )
    watcher = FaultFileWatcher(sources(files, str(table) if table else ""), PATIENCE_S)
    try:
        yield Ears(watcher)
    finally:
        watcher.close()


@pytest.mark.timeout(180)
def test_what_the_files_say_at_first_and_later_is_told(tmp_path: Path) -> None:
    (tmp_path / "fault-npus").write_text('{"FaultRankIds":"0,1"}')
    (tmp_path / "reset.json").write_text(INITIALIZING)
    with looking(tmp_path) as ears:
        assert ears.first == (FaultRanks(ranks=frozenset({0, 1})),)
        write_whole(tmp_path / "reset.json", text(reset({1: "unrecovered"})))
        told = ears.next()
        assert isinstance(told, ResetNotice)
        assert told.having(RankStatus.UNRECOVERED) == {1}
        write_whole(tmp_path / "fault-npus", text({"FaultRank": [3]}))
        assert ears.next() == FaultRanks(ranks=frozenset({3}))


@pytest.mark.timeout(180)
def test_a_volume_that_is_swapped_is_told_with_the_kind_of_restart(tmp_path: Path) -> None:
    volume = ConfigMapVolume(tmp_path, reset_json=INITIALIZING, restartType="")
    with looking(tmp_path) as ears:
        assert ears.first == ()
        volume.publish(reset_json=text(reset({0: "fault"})), restartType="podReschedule")
        told = ears.next()
        assert isinstance(told, ResetNotice)
        assert told.kind is RestartKind.POD_RESCHEDULE


@pytest.mark.timeout(180)
def test_a_file_that_says_the_same_again_is_told_once(tmp_path: Path) -> None:
    (tmp_path / "reset.json").write_text(text(reset({0: "fault"})))
    with looking(tmp_path) as ears:
        assert len(ears.first) == 1
        write_whole(tmp_path / "reset.json", text(reset({0: "fault"})) + "\n")
        write_whole(tmp_path / "reset.json", text(reset({0: "recovered"})))
        told = ears.next()
        assert isinstance(told, ResetNotice)
        assert told.having(RankStatus.RECOVERED) == {0}


@pytest.mark.timeout(180)
@pytest.mark.parametrize(("allowed", "asked", "expected"), [(True, True, True), (False, True, False)])
def test_a_restart_in_place_needs_the_users_word_too(
    tmp_path: Path, allowed: bool, asked: bool, expected: bool
) -> None:
    (tmp_path / "reset.json").write_text(text(reset({0: "fault"}, RestartFaultProcess=asked)))
    with looking(tmp_path, in_place=allowed) as ears:
        (told,) = ears.first
        assert isinstance(told, ResetNotice)
        assert told.restart_in_place is expected


@pytest.mark.timeout(180)
def test_the_version_beside_a_rank_table_is_told(tmp_path: Path) -> None:
    (tmp_path / "version").write_text("4")
    with looking(tmp_path, table=tmp_path / "hccl.json") as ears:
        assert ears.first == (TableVersion(version=4),)
        write_whole(tmp_path / "version", "5\n")
        assert ears.next() == TableVersion(version=5)


@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.parametrize("content", [text(reset({1: "unrecovered"}))[:-20].encode(), b" " * (2 << 20)])
def test_a_file_that_stays_unreadable_is_told_once_without_effect(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "reset.json").write_bytes(content)
    in_a_minute_s = time.time() + 60  # however late it is read, it was not unreadable for long
    os.utime(tmp_path / "reset.json", (in_a_minute_s, in_a_minute_s))
    with looking(tmp_path) as ears:
        assert ears.first == ()
        told = ears.next()
        assert isinstance(told, UnreadableNotice)
        assert told.file == str(tmp_path / "reset.json")
        write_whole(tmp_path / "reset.json", text(reset({1: "fault"})))
        assert isinstance(ears.next(), ResetNotice)


@pytest.mark.timeout(180)
def test_what_was_there_before_and_is_read_too_late_is_no_news(tmp_path: Path) -> None:
    """A ``GracefulExit`` that was obeyed would end every run that starts on a busy machine."""
    (tmp_path / "fault-npus").write_text('{"FaultRankIds":"0,1"}')
    before = children()
    watched = sources(FaultFiles(fault_config=str(tmp_path / "fault-npus")), "")
    watcher = FaultFileWatcher(watched, 0.0)
    (pid,) = children() - before
    stand_still(pid)
    try:
        ears = Ears(watcher)
        assert ears.first == ()
        os.kill(pid, signal.SIGCONT)
        late = ears.hears()
        assert (late.notice, late.known) == (FaultRanks(ranks=frozenset({0, 1})), True)
        write_whole(tmp_path / "fault-npus", text({"FaultRank": [3]}))
        assert ears.next() == FaultRanks(ranks=frozenset({3}))
    finally:
        watcher.close()


@pytest.mark.timeout(180)
def test_a_new_kind_of_restart_beside_a_file_that_is_as_it_was_is_news(tmp_path: Path) -> None:
    (tmp_path / "reset.json").write_text(text(reset({1: "unrecovered"})))
    with looking(tmp_path) as ears:
        write_whole(tmp_path / "restartType", "podReschedule")
        assert isinstance(ears.next(), ResetNotice)


@pytest.mark.timeout(180)
@pytest.mark.parametrize("content", ['{"fault":', "[1,2]"])
def test_a_file_that_has_long_been_unreadable_is_told_at_the_start(tmp_path: Path, content: str) -> None:
    (tmp_path / "fault-npus").write_text(content)
    os.utime(tmp_path / "fault-npus", (1, 1))
    with looking(tmp_path) as ears:
        (told,) = ears.first
        assert isinstance(told, UnreadableNotice)
        assert told.words.endswith("it changes nothing")


@pytest.mark.timeout(180)
def test_a_pipe_in_the_files_place_holds_nobody_up(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "reset.json")
    (tmp_path / "fault-npus").write_text('{"FaultRankIds":["2"]}')
    with looking(tmp_path) as ears:
        assert ears.first == (FaultRanks(ranks=frozenset({2})),)


def test_nobody_watches_where_there_is_nothing_to_watch(tmp_path: Path) -> None:
    table = Rendezvous(rank_table_file=str(tmp_path / "hccl.json"))
    assert fault_file_watcher_for(a_spec(rendezvous=table)) is None


@pytest.mark.timeout(180)
def test_the_watcher_ends_with_its_supervisor(tmp_path: Path) -> None:
    before = children()
    watcher = FaultFileWatcher(sources(FaultFiles(reset_config=str(tmp_path / "reset.json")), ""), PATIENCE_S)
    (pid,) = children() - before
    pidfd = os.pidfd_open(pid)
    began = time.monotonic()
    watcher.close()
    assert time.monotonic() - began < PATIENCE_S / 2, "it was not killed as one that does not end"
    assert select.select([pidfd], [], [], 0)[0]
    os.close(pidfd)


def children() -> set[int]:
    return set(map(int, Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()))
