"""Connections to the control socket: where it listens, whom it hears; no slow reader is waited for."""

import contextlib
import os
import socket
import struct
from pathlib import Path

from faultrun.files import readable
from faultrun.model.wire import MAX_LINE_BYTES
from faultrun.unix_sockets import short

_UCRED = struct.Struct("3i")


class ControlPeer:
    """One connection; reads whole lines and never waits for a slow reader.

    ``rank`` is set for a worker, ``pid`` to what it says (it may live in a pid namespace of its own); a
    controller may wait for the run's end or watch the saves that it asked for.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._buffer = b""
        self.fd = connection.fileno()
        self.rank: int | None = None
        self.pid: int | None = None
        self.waits_for_end = self.watches_saves = self.gone = False

    def lines(self) -> list[bytes]:
        """The lines that are complete by now."""
        try:
            data = self._connection.recv(MAX_LINE_BYTES)
        except BlockingIOError:
            return []
        except OSError:
            data = b""
        self.gone = not data
        *whole, self._buffer = (self._buffer + data).split(b"\n")
        if len(self._buffer) > MAX_LINE_BYTES:
            self.gone = True
        return whole

    def send(self, line: bytes) -> None:
        """Send now or not at all: a reader that does not keep up is not worth waiting for."""
        with contextlib.suppress(OSError):
            self._connection.send(line, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)

    def send_with(self, line: bytes, fd: int) -> None:
        """Send ``line`` and a descriptor with it, now or not at all."""
        with contextlib.suppress(OSError):
            socket.send_fds(self._connection, [line], [fd], socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)

    def wait_for_goodbye(self, patience_s: float) -> None:
        """Wait, bounded, until the other side has read what was sent and hung up."""
        with contextlib.suppress(OSError):
            readable(patience_s, self.fd)

    def close(self) -> None:
        """Hang up."""
        self._connection.close()


def places_in(log_dir: Path) -> tuple[Path, ...]:
    """Where the control socket may be: in the log_dir, or where that takes none, where no cleaner comes."""
    memory = Path("/dev/shm")  # folders for temporary files are emptied below a run that takes weeks
    folder = memory if os.access(memory, os.W_OK) else _temporary()
    name = f"faultrun-{os.getpid()}-{os.urandom(4).hex()}.sock"
    return log_dir.absolute() / "control.sock", folder / name


def _temporary() -> Path:
    import tempfile  # noqa: PLC0415  few containers have nothing better

    return Path(tempfile.gettempdir())


def listen_at(*places: Path) -> tuple[Path, socket.socket]:
    """Bind at the first of ``places`` that takes a socket. OSError where none does."""
    failure: OSError | None = None
    for place in places:
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            place.unlink(missing_ok=True)
            with short(os.fspath(place)) as address:
                listener.bind(address)
            place.chmod(0o600)
            listener.listen(1024)
        except OSError as error:
            listener.close()
            failure = error
            continue
        return place, listener
    raise failure or OSError("no place for the control socket")


def identity(place: Path) -> tuple[int, int] | None:
    """Which file is there now; None where there is none, or that is unknown."""
    try:
        seen = place.lstat()
    except OSError:
        return None
    return seen.st_dev, seen.st_ino


def is_of_same_user(connection: socket.socket) -> bool:
    """Whether the other side belongs to our user, or to root."""
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
    return _UCRED.unpack(raw)[1] in (os.getuid(), 0)
