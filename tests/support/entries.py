"""Entries and listings of real files, as the catalog would hand them to a format."""

from pathlib import Path

from faultrun.checkpoints.format import Listing, Stamp
from faultrun.model.checkpoint import Entry, Kind


def entry_of(path: Path, *, format_name: str = "test") -> Entry:
    """The entry of a file or directory whose name said nothing."""
    status = path.stat()
    return Entry(
        path=str(path),
        format=format_name,
        kind=Kind.PERIODIC,
        size_bytes=status.st_size,
        mtime_ns=status.st_mtime_ns,
        inode=status.st_ino,
    )


def listing_of(path: Path) -> Listing:
    """One directory as the scan sees it."""
    files, directories = {}, set()
    for child in path.iterdir():
        status = child.stat()
        if child.is_dir():
            directories.add(child.name)
        else:
            files[child.name] = Stamp(status.st_ino, status.st_size, status.st_mtime_ns)
    return Listing(path=str(path), files=files, directories=frozenset(directories))
