"""Whether the run of a log_dir has a supervisor: its lock and its process say so, silence says nothing."""

import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from faultrun.journal.logdir import LOCK
from faultrun.locks import Busy, busy, described
from faultrun.unix_sockets import short

SOCKET_NAME = "control.sock"
_CONNECT_S = 0.5


def sockets_of(folder: Path, record: Mapping[str, Any]) -> Iterator[str]:
    """Where it may listen: in the log_dir as it is called here, or where ``record`` (run.json) says."""
    yield str(folder.absolute() / SOCKET_NAME)
    if (path := str(record.get("socket") or "")) and os.path.exists(path):  # noqa: PTH110 - a string is all there is
        yield path


def is_supervised(folder: Path, record: Mapping[str, Any], *, ended: bool = False) -> bool:
    """Whether a supervisor answers for ``folder``, or at least lives: where the run ``ended``, it leaves."""
    answers = any(map(_answers, sockets_of(folder, record)))
    return answers or (not ended and supervisor_of(folder, record) is not None)


def supervisor_of(folder: Path, record: Mapping[str, Any]) -> Busy | None:
    """Who holds the lock of ``folder``, else the process of ``record`` that has files of it open."""
    if (held := busy(folder / LOCK)) is not None:
        return held
    pid = record.get("pid")
    return Busy(folder, lambda: (pid, described(pid))) if is_here(folder, record) else None


def is_here(folder: Path, record: Mapping[str, Any]) -> bool:
    """Whether it is among the processes that are seen from here: another container has numbers of its own."""
    inside = f"{folder.resolve()}/"
    with suppress(OSError):
        for link in Path(f"/proc/{record.get('pid')}/fd").iterdir():
            with suppress(FileNotFoundError):  # closed since
                if str(link.readlink()).startswith(inside):
                    return True
    return False


def _answers(path: str) -> bool:
    """A file that was left behind does not answer."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(_CONNECT_S)
        try:
            with short(path) as address:
                probe.connect(address)
        except OSError as error:
            return isinstance(error, (BlockingIOError, TimeoutError))  # its queue is full: it is there
    return True
