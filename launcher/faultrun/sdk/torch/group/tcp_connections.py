"""The TCP connections of this process: gloo has no abort, and who ends those of a group ends its waits."""

import contextlib
import os
import socket
from collections.abc import Set as AbstractSet
from pathlib import Path


def connections() -> set[tuple[int, int]]:
    """The TCP connections of this process: descriptor and inode. Listening ones are none."""
    found = set()
    for place in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError, ValueError):
            fd = int(place.name)
            if str(place.readlink()).startswith("socket:"):
                with _socket_of(fd) as one:
                    listens = one.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
                    if one.family in (socket.AF_INET, socket.AF_INET6) and not listens:
                        found.add((fd, os.fstat(one.fileno()).st_ino))
    return found


def shut(sockets: AbstractSet[tuple[int, int]]) -> None:
    """End these connections for all who hold them, forked loaders too; closed ones have no holder."""
    for fd, inode in sockets:
        with contextlib.suppress(OSError), _socket_of(fd) as one:
            if os.fstat(one.fileno()).st_ino == inode:
                one.shutdown(socket.SHUT_RDWR)


def _socket_of(fd: int) -> socket.socket:
    """A descriptor of our own of it. OSError, and nothing stays open: it is none, or not any more."""
    own = os.dup(fd)
    try:
        return socket.socket(fileno=own)
    except OSError:
        os.close(own)
        raise
