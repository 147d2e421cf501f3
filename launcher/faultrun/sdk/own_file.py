"""Descriptors that are kept for long, in a process that is the script's.

It may close all that it has not opened, as recipes for daemons do by ``os.closerange``, and get the numbers
for files of its own. So a number is asked whose it is before every use.
"""

import contextlib
import ctypes
import errno
import fcntl
import os
from typing import Any

_LIBC = ctypes.PyDLL(None)
"""Keeps Python's lock: a thread that computes would give it back only after 5 ms, at each step."""
_OUT_OF_THE_WAY = 512


class OwnFile:
    """A descriptor, and which file it was when it was given."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self._seen = (ctypes.c_ulong * 32)()  # ``struct stat`` begins with the device and the inode
        _fstat(fd, self._seen)
        self._device, self.inode = self._seen[:2]

    def is_ours(self) -> bool:
        """Whether the number is still that file's. A microsecond, and no other thread runs meanwhile."""
        seen = self._seen
        return _fstat(self.fd, seen) == 0 and seen[1] == self.inode and seen[0] == self._device

    def number(self) -> int:
        """The descriptor, for one use now. OSError where it is not ours any more."""
        if not self.is_ours():
            raise OSError(errno.EBADF, "the script has closed a file of faultrun.sdk")
        return self.fd

    def close(self) -> None:
        """Close it, if it is ours."""
        if self.is_ours():
            os.close(self.fd)


def out_of_the_way(fd: int, least: int = _OUT_OF_THE_WAY) -> int:
    """Move ``fd`` to the first free number from ``least`` on; it stays where so many are not allowed."""
    try:
        high = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, least)
    except OSError:
        return fd
    os.close(fd)
    return high


def _fstat_slowly(fd: int, seen: Any) -> int:
    with contextlib.suppress(OSError):
        there = os.fstat(fd)
        seen[0], seen[1] = there.st_dev, there.st_ino
        return 0
    return -1


_fstat: Any = getattr(_LIBC, "fstat", _fstat_slowly)  # no symbol of glibc before 2.33
