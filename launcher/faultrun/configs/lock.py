"""One writer at a time for a file, over all processes of this machine.

``flock`` on a file beside it, taken away again on release: no litter next to the
user's configuration. The lock dies with its holder. The ``filelock`` package does
the same but brings asyncio along: 10 MiB and 90 ms for a supervisor that may be PID 1.
"""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from faultrun.errors import ConfigError

WAIT_S = 10.0
_LOOK_AGAIN_S = 0.02


@contextmanager
def locked(path: Path, *, wait_s: float = WAIT_S) -> Iterator[None]:
    """Hold ``path`` against other writers that ask. ConfigError when it stays held for ``wait_s``."""
    lock = path.with_name(f".{path.name}.faultrun.lock")
    deadline = time.monotonic() + wait_s
    while (descriptor := _try(lock)) is None:
        if time.monotonic() >= deadline:
            raise ConfigError(
                f"{path} is being changed by somebody else",
                because=f"{lock.name} has been held for {wait_s:g} s",
                hint=f"fuser {lock}",
            )
        time.sleep(_LOOK_AGAIN_S)
    try:
        yield
    finally:
        lock.unlink(missing_ok=True)
        os.close(descriptor)


def _try(lock: Path) -> int | None:
    descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    if _is_named(descriptor, lock):
        return descriptor
    os.close(descriptor)  # its holder removed the name after we had opened it: this lock guards nothing
    return None


def _is_named(descriptor: int, path: Path) -> bool:
    try:
        named = path.stat()
    except FileNotFoundError:
        return False
    held = os.fstat(descriptor)
    return (named.st_dev, named.st_ino) == (held.st_dev, held.st_ino)
