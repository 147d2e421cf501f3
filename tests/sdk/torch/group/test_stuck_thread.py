"""A main thread in a broken group is freed, and the group that it forms next is left alone."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

pytest.importorskip("torch")

from faultrun.sdk.torch.group import stuck_thread

pytestmark = pytest.mark.torch


class LeavesLate(stuck_thread.Left):
    """Its main thread lets go between the last look and the abort."""

    def unless(self, incarnation: int, abort: Callable[[], None]) -> None:
        self.note(incarnation)
        super().unless(incarnation, abort)


def test_an_abort_that_comes_late_does_not_end_the_next_group() -> None:
    aborts: list[int] = []
    stuck_thread.free_now(LeavesLate(), 3, lambda: aborts.append(3))
    assert aborts == []


def test_one_that_does_not_come_out_is_freed_and_nobody_forms_a_group_meanwhile() -> None:
    left, under_way, goes_on, events = stuck_thread.Left(), threading.Event(), threading.Event(), []

    def abort() -> None:
        under_way.set()
        assert goes_on.wait(60)
        events.append("aborted")

    freeing = threading.Thread(target=stuck_thread.free_now, args=(left, 3, abort))
    freeing.start()
    assert under_way.wait(60)

    def leave() -> None:
        left.note(3)
        events.append("left")

    leaving = threading.Thread(target=leave)
    leaving.start()
    leaving.join(0.05)
    assert leaving.is_alive(), "it left in the middle of an abort"
    goes_on.set()
    leaving.join(60)
    freeing.join(60)

    assert events == ["aborted", "left"]


def test_a_main_thread_that_waits_for_a_disk_is_not_stuck_in_gloo(tmp_path: Path) -> None:
    """It may be writing a checkpoint. Here it waits in the same way, for a child that opens a FIFO."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    opens = f"[(os.POSIX_SPAWN_OPEN, 0, {os.fspath(fifo)!r}, os.O_RDONLY, 0)]"
    waits = f"import os; os.waitpid(os.posix_spawn('/bin/true', ['true'], {{}}, file_actions={opens}), 0)"
    process = subprocess.Popen([sys.executable, "-c", waits])
    state, until_s = Path(f"/proc/{process.pid}/stat"), time.monotonic() + 30
    children = psutil.Process(process.pid).children  # before there is one it waits for files that it reads
    while not (is_there := bool(children()) and b") D" in state.read_bytes()) and time.monotonic() < until_s:
        time.sleep(0.001)
    seen = [stuck_thread._moved(process.pid) for _ in range(3)]
    goes_on = os.open(fifo, os.O_RDWR | os.O_NONBLOCK)
    process.wait(60)
    os.close(goes_on)
    if not is_there:
        pytest.skip("this kernel lets who starts a child wait in another way")
    assert len(set(seen)) == len(seen)
