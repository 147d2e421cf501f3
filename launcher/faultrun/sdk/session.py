"""What faultrun gave this worker: who it is and where it resumes, a socket, and a slot in the progress page.

The environment is read once and checked; outside faultrun there is no
session, and all of the SDK does nothing. Knows nothing of training.
"""

import contextlib
import os
import socket
import struct
import threading
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import faultrun
from faultrun.model.spec.windows import DEFAULT_GRACE_S
from faultrun.model.spec.worker_identity import FOLDERS_VARIABLE, WorkerIdentity
from faultrun.model.wire import (
    CHECK_VARIABLE,
    FULL_VARIABLE,
    MAX_LINE_BYTES,
    MISSING_VARIABLE,
    PROGRESS_VARIABLE,
    REJOIN_VARIABLE,
    SOCKET_VARIABLE,
    VERDICT_VARIABLE,
    message,
    parse,
)
from faultrun.sdk.own_file import OwnFile
from faultrun.unix_sockets import short

_VERDICT_S = 2.0
_FD = struct.Struct("i")
_FDS_BYTES = socket.CMSG_SPACE(16 * _FD.size)
_ONE_SECOND = struct.pack("ll", 1, 0)  # struct timeval


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumePoint:
    """Where this worker is to go on.

    ``path`` is the checkpoint file or directory that was chosen for this rank; ``step`` the global step it
    holds (the next one to run is ``step + 1``); ``epoch`` as the checkpoint counts it; None where the
    checkpoint does not say. ``reason`` is why the workers were started again ("fault", "stop", ...).
    """

    path: str
    step: int | None
    epoch: int | None
    reason: str
    incarnation: int


@dataclass(slots=True, kw_only=True)
class Session:
    """One worker of one incarnation. ``socket`` and ``progress`` are "" where faultrun gave none.

    ``folders`` is ``--worker_dir`` with its fields; "" where all ranks work in one place. ``is_newcomer``: it
    takes a dead rank's place beside ranks that live on. ``verdict_s``: so long may it take from the error of
    a collective to the supervisor's word that a peer is gone.

    ``full_world_size`` is that of the run when no rank is left out, 0 where none ever is. ``trained_in``: the
    incarnation of the newest whole step; None: this one. ``has_stepped``: this process has made a step, and
    holds no state of a file any more. ``has_joined``: it has been told of a group since it began. ``checks``:
    what comes back is compared with what was (``sdk/torch/state/check.py``). ``trains_on``: it is to train
    while the place of another rank is empty. A process that lives on in the next incarnation changes
    ``incarnation`` and ``progress`` here, in the one object that all of the SDK holds (``moves_to``).
    """

    rank: int = 0
    world_size: int = 1
    run_id: str = ""
    incarnation: int = 0
    grace_s: float = DEFAULT_GRACE_S
    node: str = ""
    socket: str = ""
    progress: str = ""
    error_file: str = ""
    point: ResumePoint | None = None
    folders: str = ""
    local_world_size: int = 1
    is_newcomer: bool = False
    verdict_s: float = _VERDICT_S
    full_world_size: int = 0
    trained_in: int | None = None
    has_joined: bool = False
    has_stepped: bool = False
    checks: bool = False
    trains_on: bool = False

    @property
    def life(self) -> int:
        """What a save says of its life: the one in which its step was made, with all other ranks.

        A rank that waits in the next process group, or does not know of it yet, has still that of the last.
        """
        return self.incarnation if self.trained_in is None else self.trained_in

    @property
    def is_parked(self) -> bool:
        """Whether this newcomer's rank still lives, and has the slot in the page."""
        return self.is_outside and not self.progress

    @property
    def is_outside(self) -> bool:
        """Whether this is a newcomer that does not know its place yet."""
        return self.is_newcomer and not self.has_joined

    @property
    def batch_ranks(self) -> int:
        """The number of ranks whose batches make up a step."""
        return max(self.full_world_size, self.world_size)

    def moves_to(self, incarnation: int, progress: str) -> None:
        """This process is a worker of the next incarnation from now on, with a slot in another page."""
        self.incarnation, self.progress, self.has_joined = incarnation, progress, True

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
        is_newcomer=environ.get(REJOIN_VARIABLE) == "1",
        verdict_s=_seconds(environ.get(VERDICT_VARIABLE, ""), _VERDICT_S),
        full_world_size=_number(environ, FULL_VARIABLE) or 0,
        checks=environ.get(CHECK_VARIABLE) == "1",
        trains_on=environ.get(MISSING_VARIABLE) == "train",
    )


def _number(environ: Mapping[str, str], *names: str) -> int | None:
    return next((int(environ[name]) for name in names if environ.get(name, "").isdecimal()), None)


def _seconds(text: str, otherwise: float = DEFAULT_GRACE_S) -> float:
    try:
        seconds = float(text)
    except ValueError:
        return otherwise
    return seconds if 0 < seconds < 1e6 else otherwise


class SupervisorLink:
    """The worker's end of ``FAULTRUN_SOCKET``: introduces itself, comes back when it was lost.

    Loses messages rather than time: training never waits for it. Used by the helper thread, and by the
    watchdog of a save: sending is locked, receiving is not. Never raises OSError.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._lock = threading.Lock()
        self._buffer = b""
        self._fds: deque[int] = deque()
        self._socket: socket.socket | None = None
        self._own: OwnFile | None = None
        self.was_closed = False

    @property
    def fd(self) -> int | None:
        """What to wait on for messages; None while not connected."""
        self._give_up_what_is_not_ours()
        return self._socket.fileno() if self._socket is not None else None

    def connect(self) -> bool:
        """Connect and say hello; False when no supervisor listens."""
        self._give_up_what_is_not_ours()
        if self._socket is not None:
            return True
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        # not settimeout: Python would then wait that long in recv, even with MSG_DONTWAIT
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _ONE_SECOND)
        try:
            with short(self._session.socket) as address:
                connection.connect(address)
        except OSError:
            connection.close()
            return False
        self._buffer = b""
        self._own, self._socket = OwnFile(connection.fileno()), connection
        return self.introduce()

    def introduce(self) -> bool:
        """Say hello: first in a connection, and again in every incarnation that this process lives to see."""
        return self.send(
            "hello",
            rank=self._session.rank,
            pid=os.getpid(),
            incarnation=self._session.incarnation,
            parked=self._session.is_parked,
            sdk=faultrun.__version__,
        )

    def send(self, kind: str, **fields: Any) -> bool:
        """Send one message; False when it did not get through."""
        line = message(kind, **fields)
        self._give_up_what_is_not_ours()
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
        self._give_up_what_is_not_ours()
        if self._socket is None:
            return []
        try:
            # by hand: socket.recv_fds has no flags before Python 3.12 that would not wait
            data, ancillary, _, _ = self._socket.recvmsg(
                MAX_LINE_BYTES, _FDS_BYTES, socket.MSG_DONTWAIT | socket.MSG_CMSG_CLOEXEC
            )
        except (BlockingIOError, TimeoutError):
            return []
        except OSError:
            data, ancillary = b"", []
        for level, kind, content in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                self._fds.extend(number for (number,) in _FD.iter_unpack(content[: len(content) // 4 * 4]))
        if not data or len(self._buffer) > MAX_LINE_BYTES:
            with self._lock:
                self._close()
            return []
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        return [content for content in map(parse, lines) if content is not None]

    def take_fd(self) -> int:
        """The descriptor that came with a message, in the messages' order; -1 for none."""
        return self._fds.popleft() if self._fds else -1

    def _give_up_what_is_not_ours(self) -> None:
        """The script may have closed it, and have a file of its own at the number."""
        with self._lock:
            if self._socket is not None and self._own is not None and not self._own.is_ours():
                self._socket.detach()
                self._socket, self.was_closed = None, True

    def _close(self) -> None:
        while self._fds:
            os.close(self._fds.popleft())
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.close()
            self._socket = None
