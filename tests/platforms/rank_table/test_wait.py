"""Waiting for a rank table: announced, bounded, ended by a stop, and never content with half of one."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from faultrun.platforms.rank_table.rank_table import RankTable, parse_rank_table
from faultrun.platforms.rank_table.wait import Awaited, NotFinished, Patience, await_file
from support.checkpoints.platform_files import INITIALIZING, ConfigMapVolume, table_v1, text, write_whole


@dataclass(slots=True)
class Waiter:
    """Somebody who waits; what happens meanwhile is told as a list, one thing a pause."""

    path: Path
    meanwhile: list[Callable[[], object]] = field(default_factory=list)
    within_s: float = 60.0
    said: list[str] = field(default_factory=list)
    pauses: int = 0

    def wait(self) -> RankTable:
        patience = Patience(within_s=self.within_s, pause=self.pause, say=self.said.append)
        return await_file(Awaited(what="rank table", parse=parse_rank_table), str(self.path), patience)

    def pause(self, seconds: float) -> None:
        self.pauses += 1
        assert self.pauses < 100, "it would wait for ever"
        if self.meanwhile:
            self.meanwhile.pop(0)()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "hccl.json"


def finished(path: Path, size: int = 2) -> Callable[[], object]:
    return lambda: write_whole(path, text(table_v1(size)))


def nothing() -> None:
    """A pause in which nothing happens."""


def test_a_table_that_comes_late_is_waited_for_and_the_wait_is_told_once(path: Path) -> None:
    waiter = Waiter(path, [nothing, lambda: path.write_text(INITIALIZING), nothing, finished(path)])
    assert waiter.wait().world_size == 2
    assert len(waiter.said) == 2
    assert waiter.said[0] == f"waiting for the rank table {path}, at most 60 s: No such file or directory"
    assert waiter.said[1].startswith("the rank table is finished after ")


def test_a_table_is_believed_when_two_looks_agree(path: Path) -> None:
    path.write_text(text(table_v1(2)))
    waiter = Waiter(path, [finished(path, 4), nothing])
    assert waiter.wait().world_size == 4
    assert (waiter.pauses, waiter.said) == (2, [])


def test_a_file_that_nobody_has_touched_for_long_needs_no_second_look() -> None:
    waiter = Waiter(Path(os.__file__))
    awaited = Awaited(what="old file", parse=len)
    assert await_file(awaited, str(waiter.path), Patience(within_s=1, pause=waiter.pause, say=print)) > 1000
    assert waiter.pauses == 0


def test_half_of_a_table_is_waited_for_like_none(path: Path) -> None:
    whole = text(table_v1(2))
    path.write_text(whole[:100])
    waiter = Waiter(path, [lambda: path.write_text(whole[:200]), finished(path)])
    assert waiter.wait().world_size == 2
    assert "it is not JSON" in waiter.said[0]


def test_a_config_map_volume_is_followed_through_its_links(tmp_path: Path) -> None:
    volume = ConfigMapVolume(tmp_path / "config", hccl_json=INITIALIZING)
    later: list[Callable[[], object]] = [nothing, lambda: volume.publish(hccl_json=text(table_v1(8)))]
    assert Waiter(volume.path("hccl.json"), later).wait().world_size == 8


def test_a_wait_that_is_over_says_for_what_how_long_and_what_was_there_last(path: Path) -> None:
    path.write_text(INITIALIZING)
    with pytest.raises(NotFinished) as caught:
        Waiter(path, within_s=0.0).wait()
    assert caught.value.exit_code == 69
    what, because, hint = str(caught.value).splitlines()
    assert what == f"the rank table {path} is not finished"
    assert because == '  because: its status is "initializing", not "completed"'
    assert hint.endswith("--rank_table_wait=TIME waits longer")


def test_a_table_that_is_finished_and_wrong_is_not_waited_for_longer_than_two_looks(path: Path) -> None:
    path.write_text(text(table_v1(2) | {"server_count": "2"}))
    waiter = Waiter(path)
    with pytest.raises(ValueError, match="it says server_count 2 and names 1"):
        waiter.wait()
    assert waiter.pauses == 1


def test_a_table_that_was_wrong_while_it_was_written_is_right_in_the_end(path: Path) -> None:
    path.write_text(text(table_v1(2) | {"server_count": "2"}))
    assert Waiter(path, [finished(path)]).wait().world_size == 2


def test_whatever_the_pause_raises_ends_the_wait(path: Path) -> None:
    def stop() -> None:
        raise InterruptedError

    with pytest.raises(InterruptedError):
        Waiter(path, [nothing, stop]).wait()


def test_what_is_no_file_is_refused_and_does_not_hold_us_up(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    with pytest.raises(ValueError, match="not a regular file"):
        Waiter(tmp_path / "pipe").wait()
    with pytest.raises(NotFinished):
        Waiter(tmp_path / "folder", within_s=0.0).wait()
    (tmp_path / "huge").write_bytes(b" " * (5 << 20))
    with pytest.raises(ValueError, match="larger than 4 MiB"):
        Waiter(tmp_path / "huge").wait()


@contextmanager
def waiting(path: Path, *words: str) -> Iterator[subprocess.Popen[str]]:
    """A real faultrun that has said that it waits."""
    script = path.with_name("train.py")
    script.write_text("")
    command = [sys.executable, "-m", "faultrun", f"--rank_table_file={path}", *words, str(script)]
    process = subprocess.Popen(command, cwd=path.parent, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        lines = iter(process.stderr.readline, "")
        assert any("waiting for the rank table" in line for line in lines)
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("signum", "words", "code"),
    [(signal.SIGTERM, (), 143), (signal.SIGINT, (), 130), (signal.SIGTERM, ("--exit_code_on_stop=7",), 7)],
)
def test_a_stop_ends_the_wait_at_once_and_nothing_was_started(
    path: Path, signum: int, words: tuple[str, ...], code: int
) -> None:
    path.write_text(INITIALIZING)
    message = path.with_name("termination")
    message.touch()
    with waiting(path, f"--termination_log={message}", *words) as process:
        process.send_signal(signum)
        assert process.wait(10) == code
    assert "nothing was started" in message.read_text()
    assert not (path.parent / "faultrun_log").exists()


@pytest.mark.slow
def test_a_wait_in_vain_ends_with_its_own_code_and_is_told_to_the_platform(path: Path) -> None:
    path.write_text(INITIALIZING)
    message = path.with_name("termination")
    with waiting(path, "--rank_table_wait=1s", f"--termination_log={message}") as process:
        assert process.wait(20) == 69
        assert process.stderr is not None
        assert "is not finished after 1 s" in process.stderr.read()
    assert "initializing" in message.read_text()


@pytest.mark.slow
def test_other_mistakes_are_told_before_the_wait(path: Path) -> None:
    path.write_text(INITIALIZING)
    command = [sys.executable, "-m", "faultrun", f"--rank_table_file={path}", "no_such_script.py"]
    ended = subprocess.run(command, cwd=path.parent, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 64
    assert "waiting" not in ended.stderr
