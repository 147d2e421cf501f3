"""Whether an imported package is still what lies on the disk."""

import os
from types import ModuleType

Identity = tuple[int, int, int, int]


def identity(package: ModuleType) -> Identity | None:
    """Device, inode, size and mtime of the file that a package was imported from; None if it has none."""
    try:
        found = os.stat(package.__file__ or "")
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns
