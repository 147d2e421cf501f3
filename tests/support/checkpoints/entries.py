"""Entries and listings of real files, as the catalog would hand them to a format."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from faultrun.checkpoints.format import Listing, Stamp, Unreadable
from faultrun.model.checkpoint import Entry, Kind, Verdict


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


def reason_of(verify: Callable[[], Verdict]) -> str:
    """Why something is not whole; fails the test when it passes for whole."""
    try:
        verdict = verify()
    except Unreadable as reason:
        return reason.why
    pytest.fail(f"passed for whole: {verdict.why}")


def candidate(path: str, step: int | None = None, **more: Any) -> Entry:
    """An entry as the rules of a choice see it: no file, only what is told of one."""
    plain = Entry(
        path=path, format="test", kind=Kind.PERIODIC, size_bytes=1, mtime_ns=0, inode=0, global_step=step
    )
    return replace(plain, **more)
