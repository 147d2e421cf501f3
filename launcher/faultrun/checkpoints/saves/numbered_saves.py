"""Which files bear one number: the saves of each place by their numbers, from the names alone.

The number is in the files' names, or in the name of a folder that they lie in. Opens nothing.
"""

import os
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, KeysView, Mapping, Sequence
from dataclasses import dataclass, field, replace

from faultrun.checkpoints.format import Listing
from faultrun.checkpoints.names import (
    base_name,
    is_unfinished,
    kind_of,
    plainly_numbered,
    rank_left_open,
    rank_told,
    remembered,
    step_in,
)
from faultrun.checkpoints.saves.save_names import (
    inside,
    masked,
    masked_number,
    no_number,
    parts_apart,
    shards_in,
)
from faultrun.model.checkpoint import Entry, Kind
from faultrun.model.observed.saves import SavesSeen

OF_ONE_FILE = frozenset({"torch", "safetensors", "mindspore", "pattern"})
"""The formats whose checkpoints are single files, by name."""
_BESIDE = re.compile(r".+\.(?:pt|pth|pth\.tar|ckpt|bin|safetensors|pkl|npz|npy|msgpack|h5)", re.IGNORECASE)
_NUMBER, _PART_NUMBER = re.compile(r"\d+"), re.compile("[₀-₉]+")

Number = tuple[int, ...]
_Masks = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class SavePlace:
    """Where saves follow one another: their folder, what the number counts, and whose they are."""

    folder: str
    counts: str
    rank: int | None = None
    session: int = 0

    @property
    def kind(self) -> tuple[str, int | None]:
        """The folder with its numbers masked, and the rank: equal for the folders of all starts."""
        return masked(self.folder), self.rank


@dataclass(slots=True)
class NumberedSave:
    """The files under one number, by their names without it, and those that are ``gone``.

    ``claimed`` is the folder of a format.
    """

    files: dict[str, str] = field(default_factory=dict)
    claimed: str = ""
    gone: dict[str, str] = field(default_factory=dict)

    @property
    def members(self) -> KeysView[str]:
        """What it consists of, or did if nothing of it is left."""
        return (self.files or self.gone).keys()


def with_ranks(
    entries: Sequence[Entry], seen: SavesSeen, world_size: int, roots: Sequence[str]
) -> dict[str, Entry]:
    """``entries`` by path; folders that the run counts beyond its workers are not those of ranks."""
    written = {f"{masked(inside(path, roots))}/" for save in seen.saves for path in save.files}
    kinds = {one.path: f"{masked(inside(one.path, roots))}/" for one in entries if one.rank is not None}
    most = world_size or sys.maxsize
    beyond = {kinds[one.path] for one in entries if one.rank is not None and one.rank >= most}
    counts = {kind for kind in beyond if any(one.startswith(kind) for one in written)}
    return {one.path: replace(one, rank=None) if kinds.get(one.path) in counts else one for one in entries}


def saves_by_number(
    found: Mapping[str, Entry],
    members: Mapping[str, Sequence[str]],
    listed: tuple[Iterable[Listing], Collection[str]],
    roots: Sequence[str],
    seen: SavesSeen,
    world_size: int,
) -> dict[SavePlace, dict[Number, NumberedSave]]:
    """The saves of each place by number; folders that one save was seen to write to are one place.

    Those that were seen and are not there any more tell what a save has, too.
    """
    together = _together(seen, roots)
    saves: dict[SavePlace, dict[Number, NumberedSave]] = defaultdict(lambda: defaultdict(NumberedSave))
    listings, strangers = listed
    gone, shards, counting = _gone(seen), shards_in(seen.saves, roots), _counting(seen, roots)
    taken = set(strangers)
    for path, one in found.items():
        if one.format not in OF_ONE_FILE or tuple(members.get(path, ())) != (path,):
            taken.update(members.get(path, ()))
            unit = _numbered_folder(path, roots) if one.format == "folder" else None
            if unit is not None:
                shared = together.get(unit.parent)
                save = saves[SavePlace(shared or unit.parent, unit.counts)][unit.number]
                save.claimed, begin = path, f"{unit.parent}/" if shared else ""
                save.files |= {f"{begin}{one[len(path) + 1 :]}": one for one in members.get(path, ())}
    there = {one.path for one in listings}
    for listing in (*listings, *(Listing(path=path, files={}) for path in gone if path not in there)):
        if kind_of(base_name(listing.path)) is Kind.BEST and listing.path not in roots:
            continue
        files = {
            name: told
            for name in (*listing.files, *gone.get(listing.path, ()))
            if listing.join(name) not in taken and (told := _of_a_save(listing, name, found))
        }
        steps = {told for told in map(step_in, map(plainly_numbered, files)) if told is not None}
        counts = len(steps) > 1 or masked(inside(listing.path, roots)) in counting
        unit = None if counts else _numbered_folder(listing.path, roots)
        ranks = {name: one.rank for name, one in files.items() if one is not True}
        if any(rank is None and (unit or re.search(r"\d", name)) for name, rank in ranks.items()):
            ranks = {name: one for name, one in ranks.items() if one and one >= (world_size or sys.maxsize)}
        # Without the folder, which the ranks do not share, where it tells nothing.
        where = f"{inside(listing.path, roots)}/" if shards else ""
        called = {name: base_name(parts_apart(f"{where}{name}", shards)) for name in files}
        one_rank = [name for name in files if ranks.get(name) is None]
        called |= {name: called[name] + no_number(rank_told(name)) for name in one_rank}
        masks = _varying(called.values())
        places = Counter((_split(one)[0], step_in(plainly_numbered(one))) for one in {*called.values()})
        several = {mask for (mask, told), count in places.items() if told is not None and count > 1}
        for name, known in files.items():
            at = called[name]
            numbered = (
                _in_folder(unit, at) if unit is not None else _by_name(listing.path, at, masks, several)
            )
            if numbered is None:
                continue
            place, number, member = numbered
            folder = place.folder
            if folder in together:
                member, folder = f"{folder}/{member}", together[folder]
            rank, session = (ranks.get(name), known.session) if isinstance(known, Entry) else (None, 0)
            place = SavePlace(folder, place.counts, rank, session)
            save = saves[place][number]
            files_of = save.files if name in listing.files else save.gone
            files_of.setdefault(member, listing.join(name))
    return saves


def _gone(seen: SavesSeen) -> dict[str, list[str]]:
    """By folder, the files of saves that were seen and are not there any more."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in (path for save in seen.saves for path in (*save.files, *save.ranks)):
        if not os.path.lexists(path):
            folder, _, name = path.rpartition("/")
            found[folder].append(name)
    return found


def _counting(seen: SavesSeen, roots: Sequence[str]) -> set[str]:
    """Folders, without numbers, in which saves were seen to write under names that differ in a number."""
    written: dict[tuple[str, str], set[frozenset[str]]] = defaultdict(set)
    for save in seen.saves:
        names: dict[tuple[str, str], set[str]] = defaultdict(set)
        for folder, _, name in (path.rpartition("/") for path in save.files):
            names[folder, masked(name)].add(name)
        for where, alike in names.items():
            written[where].add(frozenset(alike))
    return {masked(inside(folder, roots)) for (folder, _), several in written.items() if len(several) > 1}


def _together(seen: SavesSeen, roots: Sequence[str]) -> dict[str, str]:
    """What folders are called together in each of which every save before the newest was seen to write."""
    found = []
    for save in seen.saves[:-1] or seen.saves:
        inside = {path.rpartition("/")[0] for path in save.files}
        units = ((folder, _numbered_folder(folder, roots)) for folder in inside)
        found.append({folder if unit is None else unit.parent for folder, unit in units})
    folders = sorted(set[str].intersection(*found)) if found else []
    return dict.fromkeys(folders, " and ".join(folders)) if len(folders) > 1 else {}


def _of_a_save(listing: Listing, name: str, found: Mapping[str, Entry]) -> Entry | bool:
    """The entry of a periodic save; True for a file that may belong to one, False for any other."""
    if name in listing.links:
        return False
    one = found.get(listing.join(name))
    if one is None:
        return _BESIDE.fullmatch(name) is not None and not is_unfinished(name)
    return one if one.format in OF_ONE_FILE and one.kind is Kind.PERIODIC else False


@dataclass(frozen=True, slots=True)
class _Unit:
    """A numbered folder: all that is in it is one save. ``inside`` is the way from it to where one looks."""

    parent: str
    counts: str
    number: Number
    inside: str = ""


def _numbered_folder(path: str, roots: Sequence[str]) -> _Unit | None:
    """The nearest folder, at or above ``path``, whose name says a step or an epoch, or is only a number.

    The names of ``roots``, and of what is above them, say nothing of saves.
    """
    inside = ""
    while any(path.startswith(f"{root}/") for root in roots):
        path, _, name = path.rpartition("/")
        told = step_in(name := plainly_numbered(name))
        if told is not None or name.isdecimal():
            counts, number = told or ("", int(name))
            return _Unit(path, counts, (number,), inside)
        inside = f"{rank_left_open(name)}/{inside}"
    return None


def _varying(files: Iterable[str]) -> _Masks:
    """Which of the numbers in a name change from file to file, by the name without its numbers.

    Of a name that is alone it is unknown: its last number is taken for the one.
    """
    alike: dict[str, list[Number]] = defaultdict(list)
    for name in files:
        mask, numbers = _split(name)
        if numbers:
            alike[_PART_NUMBER.sub("*", mask)].append(numbers)
    return {
        mask: tuple(at for at, seen in enumerate(zip(*several, strict=True)) if len(set(seen)) > 1)
        if len({*several}) > 1
        else (len(several[0]) - 1,)
        for mask, several in alike.items()
    }


@remembered
def _split(name: str) -> tuple[str, Number]:
    opened = rank_left_open(plainly_numbered(name))
    return _NUMBER.sub("#", opened), tuple(map(int, _NUMBER.findall(opened)))


def _in_folder(unit: _Unit, name: str) -> tuple[SavePlace, Number, str]:
    member = masked_number(rank_left_open(plainly_numbered(name)), unit.number[0])
    return SavePlace(unit.parent, unit.counts), unit.number, f"{unit.inside}{member}"


def _by_name(
    folder: str, name: str, masks: _Masks, several: Collection[str]
) -> tuple[SavePlace, Number, str] | None:
    """``several``: names that say one epoch for several saves, which another number tells apart."""
    mask, numbers = _split(name)
    columns = masks.get(_PART_NUMBER.sub("*", mask), ())
    told = step_in(plainly_numbered(name))
    if not columns and told is None:
        return None
    counts, number = ("", tuple(numbers[at] for at in columns)) if told is None else (told[0], (told[1],))
    if told is not None and mask in several:
        number = (told[1], *(numbers[at] for at in columns if at != numbers.index(told[1])))
    kept = iter("#" if at in columns else str(one) for at, one in enumerate(numbers))
    return SavePlace(folder, counts), number, re.sub("#", lambda _: next(kept), mask)
