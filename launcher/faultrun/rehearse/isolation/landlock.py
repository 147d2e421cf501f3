"""A process that may write below certain folders and nowhere else, by the kernel's word: landlock(7).

For machines that give no mount namespace, such as most containers: it asks for no privilege. It cannot
be taken back, and holds for all that the process starts. Reading stays free; so do modes, owners and times of
files, which the kernel has no rule for.
"""

import ctypes
import os
import stat
import struct
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

_LIBC = ctypes.CDLL(None, use_errno=True)
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # the same on every architecture
_VERSION = 1
_PATH_BENEATH = 1
_PR_SET_NO_NEW_PRIVS = 38
_WRITE_FILE = 1 << 1
_IN_FOLDERS = 0b1_1111_1111 << 4  # remove and make files, folders, links, devices, sockets
_REFER, _TRUNCATE = 1 << 13, 1 << 14
_SINCE = {2: _REFER, 3: _TRUNCATE}
"""linux/landlock.h: what a later version of the interface can deny, too."""


class NotConfined(Exception):
    """The kernel does not know how, or may not; the text says why."""


def confine(folders: Iterable[Path]) -> None:
    """From now on nothing but ``folders``, and devices, can be written to. Raises NotConfined.

    ``/dev/shm`` is no device. Files of ``/proc`` can be written to as before: they are the kernel's.
    """
    version = _call(_CREATE_RULESET, None, 0, _VERSION)
    denied = _WRITE_FILE | _IN_FOLDERS
    for since, right in _SINCE.items():
        denied |= right if version >= since else 0
    ruleset = _call(_CREATE_RULESET, struct.pack("Q", denied), 8, 0)
    try:
        for folder in folders:
            with suppress(FileNotFoundError):
                _allow(ruleset, folder, denied)
        for path in (*_devices(), Path("/dev/pts"), Path("/proc")):
            with suppress(OSError, NotConfined):  # one that is gone, or not ours, stays denied
                _allow(ruleset, path, (_WRITE_FILE | _TRUNCATE) & denied)
        if _LIBC.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
            raise NotConfined(os.strerror(ctypes.get_errno()))
        _call(_RESTRICT_SELF, ruleset, 0)
    finally:
        os.close(ruleset)


def _devices() -> Iterator[Path]:
    """The devices that there are; a file among them is none."""
    for folder, _, files in os.walk("/dev"):
        for name in files:
            path = Path(folder, name)
            with suppress(OSError):
                kind = path.lstat().st_mode
                if stat.S_ISCHR(kind) or stat.S_ISBLK(kind):
                    yield path


def _allow(ruleset: int, folder: Path, rights: int) -> None:
    descriptor = os.open(folder, os.O_PATH | os.O_CLOEXEC)
    try:
        _call(_ADD_RULE, ruleset, _PATH_BENEATH, struct.pack("=Qi", rights, descriptor), 0)
    finally:
        os.close(descriptor)


def _call(number: int, *arguments: bytes | int | None) -> int:
    given = [ctypes.c_long(one) if isinstance(one, int) else one for one in arguments]
    answer: int = _LIBC.syscall(ctypes.c_long(number), *given)
    if answer < 0:
        raise NotConfined(f"landlock: {os.strerror(ctypes.get_errno())}")
    return answer
