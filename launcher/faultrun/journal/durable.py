"""Small files that are replaced in one step: old or new, never half, and by a power cut never empty."""

import os
from pathlib import Path


def replace_durably(path: Path, data: bytes) -> None:
    """Make ``data`` the content of ``path`` in one step; return once synced. OSError if it fails."""
    _replace(path, data, synced=True)
    sync_folder(path.parent)


def replace_whole(path: Path, data: bytes) -> None:
    """The same without waiting for the disk: a reader meanwhile sees the old content or the new one."""
    _replace(path, data, synced=False)


def _replace(path: Path, data: bytes, *, synced: bool) -> None:
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with fresh.open("wb") as file:
            file.write(data)
            file.flush()
            if synced:
                os.fsync(file.fileno())
        fresh.replace(path)
    except OSError:
        fresh.unlink(missing_ok=True)
        raise


def sync_folder(folder: Path) -> None:
    """Return once the names in ``folder`` are on the disk. OSError if that cannot be had."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
