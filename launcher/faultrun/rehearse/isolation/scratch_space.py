"""Whether the scratch folder has run out of room: then what a rehearsal saw says nothing of the training."""

import os
from errno import EDQUOT, ENOSPC
from pathlib import Path

from faultrun.errors import FaultrunError

_LEAST_BYTES = 256 << 10
_BLOCK_BYTES = 512
_SAID = tuple(os.strerror(one) for one in (ENOSPC, EDQUOT))


class ScratchFull(FaultrunError):
    """No room is left for what the training writes (EX_OSERR, as a run that has none)."""

    exit_code = 71


def require_room(scratch: Path, said: str = "") -> None:
    """Raise ScratchFull where no room, or no inode, is left in ``scratch``, or ``said`` tells of that."""
    disk = os.statvfs(scratch)
    free_bytes = disk.f_bavail * disk.f_frsize
    inodes_gone = disk.f_files > 0 and disk.f_favail == 0
    if free_bytes >= _LEAST_BYTES and not inodes_gone and not any(one in said for one in _SAID):
        return
    written_bytes = sum(path.lstat().st_blocks * _BLOCK_BYTES for path in scratch.rglob("*"))
    left = (
        "no inode is" if inodes_gone else f"{_mib(free_bytes)} of {_mib(disk.f_blocks * disk.f_frsize)} are"
    )
    raise ScratchFull(
        f"the scratch folder of the rehearsal ran out of room, and so it says nothing: {scratch.parent}",
        because=f"{_mib(written_bytes)} were written there, and {left} left",
        hint="--scratch=DIR on a disk with room for the checkpoints of some minutes",
    )


def _mib(size_bytes: int) -> str:
    return f"{size_bytes / 2**20:,.1f} MiB"
