"""The newest checkpoint by name and time, found quickly: of all files only the header of that one is read."""

import time
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from faultrun.observe.status_model import NewestCheckpoint

if TYPE_CHECKING:
    from faultrun.checkpoints.listing import Named

_PATIENCE_S = 0.4


def newest_checkpoint(roots: Sequence[str]) -> NewestCheckpoint | None:
    """Look through ``roots`` for at most 0.4 s; None without a checkpoint. What it says is not verified."""
    if not roots:
        return None
    from faultrun.checkpoints.format import Unreadable
    from faultrun.checkpoints.listing import claimed, walk
    from faultrun.checkpoints.registry import builtin_formats
    from faultrun.model.checkpoint import Refusal

    formats, deadline = builtin_formats(), time.monotonic() + _PATIENCE_S
    newest: Named | None = None
    for root in roots:
        for listing in walk(root):
            if isinstance(listing, Refusal):
                continue
            for one in claimed(listing, root, formats):
                if not isinstance(one, Refusal) and not one.unfinished and _is_newer(one, newest):
                    newest = one
            if time.monotonic() > deadline:
                break
    if newest is None:
        return None
    entry = newest.first
    for known in formats:
        if known.name == entry.format:
            with suppress(Unreadable, OSError):
                entry = known.read(entry)
    return NewestCheckpoint(
        path=entry.path,
        step=entry.global_step,
        age_s=max(0.0, time.time() - entry.mtime_ns / 1e9),
        size_bytes=entry.size_bytes,
    )


def _is_newer(one: "Named", other: "Named | None") -> bool:
    return other is None or one.first.mtime_ns > other.first.mtime_ns
