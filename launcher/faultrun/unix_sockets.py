"""Unix sockets at paths of any length: the kernel takes 107 bytes, an open folder needs few of them."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

_LONGEST_BYTES = 107


@contextmanager
def short(path: str) -> Iterator[str]:
    """A name of ``path`` to bind or connect to, while its folder is held open here. OSError without one."""
    if len(os.fsencode(path)) <= _LONGEST_BYTES:
        yield path
        return
    folder = os.open(os.path.dirname(path), os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)  # noqa: PTH120 - also the SDK's
    try:
        yield f"/proc/self/fd/{folder}/{os.path.basename(path)}"  # noqa: PTH119
    finally:
        os.close(folder)
