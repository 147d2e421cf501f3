"""Connections to the control socket: where it listens, whom it hears; no slow reader is waited for."""

import contextlib
import os
import socket
import struct
import tempfile
from pathlib import Path

from faultrun.files import readable
from faultrun.model.wire import MAX_LINE_BYTES

_SUN_PATH_BYTES = 107
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
        """The same, and a descriptor with it."""
        with contextlib.suppress(OSError):
            socket.send_fds(self._connection, [line], [fd], socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)

    def wait_for_goodbye(self, patience_s: float) -> None:
        """Wait, bounded, until the other side has read what was sent and hung up."""
        with contextlib.suppress(OSError):
            readable(patience_s, self.fd)

    def close(self) -> None:
        """Hang up."""
        self._connection.close()


def listen_in(log_dir: Path) -> tuple[Path, socket.socket]:
    """Bind in the log_dir; in the temp folder where that path is too long or takes no sockets."""
    candidates = [log_dir.absolute() / "control.sock"]
    candidates.append(Path(tempfile.gettempdir()) / f"faultrun-{os.getpid()}-{os.urandom(4).hex()}.sock")
    failure: OSError | None = None
    for place in candidates:
        if len(os.fsencode(place)) > _SUN_PATH_BYTES:
            continue
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            place.unlink(missing_ok=True)
            listener.bind(os.fspath(place))
            place.chmod(0o600)
            listener.listen(1024)
        except OSError as error:
            listener.close()
            failure = error
            continue
        return place, listener
    raise failure or OSError("no place for the control socket")


def is_of_same_user(connection: socket.socket) -> bool:
    """Whether the other side belongs to our user, or to root."""
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
    return _UCRED.unpack(raw)[1] in (os.getuid(), 0)
