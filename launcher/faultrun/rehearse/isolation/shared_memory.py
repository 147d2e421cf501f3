"""Shared memory of a rehearsal in a copy: libraries need it, and a training may have saved there.

The kernel can allow a folder or deny it, and not tell old files of it from new ones. So it is allowed where
nothing lies in it but what libraries make and remove by themselves.
"""

import re
from collections.abc import Sequence
from pathlib import Path

from faultrun.rehearse.isolation.file_digests import Marks, changed, marks_of

MEMORY = Path("/dev/shm")
"""shm_overview(7)."""
_OF_LIBRARIES = re.compile(
    r"sem\.|psm_|mp-|pym-|torch_|nccl-|cuda\.shm\.|__KMP_REGISTERED_LIB_"
    r"|faultrun-[0-9a-f]+-[0-9a-f]+-[0-9a-f]+-\d+$"
)
"""Semaphores, multiprocessing, torch, NCCL, CUDA, OpenMP and our own survivors: made anew at every start."""
_MOST_NAMED = 3


class SharedMemory:
    """As it was when this was made; ``kept`` are the names there that somebody may want to keep."""

    def __init__(self, place: Path = MEMORY) -> None:
        self._place = place
        names = sorted(one.name for one in place.iterdir()) if place.is_dir() else []
        self.kept = tuple(name for name in names if not _OF_LIBRARIES.match(name))
        self._before = self._marks()

    @property
    def allowed(self) -> tuple[Path, ...]:
        """The folders of it that a rehearsal may write to."""
        return () if self.kept else (self._place,)

    @property
    def caution(self) -> str:
        """Why it may not be written to; empty where it may."""
        if not self.kept:
            return ""
        return f"{self._place} could not be written to, for {_named(self.kept)} is there"

    @property
    def words(self) -> str:
        """What a rehearsal could do to it, and what it left there."""
        if self.kept:
            return self.caution
        after = changed(self._before, self._marks())
        left = f"; {_named(after)} was left or changed there meanwhile" if after else ""
        return f"it could write to shared memory in {self._place}, too{left}"

    def _marks(self) -> Marks:
        return marks_of([str(self._place)])


def _named(names: Sequence[str]) -> str:
    more = len(names) - _MOST_NAMED
    return ", ".join(names[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
