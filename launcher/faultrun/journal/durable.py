"""Small files that a power cut leaves old or new, never empty."""

import os
from pathlib import Path


def replace_durably(path: Path, data: bytes) -> None:
    """Make ``data`` the content of ``path`` in one step; return once synced. OSError if it fails."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with fresh.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
    except OSError:
        fresh.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Return once the names in ``folder`` are on the disk. OSError if that cannot be had."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
