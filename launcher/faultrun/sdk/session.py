"""What faultrun gave this worker: who it is and where it resumes, a socket, and a slot in the progress page.

The environment is read once and checked; outside faultrun there is no
session, and all of the SDK does nothing. Knows nothing of training.
"""

import contextlib
import ctypes
import fcntl
import os
import socket
import struct
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import faultrun
from faultrun.model.progress import WorkPhase
from faultrun.model.wire import (
    INTERVAL_OFFSET,
    MAX_LINE_BYTES,
    PROGRESS_VARIABLE,
    SAVE_OFFSET,
    SLOT_BYTES,
    SOCKET_VARIABLE,
    STOP_OFFSET,
    message,
    pack_number,
    pack_word,
    parse,
    unpack_number,
    widest_interval,
)
from faultrun.model.worker_identity import FOLDERS_VARIABLE, WorkerIdentity

_DEFAULT_GRACE_S = 30.0
"""Length of the grace window when nobody says another: what container platforms give."""
_ONE_SECOND = struct.pack("ll", 1, 0)  # struct timeval
_PHASES = tuple(WorkPhase)
_NUMBER = {phase: number for number, phase in enumerate(_PHASES)}
_COMPUTING = _NUMBER[WorkPhase.COMPUTING]
_SAVING = _NUMBER[WorkPhase.SAVING]
_DONE = _NUMBER[WorkPhase.DONE]

_LIBC = ctypes.PyDLL(None)
"""Keeps Python's lock: a thread that computes would give it back only after 5 ms, at each step."""
_LIBC.pwrite.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_long)
_LIBC.pwrite.restype = ctypes.c_ssize_t
_MOST_JOINED = 1 << 16
_LOCKED_S = 0.05
_OUT_OF_THE_WAY = 512
"""A script that closes what it does not know, and opens files then, must not get our number for one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumePoint:
    """Where this worker is to go on.

    ``path`` is the checkpoint file or directory that was chosen for this rank; ``step`` the global
    step it holds (the next one to run is ``step + 1``); ``epoch`` as the
    checkpoint counts it; None where the checkpoint does not say. ``reason``
    is why the workers were started again ("fault", "stop", ...).
    """

    path: str
    step: int | None
    epoch: int | None
    reason: str
    incarnation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """One worker of one incarnation. ``socket`` and ``progress`` are "" where faultrun gave none.

    ``folders`` is ``--worker_dir`` with its fields; "" where all ranks work in one place.
    """

    rank: int = 0
    world_size: int = 1
    run_id: str = ""
    incarnation: int = 0
    grace_s: float = _DEFAULT_GRACE_S
    node: str = ""
    socket: str = ""
    progress: str = ""
    error_file: str = ""
    point: ResumePoint | None = None
    folders: str = ""
    local_world_size: int = 1

    def beside(self, path: Path, rank: int) -> Path:
        """Where ``rank`` has what is ``path`` for us: ``--worker_dir`` may give each a folder of its own.

        Nodes are taken to have as many workers as ours.
        """
        identity, local = WorkerIdentity(folder=self.folders), self.local_world_size
        own, other = (identity.folder_of(one, one % local, one // local) for one in (self.rank, rank))
        if own is None or other is None or not path.is_relative_to(own):
            return path
        return Path(other) / path.relative_to(own)


def read_session(environ: Mapping[str, str]) -> Session | None:
    """The session that ``environ`` describes; None when faultrun did not start this process."""
    if not environ.get(SOCKET_VARIABLE) and not environ.get(PROGRESS_VARIABLE):
        return None
    return read_identity(environ)


def read_identity(environ: Mapping[str, str]) -> Session:
    """Rank, world and run as any launcher sets them; alone in the world when none did."""
    rank = _number(environ, "RANK", "RANK_ID") or 0
    incarnation = _number(environ, "FAULTRUN_INCARNATION", "TORCHELASTIC_RESTART_COUNT") or 0
    point = ResumePoint(
        path=environ.get("FAULTRUN_RESUME_FROM", ""),
        step=_number(environ, "FAULTRUN_RESUME_STEP"),
        epoch=_number(environ, "FAULTRUN_RESUME_EPOCH"),
        reason=environ.get("FAULTRUN_RESTART_REASON", ""),
        incarnation=incarnation,
    )
    return Session(
        rank=rank,
        world_size=max(_number(environ, "WORLD_SIZE", "RANK_SIZE") or 1, rank + 1),
        run_id=environ.get("FAULTRUN_RUN_ID", ""),
        incarnation=incarnation,
        grace_s=_seconds(environ.get("FAULTRUN_GRACE_S", "")),
        node=environ.get("FAULTRUN_NODE", "") or os.uname().nodename,
        socket=environ.get(SOCKET_VARIABLE, ""),
        progress=environ.get(PROGRESS_VARIABLE, ""),
        error_file=environ.get("TORCHELASTIC_ERROR_FILE", ""),
        point=point if point.path else None,
        folders=environ.get(FOLDERS_VARIABLE, ""),
        local_world_size=_number(environ, "LOCAL_WORLD_SIZE") or 1,
    )


def _number(environ: Mapping[str, str], *names: str) -> int | None:
    return next((int(environ[name]) for name in names if environ.get(name, "").isdecimal()), None)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        return _DEFAULT_GRACE_S
    return seconds if 0 < seconds < 1e6 else _DEFAULT_GRACE_S


class SupervisorLink:
    """The worker's end of ``FAULTRUN_SOCKET``: introduces itself, comes back when it was lost.

    Loses messages rather than time: training never waits for it. Used by the helper thread, and by the
    watchdog of a save: sending is locked, receiving is not. Never raises OSError.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._lock = threading.Lock()
        self._buffer = b""
        self._socket: socket.socket | None = None

    @property
    def fd(self) -> int | None:
        """What to wait on for messages; None while not connected."""
        return self._socket.fileno() if self._socket is not None else None

    def connect(self) -> bool:
        """Connect and say hello; False when nobody listens."""
        if self._socket is not None:
            return True
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        # not settimeout: Python would then wait that long in recv, even with MSG_DONTWAIT
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _ONE_SECOND)
        try:
            connection.connect(self._session.socket)
        except OSError:
            connection.close()
            return False
        self._buffer = b""
        self._socket = connection
        return self.send(
            "hello",
            rank=self._session.rank,
            pid=os.getpid(),
            incarnation=self._session.incarnation,
            sdk=faultrun.__version__,
        )

    def send(self, kind: str, **fields: Any) -> bool:
        """Send one message; False when it did not get through."""
        line = message(kind, **fields)
        with self._lock:
            if self._socket is None:
                return False
            try:
                self._socket.sendall(line)
            except OSError:
                self._close()
                return False
            return True

    def receive(self) -> list[dict[str, Any]]:
        """The messages that have arrived by now; closes the connection when it has ended."""
        if self._socket is None:
            return []
        try:
            data = self._socket.recv(MAX_LINE_BYTES, socket.MSG_DONTWAIT)
        except (BlockingIOError, TimeoutError):
            return []
        except OSError:
            data = b""
        if not data or len(self._buffer) > MAX_LINE_BYTES:
            with self._lock:
                self._close()
            return []
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        return [content for content in map(parse, lines) if content is not None]

    def _close(self) -> None:
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.close()
            self._socket = None


class ProgressSlot:
    """This worker's slot in the progress page: one write a step, readable by faultrun even after SIGKILL.

    The page is written, not mapped: a mapped file that somebody cuts (``truncate``, logrotate) ends its
    process with SIGBUS. What was cut away comes back with the next step. ``where`` is ``<path>:<slot>``;
    where there is no such place (not ``is_there``) nothing is written, and zeros are read.
    """

    def __init__(self, where: str) -> None:
        self._at, self._fd, self._page_bytes = 0, -1, SLOT_BYTES
        with contextlib.suppress(OSError, ValueError):
            path, _, slot = where.rpartition(":")
            at = int(slot) * SLOT_BYTES
            self._fd, self._page_bytes = _opened(path, at + SLOT_BYTES)
            self._at = at
        self.is_there = self._fd >= 0
        self._step, self._epoch, self._count = 0, -1, 0
        self._work = _COMPUTING
        self._saving = 0
        self._tell()

    def stepped(self, step: int, epoch: int) -> None:
        """``step`` is finished; -1 when the epoch is not known."""
        self._step, self._epoch = step, epoch
        self._count += 1
        self._work = _COMPUTING
        self._tell()

    def works_at(self, phase: WorkPhase) -> WorkPhase:
        """What the main thread does from now on; returns what it did before. DONE is final, until a step."""
        before = self._work
        if before != _DONE:
            self._work = _NUMBER[phase]
            self._tell()
        return _PHASES[before]

    def saves(self, more: int) -> None:
        """One save of the helper thread more (1) or less (-1), whatever the main thread does meanwhile."""
        self._saving += more
        self._tell()

    def _tell(self) -> None:
        work = _SAVING if self._saving else self._work
        self._write(self._at, pack_word(self._step, self._epoch, work, time.monotonic(), self._count))

    def propose_stop(self, step: int) -> None:
        """Ask all ranks of this node to stop after ``step``, unless one has before.

        Ranks that meet in a collective every step need no lock: the second sees the first one's a step early.
        """
        if self.agreed_stop() == 0:
            self._write(STOP_OFFSET, pack_number(step))

    def agreed_stop(self) -> int:
        """The step after which the ranks of this node stop; 0 while nobody was asked to."""
        return unpack_number(self._read(SLOT_BYTES), STOP_OFFSET)

    def agree_on_save(self, newest: int) -> int:
        """The step that the ranks of this node save: the one after ``newest``, unless a peer has named one.

        For ranks that meet in a collective every step, and go on after a save when all have joined it.
        """
        with self._alone():
            named, joined = self._named_save()
            if named not in (newest, newest + 1):
                named, joined = newest + 1, 0
            self._write(SAVE_OFFSET, pack_number((named + 1) * _MOST_JOINED + joined + 1))
        return named

    def joined_save(self) -> int:
        """How many have agreed to the step that was named last."""
        return self._named_save()[1]

    def _named_save(self) -> tuple[int, int]:
        return divmod(unpack_number(self._read(SLOT_BYTES), SAVE_OFFSET) - _MOST_JOINED, _MOST_JOINED)

    def agree_on_interval(self, steps: int) -> int:
        """Copies are made every ``steps`` here; the interval that suits every rank of this node."""
        self._write(self._at + INTERVAL_OFFSET, pack_number(steps))
        return widest_interval(self._read(self._page_bytes))

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Keep other ranks of the node out; not where the page cannot be locked, nor for a frozen one."""
        until_s = time.monotonic() + _LOCKED_S
        while not (locked := _locked(self._fd)) and time.monotonic() < until_s:
            time.sleep(0.001)
        yield
        if locked:
            fcntl.lockf(self._fd, fcntl.LOCK_UN, 8, SAVE_OFFSET)

    def _write(self, offset: int, data: bytes) -> None:
        """A disk that is full or gone costs the word, not the training."""
        _LIBC.pwrite(self._fd, data, len(data), offset)

    def _read(self, size_bytes: int) -> bytes:
        """From the page's beginning; zeros for what is not there."""
        data = b""
        with contextlib.suppress(OSError):
            data = os.pread(self._fd, size_bytes, 0)
        return data.ljust(size_bytes, b"\0")


def _locked(fd: int) -> bool:
    with contextlib.suppress(OSError, ValueError):
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 8, SAVE_OFFSET)
        return True
    return False


def _opened(path: str, least_bytes: int) -> tuple[int, int]:
    """A descriptor, and the size of the page."""
    fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    there_bytes = os.fstat(fd).st_size
    if there_bytes < least_bytes:
        os.close(fd)
        raise ValueError(f"{path} has no slot that ends at byte {least_bytes}")
    with contextlib.suppress(OSError):  # few descriptors are allowed here
        high = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _OUT_OF_THE_WAY)
        os.close(fd)
        fd = high
    return fd, there_bytes - there_bytes % SLOT_BYTES
