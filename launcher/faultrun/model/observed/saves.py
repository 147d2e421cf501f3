"""What was seen of a run's saves: which files one save is made of, and at which step of the training."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from faultrun.model.event_base import UNLESS_USED, Fact

KEPT = 4
"""Saves that are remembered: what the newest lacks shows in the three before it."""
MOST_FILES = 24
"""Files of one save that are remembered; of many ranks one stands for all."""


BY_OTHERS = ""
"""Stands among opened files where others read checkpoints, too: what the script opened is unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenSave:
    """The files that were written as one save, in that order, and the newest step of training by then.

    ``number`` is what their names bear, None where they bear none. ``late``: some of them came after the next
    save had begun. ``ranks`` are what other ranks wrote of it, each under a name that differs only in its
    number. ``lie`` says where the files are by now, if one was moved; ``digests``, what was in them, and then
    what was in ``ranks``.
    """

    files: tuple[str, ...]
    step: int | None = None
    number: int | None = field(default=None, metadata=UNLESS_USED)
    late: bool = field(default=False, metadata=UNLESS_USED)
    lie: tuple[str, ...] = field(default=(), metadata=UNLESS_USED)
    digests: tuple[str, ...] = field(default=(), metadata=UNLESS_USED)
    ranks: tuple[str, ...] = field(default=(), metadata=UNLESS_USED)

    @property
    def paths(self) -> tuple[str, ...]:
        """Where its files are by now, unless they were written over."""
        return self.lie or self.files


@dataclass(frozen=True, slots=True, kw_only=True)
class SavesSeen:
    """The newest saves, the last one perhaps unfinished, and what was written before training began.

    ``prepared`` are paths of files that were written before training began: a cache, weights that were
    fetched. ``opened`` is the name, without numbers, of the file that the script opened when it last resumed.
    ``past`` are files of the saves before these, the newest last.
    """

    saves: tuple[SeenSave, ...] = ()
    prepared: tuple[str, ...] = field(default=(), metadata=UNLESS_USED)
    opened: str = field(default="", metadata=UNLESS_USED)
    past: tuple[str, ...] = field(default=(), metadata=UNLESS_USED)

    @property
    def order(self) -> dict[str, int]:
        """Where each file, and each folder by its newest, stands as they were written, early ones first."""
        saves = ((*one.paths, *one.ranks) for one in self.saves)
        return order_of((self.prepared, *((path,) for path in self.past), *saves))

    def outside(self, folders: Iterable[str]) -> "SavesSeen":
        """The saves that have no file in ``folders``: those are another run's."""
        inside = tuple(f"{folder}/" for folder in folders)
        saves = tuple(one for one in self.saves if not any(path.startswith(inside) for path in one.files))
        return replace(self, saves=saves) if inside else self


def order_of(files: Iterable[Iterable[str]]) -> dict[str, int]:
    """Where each file, and each folder by its newest file, stands; those of one item stand together."""
    places = ((path, at) for at, paths in enumerate(files, 1) for path in paths)
    return {name: at for path, at in places for name in (path, *_folders(path))}


def _folders(path: str) -> Iterator[str]:
    while path := path.rpartition("/")[0]:
        yield path


NOTHING_SEEN = SavesSeen()


@dataclass(frozen=True, slots=True, kw_only=True)
class SavesObserved(Fact):
    """What one save of this run is has changed."""

    seen: SavesSeen


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstSaveTold(Fact):
    """What would be handed over if a fault came now, after the first save that was seen.

    ``path`` is the checkpoint, "" where nothing would be; ``beside`` are the files that belong to it,
    ``instead`` those of which the script may want one instead: unknown. ``words`` say it for people;
    they were said ``before`` of saves of this kind.
    """

    path: str
    beside: tuple[str, ...] = ()
    instead: tuple[str, ...] = ()
    words: str = ""
    before: bool = field(default=False, metadata=UNLESS_USED)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointsOpened(Fact):
    """Files of checkpoints that were read before the first step; none: reads can be seen from here on."""

    paths: tuple[str, ...] = ()


SavesEvent = SavesObserved | FirstSaveTold | CheckpointsOpened
