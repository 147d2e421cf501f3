"""From a standby to a worker: everything that a fresh worker has from its first moment on."""

import os
import random
import sys
import time
from collections.abc import Mapping
from typing import Any

from .rehearsal import Rehearsal

_LISTENING = "0A"  # the kernel's TCP_LISTEN in /proc/net/tcp
_LOOK_S = 0.002


class Refused(Exception):
    """This standby would be another worker than a fresh one."""


def become(order: Mapping[str, Any], rehearsal: Rehearsal) -> None:
    """Carry out ``go``: what it sets and unsets in the environment, arguments, folder, output files.

    Refused or OSError: nothing of the program has run, and a fresh worker must take the place.
    """
    why = rehearsal.changed()
    if why:
        raise Refused(why)
    for name in order["unset"]:
        os.environ.pop(name, None)
    os.environ.update(order["set"])
    os.chdir(order["folder"])
    _speak_into(order["stdout"], order["stderr"])
    own = len(sys.argv[1:])
    sys.argv[1:] = order["arguments"]
    sys.orig_argv[len(sys.orig_argv) - own :] = order["arguments"]
    random.seed()
    rehearsal.reseed()
    if order["port"]:
        _await_listener(order["port"], order["patience_s"])


def _speak_into(stdout: str, stderr: str) -> None:
    """Replace descriptors 1 and 2, for C libraries too; what was said before stays where it was said."""
    sys.stdout.flush()
    sys.stderr.flush()
    _flush_c()
    for path, fd in ((stdout, 1), (stderr, 2)):
        opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
        os.dup2(opened, fd)
        os.close(opened)


def _flush_c() -> None:
    ctypes = sys.modules.get("ctypes")
    if ctypes is not None:
        ctypes.CDLL(None).fflush(None)


def _await_listener(port: int, patience_s: float) -> None:
    """Let rank 0 listen first: a client that is refused comes back after 0.25 to 0.75 s (TCPStore)."""
    wanted = f":{port:04X}"
    until_s = time.monotonic() + patience_s
    while not _listens(wanted) and time.monotonic() < until_s:
        time.sleep(_LOOK_S)


def _listens(wanted: str) -> bool:
    """Whether a socket of this network namespace listens there (the kernel's proc_net_tcp.rst)."""
    return any(
        len(row) > 4 and row[3] == _LISTENING and row[1].endswith(wanted)
        for table in ("/proc/net/tcp6", "/proc/net/tcp")
        if os.path.exists(table)
        for row in _rows(table)
    )


def _rows(table: str) -> list[list[str]]:
    with open(table, encoding="ascii") as file:
        return [line.split(None, 4) for line in file]
