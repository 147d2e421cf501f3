"""How what a rehearsed training writes is kept apart from what the user has: two ways."""

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from faultrun.rehearse.isolation import private_view
from faultrun.rehearse.isolation.file_digests import Marks, changed, marks_of
from faultrun.rehearse.isolation.landlock import NotConfined, confine
from faultrun.rehearse.isolation.private_view import SHARED
from faultrun.rehearse.isolation.scratch_copy import ScratchCopy, copied

_COPY = "copy"
_TEMPORARY = "tmp"
_MEMORY = Path("/dev/shm")
"""shm_overview(7)."""
_OF_LIBRARIES = re.compile(
    r"sem\.|psm_|mp-|pym-|torch_|nccl-|cuda\.shm\.|__KMP_REGISTERED_LIB_"
    r"|faultrun-[0-9a-f]+-[0-9a-f]+-[0-9a-f]+-\d+$"
)
"""Semaphores, multiprocessing, torch, NCCL, CUDA, OpenMP and our own survivors: made anew at every start."""
_MOST_NAMED = 3


@dataclass(frozen=True, slots=True)
class InView:
    """Everything under its own path, in a private view of the file system. ``outputs`` are written to.

    ``words`` say how the files were kept, for the last line; ``caution`` what a training may stumble over
    that does well without a rehearsal, empty: nothing. ``place`` is the scratch folder of one scene.
    """

    outputs: tuple[str, ...]
    words: str = field(default="all that it wrote went to a scratch folder, which is removed", init=False)
    caution: str = field(default="", init=False)

    def prepare(self, place: Path) -> None:
        """Before the scene's process is there. OSError: no room."""
        (place / SHARED).mkdir(parents=True)

    def enter(self, place: Path) -> None:
        """In the scene's process, once. NoPrivateView: it cannot be had here."""
        private_view.enter(place, self.outputs)

    def inside(self, place: Path, word: str) -> str:  # noqa: ARG002  a path means what it means outside
        """A word of the command, or a path, as the scene must be given it."""
        return word

    def outside(self, place: Path, text: str) -> str:  # noqa: ARG002
        """What the scene says of its paths, with the user's."""
        return text

    def written(self, place: Path) -> tuple[tuple[Path, str], ...]:
        """Folders with what was written, and the path that each stands for."""
        return private_view.written(place)


class SharedMemory:
    """Shared memory as it was when this was made: libraries need it, and a training may have saved there.

    The kernel can allow a folder or deny it, and not tell old files of it from new ones. So it is allowed
    where nothing lies in it but what libraries make and remove by themselves. ``kept`` are the other names.
    """

    def __init__(self, place: Path = _MEMORY) -> None:
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


@dataclass(slots=True)
class InCopy:
    """In a copy of ``folder``, with words led there; writing to a file anywhere else is denied.

    ``command`` are the script's words, ``outputs`` folders that are written to.
    """

    folder: Path
    command: tuple[str, ...]
    outputs: tuple[str, ...]
    _memory: SharedMemory = field(default_factory=SharedMemory)
    _copies: dict[Path, ScratchCopy] = field(default_factory=dict)

    @property
    def words(self) -> str:
        """How the files were kept apart, for the last line."""
        return (
            "it trained in a copy of the working directory, and no file elsewhere could be written, made or "
            f"removed; modes, owners and times of files elsewhere are not guarded; {self._memory.words}"
        )

    @property
    def caution(self) -> str:
        """What a training may stumble over that does well without a rehearsal; empty: nothing."""
        return self._memory.caution

    def prepare(self, place: Path) -> None:
        """Copy the working directory and the outputs into ``place``, before the scene's process is there."""
        (place / SHARED / _TEMPORARY).mkdir(parents=True)
        self._copies[place] = copied(self.folder, place / SHARED / _COPY, self.command, self.outputs)

    def enter(self, place: Path) -> None:
        """Go into the copy, and let nothing else be written to. NoPrivateView: it cannot be had here."""
        os.environ["TMPDIR"] = str(place / SHARED / _TEMPORARY)
        os.chdir(self._copies[place].work)
        try:
            confine([place / SHARED, *self._memory.allowed])
        except NotConfined as error:
            raise private_view.NoPrivateView(str(error)) from error

    def inside(self, place: Path, word: str) -> str:
        """Translate a word of the command, or a path, into one of the copy."""
        return self._copies[place].word(word)

    def outside(self, place: Path, text: str) -> str:
        """Replace the copy's paths in ``text`` by the user's."""
        for real, copy in self._copies[place].places:
            text = text.replace(copy, real)
        return text

    def written(self, place: Path) -> tuple[tuple[Path, str], ...]:
        """Folders of the copy with what was written, and the path that each stands for."""
        return tuple((Path(copy), real) for real, copy in self._copies[place].places)


Isolation = InView | InCopy
