"""Locks die with their holder, tell who that is, and do without flock where a file system has none."""

import errno
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from faultrun.locks import Busy, Flock, held, hold
from faultrun.workers.forked_helper import Forked

_HOLDER = f"""
import os, sys
from pathlib import Path
sys.path[:0] = {sys.path!r}
from faultrun.locks import hold
from faultrun.workers.forked_helper import Forked
lock = hold(Path(sys.argv[1]))
read_end, write_end = os.pipe()
helper = Forked(lambda: os.read(read_end, 1), keep=(read_end,))
executed = __import__("subprocess").Popen(["sleep", "60"])
print(helper.pid, executed.pid, flush=True)
sys.stdin.read()
"""


class Flockless(Flock):
    """As on a file system whose lock service does not answer."""

    def take(self) -> bool:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))


def test_a_lock_dies_with_its_holder_whatever_that_started(tmp_path: Path) -> None:
    path = tmp_path / ".lock"
    holder = subprocess.Popen(
        [sys.executable, "-c", _HOLDER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    assert holder.stdin is not None
    helper, executed = map(int, holder.stdout.readline().split())
    try:
        with pytest.raises(Busy) as busy:
            hold(path)
        assert busy.value.pid == holder.pid
        assert busy.value.holder.startswith(f"pid {holder.pid} (")
        holder.kill()
        holder.wait(20)
        os.kill(executed, 0)
        hold(path, wait_s=10).release()
    finally:
        holder.stdin.close()
        holder.stdout.close()
        for pid in (helper, executed):
            with_end(pid)


def test_the_kernels_list_of_locks_is_read_for_whoever_asks_who_holds_one(tmp_path: Path) -> None:
    lock = hold(tmp_path / ".lock")
    script = f"""
import sys
opened = []
sys.addaudithook(lambda event, args: opened.append(str(args[0])) if event == "open" else None)
from pathlib import Path
from faultrun.locks import Busy, hold
try:
    hold(Path({str(tmp_path / ".lock")!r}), wait_s=None)
except Busy as busy:
    assert "/proc/locks" not in opened
    assert busy.pid == {os.getpid()}
    assert "/proc/locks" in opened
    print(repr(busy), busy)
"""
    found = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path[:0] = {sys.path!r}\n{script}"],
        capture_output=True,
        text=True,
        check=False,
    )
    lock.release()
    assert f"is held by pid {os.getpid()} (" in found.stdout, found.stderr


def with_end(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def test_nobody_else_can_open_and_so_hold_a_lock(tmp_path: Path) -> None:
    path = tmp_path / ".lock"
    path.touch(mode=0o644)
    path.chmod(0o644)
    for _ in range(2):
        lock = hold(path)
        assert path.stat().st_mode & 0o077 == 0
        lock.release()
        path.unlink()


def test_a_lock_for_a_moment_leaves_no_file_and_lets_nobody_in_twice(tmp_path: Path) -> None:
    path = tmp_path / ".lock"
    inside, most = [], 0

    def take() -> None:
        nonlocal most
        for _ in range(50):
            with held(path, wait_s=20):
                inside.append(1)
                most = max(most, len(inside))
                inside.pop()

    threads = [threading.Thread(target=take) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert most == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.long
def test_where_there_is_no_flock_a_lease_keeps_others_out(tmp_path: Path) -> None:
    path, lease_s = tmp_path / ".lock", 2.0
    lock = hold(path, native=Flockless, lease_s=lease_s)
    with pytest.raises(Busy) as busy:
        hold(path, native=Flockless, lease_s=lease_s)
    assert busy.value.holder.startswith(f"pid {os.getpid()} on ")
    lock.release()
    with held(path, wait_s=0, native=Flockless, lease_s=lease_s):
        pass
    assert list(tmp_path.iterdir()) == []


def test_who_does_not_wait_does_not_wait_for_a_lease_to_end(tmp_path: Path) -> None:
    path = tmp_path / ".lock"
    lock = hold(path, wait_s=None, native=Flockless, lease_s=600)
    with pytest.raises(Busy):
        hold(path, wait_s=None, native=Flockless, lease_s=600)
    lock.release()


def test_the_lease_of_a_holder_that_was_killed_is_taken_over(tmp_path: Path) -> None:
    path = tmp_path / ".lock"
    read_end, write_end = os.pipe()

    def die_holding() -> None:
        hold(path, native=Flockless, lease_s=0.5)
        os.write(write_end, b"+")
        os.kill(os.getpid(), signal.SIGKILL)

    Forked(die_holding, keep=(write_end,)).end(10)
    assert os.read(read_end, 1) == b"+"
    hold(path, native=Flockless, lease_s=0.5).release()


def test_an_error_of_another_kind_is_not_taken_for_a_missing_flock(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match=r"exists|Not a directory"):
        hold(tmp_path / "file" / ".lock")
