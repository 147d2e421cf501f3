"""Orders to a forked helper, of any length and number: the one who gives them never waits, and loses none.

A pipe takes 64 KiB and then cuts: the log files of some hundred ranks are
more. The orders are in a file without a name that both share; the pipe only rings.
"""

import contextlib
import json
import os
from typing import Any

_CHUNK = 1 << 16


class Orders:
    """Made before the fork. One side ``send``s, the other reads when ``bell`` is readable."""

    def __init__(self) -> None:
        self._text = os.memfd_create("orders")
        self.bell, self._rope = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._read_bytes = 0

    @property
    def kept(self) -> tuple[int, int]:
        """The descriptors that the helper needs."""
        return self._text, self.bell

    def send(self, order: Any) -> None:
        """Give one order, anything that is JSON. OSError: no memory is left."""
        os.write(self._text, f"{json.dumps(order)}\n".encode())
        with contextlib.suppress(OSError):  # full: it will look anyway; broken: nobody looks any more
            os.write(self._rope, b".")

    def received(self) -> tuple[list[Any], bool]:
        """In the helper: the orders since the last call, and whether more may come."""
        open_ = True
        with contextlib.suppress(BlockingIOError):
            open_ = bool(os.read(self.bell, _CHUNK))
        lines = b""
        while part := os.pread(self._text, _CHUNK, self._read_bytes):
            lines += part
            self._read_bytes += len(part)
        return [json.loads(line) for line in lines.splitlines()], open_

    def leave_to_helper(self) -> None:
        """After the fork: the reading end is the helper's alone."""
        os.close(self.bell)

    def close(self) -> None:
        """No more orders."""
        os.close(self._rope)
        os.close(self._text)
