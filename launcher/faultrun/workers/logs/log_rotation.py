"""Keeps workers' logs from filling the disk: of each the first part, and the newest.

Workers append to their files themselves, so a flood costs neither them nor the supervisor anything but disk.
A process of its own looks at the sizes; it cuts a file in place, because its writer cannot be told to open
another. What is written in the instant between the copy and the cut is lost, and only in a flood; it counts.
"""

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path

from faultrun.files import readable
from faultrun.workers.forked_helper import Forked, Orders

FIRST_SUFFIX = ".first"
NEWEST_SUFFIX = ".1"
_LOOK_S, _LAST_LOOK_S, _LOG_S = 0.3, 2.0, 0.01
_CHUNK = 1 << 16
_PART = 4
"""The first part and the newest are each this fraction of the largest size."""


class Rotator:
    """The supervisor's end. Start it before any thread; nothing here blocks."""

    def __init__(self, max_bytes: int) -> None:
        self._orders = orders = Orders()
        self._keeper = Forked(lambda: _look_after(orders, max_bytes), keep=orders.kept)
        orders.leave_to_helper()

    def watch(self, logs: Sequence[Path]) -> None:
        """From now on look after these files, and no longer after those of before."""
        for log in logs:
            log.touch()
        self._orders.send([str(log) for log in logs])

    def close(self) -> None:
        """End it, whatever the disk does."""
        self._orders.close()
        self._keeper.end(_LAST_LOOK_S)


def rotate(log: Path, max_bytes: int) -> int:
    """Cut ``log`` if it has more than ``max_bytes``; the bytes that went. OSError: the disk does not let us.

    ``<log>.first`` keeps its beginning, for good; ``<log>.1`` the newest
    before the cut; the file goes on with a line that says so.
    """
    if (size := log.stat().st_size) <= max_bytes:
        return 0
    part = max(1, max_bytes // _PART)
    first = log.with_name(log.name + FIRST_SUFFIX)
    newest = log.with_name(log.name + NEWEST_SUFFIX)
    if not first.exists():
        _copy(log, first, 0, part)
    _copy(log, newest, size - part, 2 * part)  # what is appended meanwhile is copied too
    gone = log.stat().st_size
    os.truncate(log, 0)
    said = f"faultrun: {gone} bytes were cut here; the first of all: {first.name}, the last: {newest.name}\n"
    with log.open("ab", buffering=0) as file:
        file.write(said.encode())
    return gone


def _look_after(orders: Orders, max_bytes: int) -> None:
    logs: list[Path] = []
    while True:
        if readable(max(_LOOK_S, _LOG_S * len(logs)), orders.bell):
            received, open_ = orders.received()
            if not open_:
                return
            logs = [Path(log) for log in received[-1]] if received else logs
        for log in logs:
            with contextlib.suppress(OSError):
                rotate(log, max_bytes)


def _copy(source: Path, target: Path, offset: int, most: int) -> None:
    """Copy what is there from ``offset`` on, at most ``most`` bytes."""
    partial = target.with_name(f".{target.name}.partial")
    at, end = offset, offset + most
    with source.open("rb") as read, partial.open("wb") as write:
        read.seek(offset)
        while at < end and (chunk := read.read(min(end - at, _CHUNK))):
            at += write.write(chunk)
    partial.replace(target)
