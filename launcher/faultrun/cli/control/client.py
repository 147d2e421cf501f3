"""Talking to a running supervisor over its socket, found through its log_dir: never by grepping processes."""

import socket
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from faultrun.errors import LogDirError
from faultrun.journal.logdir import read_record
from faultrun.model.wire import SOCKET_VARIABLE, message, parse

_CONNECT_S = 5.0
LOG_DIR_VARIABLE = "FAULTRUN_LOG_DIR"


class NobodyListens(Exception):
    """There is no supervisor at that socket any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where a run's supervisor listens. ``run_id`` is empty when only the socket is known."""

    socket: str
    run_id: str = ""


def address_of(log_dir: str, environ: Mapping[str, str]) -> Address:
    """The run of ``log_dir``; without a record there, the one that ``FAULTRUN_SOCKET`` names.

    LogDirError when neither names a run.
    """
    record = read_record(Path(log_dir))
    if record.get("socket"):
        return Address(socket=str(record["socket"]), run_id=str(record.get("run_id", "")))
    if environ.get(SOCKET_VARIABLE):
        return Address(socket=environ[SOCKET_VARIABLE])
    raise LogDirError(
        f"no run is known in {log_dir}",
        because=f"there is no {Path(log_dir) / 'run.json'} that names one",
        hint=f"--log_dir=DIR of the run, as it printed when it started, or {LOG_DIR_VARIABLE}=DIR",
    )


class Conversation:
    """One connection: a request out, lines in until a deadline."""

    def __init__(self, address: Address, *, within_s: float) -> None:
        self.wait_at_most(within_s)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(_CONNECT_S)
        try:
            self._socket.connect(address.socket)
        except OSError as error:
            self._socket.close()
            raise NobodyListens(address.socket) from error

    def ask(self, kind: str, **fields: Any) -> None:
        """Send one request. NobodyListens when the other side went away."""
        try:
            self._socket.sendall(message(kind, **fields))
        except OSError as error:
            raise NobodyListens from error

    def wait_at_most(self, within_s: float) -> None:
        """Set, or move, the moment at which ``answers`` gives up."""
        self._deadline = time.monotonic() + within_s

    def answers(self) -> Iterator[dict[str, Any]]:
        """Yield what is answered until the other side hangs up; TimeoutError at the deadline."""
        unread = b""
        while True:
            self._socket.settimeout(max(0.001, self._deadline - time.monotonic()))
            try:
                data = self._socket.recv(65536)
            except ConnectionError:
                return
            if not data:
                return
            *lines, unread = (unread + data).split(b"\n")
            yield from (said for line in lines if (said := parse(line)) is not None)

    def close(self) -> None:
        """Hang up."""
        self._socket.close()
