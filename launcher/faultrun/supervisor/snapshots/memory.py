"""Shared memory in which ranks keep copies of their state: ours, so that it outlives the rank.

A rank maps it, fills it and says nothing; the process that takes its place maps it too. What is in it, and
whether that is whole, is between them (``sdk.snapshots.buffer``).
"""

import fcntl
import os
from collections.abc import Callable
from dataclasses import dataclass

_SHARE = 0.5
"""The share of free memory that is used at most: the copy must not bring the out-of-memory killer."""

_BLOCK_BYTES = 512


@dataclass(frozen=True, slots=True)
class NoMemory:
    """That a rank gets no memory for copies of its state, and why."""

    why: str


class SnapshotMemory:
    """One piece for each rank. ``free_bytes``: memory that may be used up, None where unknown."""

    def __init__(self, free_bytes: Callable[[], int | None]) -> None:
        self._free_bytes = free_bytes
        self._fds: dict[int, int] = {}

    def grant(self, rank: int, size_bytes: int) -> int | NoMemory:
        """A descriptor of ``size_bytes`` for ``rank``, in place of any that it had; or why there is none."""
        self.drop((rank,))
        if (free := self._free_bytes()) is not None:
            free -= sum(map(_untouched, self._fds.values()))
        if free is not None and size_bytes > _SHARE * free:
            wanted, there = size_bytes >> 20, max(free, 0) >> 20
            return NoMemory(
                f"{wanted} MiB for copies of its state are more than half of the {there} MiB free"
            )
        try:
            fd = os.memfd_create(f"faultrun-rank-{rank}", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        except OSError as error:
            return NoMemory(f"no shared memory: {error.strerror}")
        try:
            os.ftruncate(fd, size_bytes)
            # No process that has mapped it shall be killed by SIGBUS because another made it smaller.
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
        except OSError as error:
            os.close(fd)
            return NoMemory(f"no shared memory: {error.strerror}")
        self._fds[rank] = fd
        return fd

    def grant_again(self, rank: int, size_bytes: int) -> int | NoMemory:
        """Grant ``rank`` memory; what it has of this size already stays, and is written over bit by bit."""
        known = self._fds.get(rank)
        return (
            known
            if known is not None and os.fstat(known).st_size == size_bytes
            else self.grant(rank, size_bytes)
        )

    def of(self, rank: int) -> int | None:
        """What ``rank`` had."""
        return self._fds.get(rank)

    def all(self) -> dict[int, int]:
        """What every rank has, or had."""
        return dict(self._fds)

    def drop(self, ranks: "tuple[int, ...] | None" = None) -> None:
        """Let go of the memory of ``ranks``, None: of all."""
        for rank in tuple(self._fds) if ranks is None else ranks:
            if (fd := self._fds.pop(rank, None)) is not None:
                os.close(fd)


def _untouched(fd: int) -> int:
    """What was promised to a rank and is still counted as free: it has not written there yet."""
    told = os.fstat(fd)
    return max(0, told.st_size - told.st_blocks * _BLOCK_BYTES)
