"""A launcher that runs: its notes, its end, its processes; nothing of it outlives the block.

Waiting is waiting for something: a note, the end of a process, a deadline.
"""

import math
import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from benchmarks.harness.benchmark import NotMeasured
from benchmarks.harness.launchers import BIN
from benchmarks.harness.notes import Note, NotePipe
from benchmarks.harness.procfs import tagged

ROOT = Path(__file__).resolve().parents[2]
TAG = "BENCH_TAG"
_NOTES = "BENCH_NOTES"
_NOT_INHERITED = ("FAULTRUN_", "MS_", "BENCH_", "PET_", "TORCHELASTIC_", "RANK", "WORLD_SIZE", "MASTER_")
_TAIL_LINES = 3
_DIRECTORY = re.compile(r"(?<![\w./:])\.?/?(?:[\w.@+-]+/){2,}")
"""Of a path only the name is worth keeping: where it lay is this machine's."""

_STOP_PATIENCE_S = 40.0
_GONE_PATIENCE_S = 10.0


class Overdue(NotMeasured):
    """Something did not happen in time, or the launcher ended before it did."""


class Launched:
    """One launcher process in ``folder``. Times are CLOCK_MONOTONIC seconds."""

    def __init__(self, command: Sequence[str], folder: Path, environ: Mapping[str, str]) -> None:
        self.notes: list[Note] = []
        self.ends: dict[int, float] = {}
        self.tag = os.urandom(8).hex()
        self._folder = folder
        self._pidfds: dict[int, int] = {}
        self._poll = select.poll()
        self._pipe = NotePipe(folder / f"notes-{self.tag}")
        self._poll.register(self._pipe.fd, select.POLLIN)
        self._console = folder / f"console-{self.tag}.txt"
        with self._console.open("wb") as console:
            self.began_s = time.monotonic()
            self._process = subprocess.Popen(
                command,
                cwd=folder,
                env={**clean_environ(), _NOTES: str(self._pipe.path), TAG: self.tag, **environ},
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.pid = self._process.pid
        self.watch((self.pid,))

    def __enter__(self) -> "Launched":  # noqa: PYI034  typing.Self is younger than our oldest Python
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def console(self) -> str:
        """What the launcher has said so far."""
        return self._console.read_text(encoding="utf-8", errors="replace")

    @property
    def returncode(self) -> int | None:
        """Its exit code, negative when a signal ended it; None while it runs."""
        return self._process.poll()

    def watch(self, pids: Iterable[int]) -> None:
        """Have the moment at which each of ``pids`` ends noted in ``ends``."""
        for pid in pids:
            with suppress(ProcessLookupError):
                pidfd = os.pidfd_open(pid)
                self._pidfds[pidfd] = pid
                self._poll.register(pidfd, select.POLLIN)

    def wait_for(
        self, reached: Callable[[], bool], *, within_s: float, what: str, look_every_s: float = math.inf
    ) -> None:
        """Return as soon as ``reached`` says so; Overdue when it does not in time, or cannot any more.

        It is asked at each note and each end, and every ``look_every_s`` where neither would come.
        """
        deadline_s = time.monotonic() + within_s
        while not reached():
            left_s = deadline_s - time.monotonic()
            if left_s <= 0:
                raise Overdue(f"{what}: not within {within_s:g} s{self._last_words()}")
            if self.pid in self.ends:
                raise Overdue(f"{what}: the launcher ended with {self.returncode} before{self._last_words()}")
            self._look(min(left_s, look_every_s))

    def wait_for_the_end(self, *, within_s: float) -> int:
        """The exit code, once the launcher has ended."""
        self.wait_for(lambda: self.pid in self.ends, within_s=within_s, what="the end")
        self.notes += self._pipe.read()
        return self._process.wait()

    def stay(self, for_s: float) -> None:
        """Let time pass while everything runs; Overdue when the launcher ends meanwhile."""
        until_s = time.monotonic() + for_s
        while (left_s := until_s - time.monotonic()) > 0:
            self._look(left_s)
            if self.pid in self.ends:
                raise Overdue(f"the launcher ended with {self.returncode}{self._last_words()}")

    def processes(self) -> set[int]:
        """All living processes of this launch: the launcher, its helpers, the workers."""
        return tagged(TAG, self.tag)

    def wait_until_gone(self, *, within_s: float) -> set[int]:
        """Wait for the end of every process of this launch; return those that are left."""
        deadline_s = time.monotonic() + within_s
        while left := self.processes():
            self.watch(left - set(self._pidfds.values()) - set(self.ends))
            left_s = deadline_s - time.monotonic()
            if left_s <= 0:
                return left
            self._look(left_s)
        return set()

    def close(self) -> None:
        """Stop the launcher, politely first; then kill whatever of it is left."""
        if self.returncode is None:
            self._process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_STOP_PATIENCE_S)
        self.kill_all()
        self._process.wait()
        for pidfd in self._pidfds:
            os.close(pidfd)
        self._pidfds.clear()
        self._pipe.close()

    def kill_all(self) -> None:
        """SIGKILL to everything that belongs to this launch, until nothing of it is left."""
        deadline_s = time.monotonic() + _GONE_PATIENCE_S
        while (alive := self.processes()) and time.monotonic() < deadline_s:
            for pid in alive:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self._process.poll()
            self.wait_until_gone(within_s=1.0)

    def save_notes(self, path: Path) -> None:
        """Write what the workers told, one line each, in the order of their clocks."""
        lines = (
            f"{note.at_s:.6f} rank {note.rank} life {note.life} pid {note.pid} {note.what} {note.value}\n"
            for note in sorted(self.notes, key=lambda note: note.at_s)
        )
        path.write_text("".join(lines), encoding="utf-8")

    def _look(self, patience_s: float) -> None:
        ready = self._poll.poll(max(0.0, patience_s) * 1000)
        now_s = time.monotonic()
        for fd, _ in ready:
            pid = self._pidfds.pop(fd, None)
            if pid is not None:
                self._poll.unregister(fd)
                os.close(fd)
                self.ends[pid] = now_s
                if pid == self.pid:
                    self._process.wait()
        self.notes += self._pipe.read()

    def _last_words(self) -> str:
        lines = [_DIRECTORY.sub("", line.strip()) for line in self.console.splitlines() if line.strip()]
        return "; it said: " + " / ".join(lines[-_TAIL_LINES:]) if lines else ""


def start_in(folder: Path, command: Sequence[str], **environ: str) -> "subprocess.Popen[bytes]":
    """Start it in a session of its own; what it says is behind what is in ``console.txt``."""
    with (folder / "console.txt").open("ab") as console:
        return subprocess.Popen(
            command,
            cwd=folder,
            env={**clean_environ(), **environ},
            stdin=subprocess.DEVNULL,
            stdout=console,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def said_at_the_end(console: str) -> str:
    """What faultrun said about the end of the run; whatever it offers behind that is not part of it."""
    return next((line for line in reversed(console.splitlines()) if "; exit code " in line), "")


def clean_environ() -> dict[str, str]:
    """Our environment with this checkout and the tools of this Python first, and one thread a worker."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_NOT_INHERITED)}
    return {
        **kept,
        "PATH": f"{BIN}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
        "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'launcher'}",
        "PYTHONNOUSERSITE": "1",
        "OMP_NUM_THREADS": "1",
        "VIRTUAL_ENV": sys.prefix,
    }
