"""A small supervisor for tests of the SDK: a real socket, a real progress page, real processes and signals.

It does what faultrun does around workers, and nothing else: it starts them,
asks the survivors to save when one dies, and kills at the deadline.
"""

import contextlib
import mmap
import os
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from faultrun.model.observed.progress import WorkPhase, phase_of
from faultrun.model.wire import SLOT_BYTES, Progress, message, unpack_progress, unpack_word
from sdk.support.lines import accept, answer
from support.machine.free_port import free_port
from support.preloaded import Forked, preloaded

PATIENCE_S = 120.0


@dataclass(slots=True)
class Child:
    """One worker process and what was heard of it."""

    process: "subprocess.Popen[bytes] | Forked"
    log: Path
    messages: list[dict[str, Any]] = field(default_factory=list)
    exit_code: int | None = None
    ended_at_s: float = 0.0
    asked_at_s: float = 0.0


class FakeSupervisor:
    """Runs ``world_size`` workers of one incarnation. ``grace_s`` is the window after a death.

    Workers that need ``imports`` are forked from a process that has them.
    """

    def __init__(
        self, directory: Path, world_size: int, *, grace_s: float = 20.0, imports: Sequence[str] = ()
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self.world_size, self.grace_s, self.imports, self.asks_survivors = world_size, grace_s, imports, True
        self.children: dict[int, Child] = {}
        self._changed = threading.Condition()
        self._peers: dict[int, socket.socket] = {}
        self._ports = free_port()
        self._page_path = directory / "progress"
        self._page_path.write_bytes(bytes(SLOT_BYTES * world_size))
        with self._page_path.open("r+b") as file:
            self._page = mmap.mmap(file.fileno(), SLOT_BYTES * world_size)
        self._listener = socket.socket(socket.AF_UNIX)
        self.socket_path = directory / "s"
        self._listener.bind(os.fspath(self.socket_path))
        self._listener.listen()
        self._selector = selectors.DefaultSelector()
        self._wake, self._woken = socket.socketpair()
        self._selector.register(self._listener, selectors.EVENT_READ, self._accept)
        self._selector.register(self._woken, selectors.EVENT_READ, self._drain)
        self._closing = False
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def start(self, rank: int, script: Path, *args: str, env: Mapping[str, str] | None = None) -> Child:
        """Start one worker, with the environment that faultrun gives."""
        log = self.directory / f"worker_{rank}.log"
        environ = {**os.environ, **self.environment(rank), **(env or {})}
        process: subprocess.Popen[bytes] | Forked
        with log.open("ab") as out:
            if self.imports:
                process = preloaded(*self.imports).start(script, *args, env=environ, log=out.fileno())
            else:
                process = subprocess.Popen(
                    [sys.executable, "-u", os.fspath(script), *args],
                    env=environ,
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
        child = Child(process=process, log=log)
        with self._changed:
            self.children[rank] = child
        pidfd = os.pidfd_open(process.pid)
        self._selector.register(pidfd, selectors.EVENT_READ, lambda: self._ended(rank, pidfd))
        self._wake.send(b".")
        return child

    def start_all(self, script: Path, *args: str, env: Mapping[str, str] | None = None) -> None:
        """Start every rank."""
        for rank in range(self.world_size):
            self.start(rank, script, *args, env=env)

    def environment(self, rank: int) -> dict[str, str]:
        """What a worker is told."""
        return {
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "WORLD_SIZE": str(self.world_size),
            "LOCAL_WORLD_SIZE": str(self.world_size),
            "RANK_ID": str(rank),
            "RANK_SIZE": str(self.world_size),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(self._ports),
            "FAULTRUN_RUN_ID": "test-run",
            "FAULTRUN_INCARNATION": "0",
            "FAULTRUN_GRACE_S": f"{self.grace_s:g}",
            "FAULTRUN_SOCKET": os.fspath(self.socket_path),
            "FAULTRUN_PROGRESS": f"{self._page_path}:{rank}",
            "TORCHELASTIC_ERROR_FILE": os.fspath(self.directory / f"error_{rank}.json"),
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": os.pathsep.join(sys.path),
        }

    def ask(self, rank: int, window_s: float | None = None, *, kill_after_s: float | None = None) -> None:
        """The line on the socket, SIGTERM, then SIGCONT; SIGKILL after the window, or when it is said."""
        window = self.grace_s if window_s is None else window_s
        child = self.children[rank]
        child.asked_at_s = time.monotonic()
        self.say(rank, "gasp", deadline_s=window, reason="peer")
        for signum in (signal.SIGTERM, signal.SIGCONT):
            with contextlib.suppress(ProcessLookupError):
                child.process.send_signal(signum)
        killer = threading.Timer(window if kill_after_s is None else kill_after_s, child.process.kill)
        killer.daemon = True
        killer.start()

    def say(self, rank: int, kind: str, **fields: Any) -> None:
        """Send one line to a connected rank."""
        peer = self._peers.get(rank)
        if peer is not None:
            with contextlib.suppress(OSError):
                peer.send(message(kind, **fields), socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)

    def kill(self, rank: int) -> None:
        """SIGKILL, as the kernel's OOM killer would."""
        self.children[rank].process.kill()

    def progress(self, rank: int) -> Progress | None:
        """The slot of one rank."""
        return unpack_progress(self._page[rank * SLOT_BYTES : (rank + 1) * SLOT_BYTES])

    def step_of(self, rank: int) -> int:
        """The newest finished step of one rank; 0 before the first."""
        progress = self.progress(rank)
        return progress.step if progress is not None else 0

    def phase_of(self, rank: int) -> WorkPhase:
        """What one rank says that it does."""
        word = unpack_word(self._page[rank * SLOT_BYTES : (rank + 1) * SLOT_BYTES])
        return phase_of(word.phase) if word is not None else WorkPhase.UNKNOWN

    def is_frozen(self, rank: int) -> bool:
        """Whether the process was stopped by SIGSTOP."""
        stat = Path(f"/proc/{self.children[rank].process.pid}/stat").read_text()
        return stat.rsplit(")", 1)[1].split()[0] == "T"

    def heard(self, rank: int, kind: str) -> list[dict[str, Any]]:
        """The messages of one kind from one rank so far."""
        return [content for content in list(self.children[rank].messages) if content["kind"] == kind]

    def wait_for(self, what: Callable[[], bool], why: str, timeout_s: float = PATIENCE_S) -> None:
        """Wait until ``what`` holds: looked at on every message and every few milliseconds."""
        until_s = time.monotonic() + timeout_s
        with self._changed:
            while not what():
                left_s = until_s - time.monotonic()
                if left_s <= 0 or (not self._living() and not what()):
                    raise AssertionError(f"waited {timeout_s:g} s for: {why}\n{self.logs()}")
                self._changed.wait(min(left_s, 0.005))

    def _living(self) -> bool:
        return any(child.exit_code is None for child in self.children.values())

    def wait_ended(self, *ranks: int, timeout_s: float = PATIENCE_S) -> list[int]:
        """Wait for the end of these ranks (default: all); their exit codes."""
        wanted = ranks or tuple(self.children)
        self.wait_for(
            lambda: all(self.children[rank].exit_code is not None for rank in wanted),
            f"the end of ranks {wanted}",
            timeout_s,
        )
        return [code for rank in wanted if (code := self.children[rank].exit_code) is not None]

    def logs(self) -> str:
        """The ends of all worker logs, for failure messages."""
        return "\n".join(
            f"--- rank {rank}\n{child.log.read_text(errors='replace')[-3000:]}"
            for rank, child in self.children.items()
        )

    def close(self) -> None:
        """Kill what is left and stop serving."""
        for child in self.children.values():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.process.pid, signal.SIGKILL)
            child.process.wait()
        self._closing = True
        self._wake.send(b".")
        self._thread.join()
        self._selector.close()
        for one in (*self._peers.values(), self._listener, self._wake, self._woken):
            one.close()
        self._page.close()

    def _serve(self) -> None:
        while not self._closing:
            answer(self._selector, 1.0)

    def _drain(self) -> None:
        self._woken.recv(512)

    def _accept(self) -> None:
        accept(self._listener, self._selector, self._hear)

    def _hear(self, peer: socket.socket, content: dict[str, Any]) -> None:
        if content["kind"] == "hello":
            self._peers[content["rank"]] = peer
        rank = next((rank for rank, one in self._peers.items() if one is peer), None)
        if rank is not None:
            with self._changed:
                self.children[rank].messages.append(content)
                self._changed.notify_all()

    def _ended(self, rank: int, pidfd: int) -> None:
        self._selector.unregister(pidfd)
        os.close(pidfd)
        child = self.children[rank]
        code = child.process.wait()
        with self._changed:
            child.exit_code = code
            child.ended_at_s = time.monotonic()
            self._changed.notify_all()
        if code != 0 and self.asks_survivors:
            for other, one in self.children.items():
                if one.exit_code is None and not one.asked_at_s:
                    self.ask(other)


@contextlib.contextmanager
def supervised(
    directory: Path, world_size: int, *, grace_s: float = 20.0, imports: Sequence[str] = ()
) -> Iterator[FakeSupervisor]:
    """A supervisor that leaves no process behind."""
    supervisor = FakeSupervisor(directory, world_size, grace_s=grace_s, imports=imports)
    try:
        yield supervisor
    finally:
        supervisor.close()
