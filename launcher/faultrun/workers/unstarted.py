"""Why a worker could not be started, in words: the program, or what ran out. Does nothing about it."""

import errno
import os
from pathlib import Path


def why(error: OSError, program: str, log_dir: Path) -> str:
    """One line: the program that is not there, or what ran out instead of the file that met it first."""
    code = error.errno or errno.EIO
    reason = os.strerror(code)
    match code:
        case errno.ENOSPC | errno.EDQUOT:
            lack = "no inode is left: df -i" if _without_inodes(log_dir) else "df -h"
            return f"could not start a worker: {reason} in {log_dir} ({lack})"
        case errno.EMFILE | errno.ENFILE:
            whose = "ulimit -n" if code == errno.EMFILE else "sysctl fs.file-max"
            return f"could not start a worker: {reason} ({whose})"
        case errno.EAGAIN:
            return f"could not start a worker: {reason} (ulimit -u, or the container's limit of pids)"
        case errno.ENOMEM:
            return f"could not start a worker: {reason}"
        case _:
            return f"could not start {error.filename or program}: {reason}"


def _without_inodes(folder: Path) -> bool:
    try:
        room = os.statvfs(folder)
    except OSError:
        return False
    return room.f_files > 0 and room.f_favail == 0
