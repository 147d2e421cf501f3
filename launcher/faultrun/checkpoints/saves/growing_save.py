"""A save while it is being written, and which of several are copies of others. Pure."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from faultrun.checkpoints.names import base_name
from faultrun.checkpoints.saves.save_names import of_any_rank
from faultrun.model.observed.saves import MOST_FILES

AT_ONCE = 2  # steps that may go by while one save is written


@dataclass(slots=True, eq=False)
class GrowingSave:
    """A save that is being written: its files by what each is called but for numbers."""

    files: dict[str, str] = field(default_factory=dict)
    numbers: set[int] = field(default_factory=set)
    step: int | None = None
    late: bool = False
    at: int = 0
    again: dict[str, int] = field(default_factory=dict)
    pending: set[str] = field(default_factory=set)
    due: frozenset[str] = frozenset()
    moved: dict[str, str] = field(default_factory=dict)
    ranks: set[str] = field(default_factory=set)
    copies: dict[str, str] = field(default_factory=dict)
    copy_of: "GrowingSave | None" = None
    digests: dict[str, str] = field(default_factory=dict)

    def takes(self, kind: str, number: int | None) -> bool:
        """Whether a file may be of this save: it has none of its kind, and no other number."""
        same_number = number is None or not self.numbers or number in self.numbers
        return kind not in self.files and same_number

    def path(self, name: str) -> str:
        """Where the file is by now that was called ``name``."""
        return self.moved.get(name, name)

    def moves(self, name: str, path: str) -> None:
        """The file ``name`` is at ``path`` from now on, whatever else it was called."""
        was = self.path(name)
        self.moved |= {one: path for one, there in self.moved.items() if there == was} | {
            name: path,
            was: path,
        }

    def has_had(self, path: str, *, but: str) -> bool:
        """Whether another file than ``but`` has been at ``path``: what comes there is of a later save."""
        there = self.path(but)
        places = {one: self.path(one) for one in (*self.files.values(), *self.moved)}
        return any(path in (one, place) and place != there for one, place in places.items())

    def of_ranks(self, digest: str) -> Iterator[tuple[str, str]]:
        """What other ranks wrote with these contents, each after the kind of the file that stands for it."""
        alike = [path for path in sorted(self.ranks) if self.digests.get(path) == digest]
        kinds = {of_any_rank(path): kind for kind, path in self.files.items()} if alike else {}
        return ((kinds[of_any_rank(path)], path) for path in alike if of_any_rank(path) in kinds)

    def with_all_of(self, other: "GrowingSave") -> "GrowingSave":
        """This save with the files of ``other``, which a note of what it had already began."""
        self.files |= {kind: path for kind, path in other.files.items() if kind not in self.files}
        self.pending, self.again = self.pending | other.pending, self.again | other.again
        self.ranks, self.numbers = self.ranks | other.ranks, self.numbers | other.numbers
        return self

    def is_at(self, step: int | None) -> bool:
        """Whether it may be written yet when training is at ``step``."""
        return None not in (step, self.step) and abs((step or 0) - (self.step or 0)) <= AT_ONCE

    def has_folder_of(self, kind: str) -> bool:
        """Whether a file of it lies in the folder in which one of this kind does."""
        return kind.rpartition("/")[0] in (one.rpartition("/")[0] for one in self.files)


def without_copies(saves: Sequence[GrowingSave]) -> list[GrowingSave]:
    """``saves`` in the order of writing, where a copy of a file that was written anew is where that lies now.

    It is as if that had been moved: the copy is no save. One by another name is none at once; files by one
    name in two folders may be members of two saves.
    """
    files = [(nth, *one) for nth, save in enumerate(saves) for one in [*save.files.items()][:MOST_FILES]]
    for before, (nth, kind, path) in enumerate(files):
        save, digest = saves[nth], saves[nth].digests.get(path) or "-"
        ranks = [(at, *one) for at in range(nth) for one in saves[at].of_ranks(digest)]
        alike = [one for one in files[:before] if saves[one[0]].digests.get(one[2]) == digest] or ranks
        again = [at for at, one in enumerate(saves[:nth]) if path in {*one.files.values(), *one.ranks}]
        found = [one for one in alike if one[0] not in again]
        for at, kind_there, name in found[-1:]:
            older, other_kind = saves[at], at < nth and kind_there != kind
            held, own = older.digests.values(), save.digests
            new = [one for one in save.files.values() if own.get(one) not in held]
            beside = path.rpartition("/")[0] in (one.rpartition("/")[0] for one in new)
            apart = other_kind and (base_name(name) != base_name(path) or (new and not beside))
            if apart or _is_lost(saves, at, older.digests if at < nth and not new else (name,)):
                older.copies[name] = path
                save.files.pop(kind, None)
            save.copy_of = older if other_kind and not new else None
            older.copies |= {name: path} if save.copy_of else {}
    for at, older in enumerate(saves):
        if older.copies and _is_lost(saves, at, older.digests):
            older.moved, older.copies = {**older.moved, **older.copies}, {}
    return [one for one in saves if one.files and (one is saves[-1] or not one.copy_of)]


def _is_lost(saves: Sequence[GrowingSave], at: int, names: Iterable[str]) -> bool:
    """Whether a later save has other contents under one of ``names`` of a save."""
    known, later = saves[at].digests, [one.digests for one in saves[at + 1 :]]
    return any(one.get(name) not in {None, "", known.get(name)} for name in names for one in later)
