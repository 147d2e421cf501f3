"""Stacks of living workers: asked of the SDK by a signal, else read from outside by ``py-spy``.

The SDK comes first: it answers in a millisecond, needs no permission, and says where a main thread is that
holds Python's lock. The main thread itself has to take the signal: a dump by another thread would read its
stack while it changes. A stopped process gives no answer; py-spy reads its memory, where it is and may.
"""

import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from faultrun.files import bytes_from, on_path
from faultrun.model.wire import STACKS_SIGNAL
from faultrun.workers.proc_reader import catches
from faultrun.workers.process import Process

_LOOK_S = 0.004
_STILL_LOOKS = 8
_ENDS = (" in <module>\n", "  ...\n")  # the outermost call of a thread, or that more were left out
_PY_SPY_AT_ONCE = 4
MOST_DUMPED_BYTES = 1 << 20
"""How much of a worker's output is read: it is kept in memory, and shown."""


class StackDump:
    """One dump of each worker that answers. ``files`` are where the SDK of each rank writes.

    One that does not end in a script's ``<module>`` is whole if it has not grown for ``still_looks`` looks.
    """

    def __init__(
        self, workers: Mapping[int, Process], files: Mapping[int, Path], still_looks: int = _STILL_LOOKS
    ) -> None:
        self._files, self._still_looks = files, still_looks
        self._began = {rank: _size(path) for rank, path in files.items()}
        self.asked = frozenset(rank for rank, worker in workers.items() if catches(worker.pid, STACKS_SIGNAL))
        for rank in self.asked:
            workers[rank].signal_main_thread(STACKS_SIGNAL)

    def collect(self, ranks: frozenset[int], patience_s: float) -> dict[int, str]:
        """The dumps of ``ranks`` that are written by then: as soon as all are whole, or time is up.

        A dump has no end mark, and is written piece by piece: a worker may lose its processor in between.
        """
        until_s = time.monotonic() + patience_s
        sizes = dict.fromkeys(ranks & self.asked, -1)
        still = dict.fromkeys(sizes, 0)
        whole: set[int] = set()
        while len(whole) < len(sizes) and time.monotonic() < until_s:
            time.sleep(_LOOK_S)  # in a helper thread; a file does not tell that it has grown
            for rank in sizes.keys() - whole:
                size = _size(self._files[rank])
                still[rank] = still[rank] + 1 if size == sizes[rank] > self._began[rank] else 0
                sizes[rank] = size
                if still[rank] >= self._still_looks or (still[rank] and self._read(rank).endswith(_ENDS)):
                    whole.add(rank)
        return {rank: text for rank in sizes if (text := self._read(rank))}

    def _read(self, rank: int) -> str:
        return bytes_from(self._files[rank], self._began[rank], MOST_DUMPED_BYTES).decode(errors="replace")


def read_from_outside(pids: Mapping[int, int], patience_s: float) -> dict[int, str]:
    """What ``py-spy dump`` says of each rank; empty where it is not installed, not permitted or too slow."""
    program = on_path("py-spy", Path(sys.executable).parent)
    if not program or not pids:
        return {}
    until_s = time.monotonic() + patience_s
    found: dict[int, str] = {}
    waiting = sorted(pids)
    while waiting and time.monotonic() < until_s:
        batch, waiting = waiting[:_PY_SPY_AT_ONCE], waiting[_PY_SPY_AT_ONCE:]
        running = {rank: _py_spy(program, pids[rank]) for rank in batch}
        for rank, process in running.items():
            text = _output(process, until_s) if process is not None else ""
            if text:
                found[rank] = text
    return found


def _py_spy(program: str, pid: int) -> "subprocess.Popen[str] | None":
    # It must not stop the process it reads: one that is stopped already would never be given back.
    command = [program, "dump", "--nonblocking", "--pid", str(pid)]
    with suppress(OSError):
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            errors="replace",
        )
    return None


def _output(process: "subprocess.Popen[str]", until_s: float) -> str:
    try:
        text, _ = process.communicate(timeout=max(0.01, until_s - time.monotonic()))
    except subprocess.TimeoutExpired:
        process.kill()
        text, _ = process.communicate()
    return text if "Thread " in text else ""


def _size(path: Path) -> int:
    with suppress(OSError):
        return path.stat().st_size
    return 0
