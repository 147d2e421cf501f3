"""Which files are one save: a model, its optimizer and averages under one number, all that is in one folder.

A training code that writes several files at each save gives them one number: in the files' names
(``model000030.pt``, ``ema_0.9999_000030.pt``), or in the name of their folder (``step_30/``). What the newest
save of a place lacks shows in those before it. Opens nothing: it knows names and stamps alone. Formats that
claim a folder as one checkpoint judge for themselves what belongs to it.
"""

import os
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from faultrun.checkpoints.format import Listing
from faultrun.checkpoints.names import base_name, has_part_of_step, is_unfinished, rank_left_open, step_in
from faultrun.checkpoints.save_learner import masked
from faultrun.model.checkpoint import Entry, Kind
from faultrun.model.observed.saves import NOTHING_SEEN, SavesSeen

_OF_ONE_FILE = frozenset({"torch", "safetensors", "mindspore", "pattern"})
"""The formats whose checkpoints are single files, by name."""
_BESIDE = re.compile(r".+\.(?:pt|pth|pth\.tar|ckpt|bin|safetensors|pkl|npz|npy|msgpack|h5)", re.IGNORECASE)
_COMPARED, _NEAR = 3, 2
_WORDS = re.compile(r"[A-Za-z]+")
_SELDOM_GIVEN = re.compile(
    r"ema|shadow|average|averaged|avg|swa|polyak|teacher|target|opt|optim\w*|sched\w*|scaler|rng|random|vae|text"
    r"|token\w*|netd|d|disc\w*|critic|decoder|dec|lora|buffer|replay",
    re.IGNORECASE,
)
"""Words in names of files that are saved beside the one that a script is given: a guess, and told as one."""

_NAMELESS = Entry(path="", format="", kind=Kind.PERIODIC, size_bytes=0, mtime_ns=0, inode=0)

_Number = tuple[int, ...]
_Masks = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class _Place:
    """Where saves follow one another: their folder, what the number counts, and whose they are."""

    folder: str
    counts: str
    rank: int | None = None
    session: int = 0


@dataclass(slots=True)
class _Save:
    """The files under one number, by their names without it; ``claimed``: a format knows them as a folder."""

    files: dict[str, str] = field(default_factory=dict)
    claimed: bool = False


@dataclass(frozen=True, slots=True)
class Grouped:
    """The entries, and by the path of each what else is saved with it."""

    entries: list[Entry]
    beside: Mapping[str, tuple[str, ...]]


def grouped(
    entries: Sequence[Entry],
    members: Mapping[str, Sequence[str]],
    listings: Sequence[Listing],
    roots: Sequence[str],
    seen: SavesSeen = NOTHING_SEEN,
) -> Grouped:
    """``entries``, where each file of a save of several knows it, and what that lacks.

    ``members`` are the files of each entry, by its path. The ``turn`` of an entry is when of its save it is
    tried. Files that bear no number are one save if they were ``seen`` to be.
    """
    found = {one.path: one for one in entries}
    beside: dict[str, tuple[str, ...]] = {}
    for place, of_place in _saves(found, members, listings, roots).items():
        before: list[_Save] = []
        for number in sorted(of_place):
            save = of_place[number]
            lacks = "" if save.claimed else _lacking(save, before)
            before = [*before, save][-_COMPARED:]
            if not save.claimed and (lacks or len(save.files) > 1):
                name = f"{place.folder}#{place.counts}{'.'.join(map(str, number))}"
                _join(save, replace(_NAMELESS, save=name, lacks=lacks), found, beside, seen.opened)
    newest = _newest_seen(seen, found)
    if newest is not None:
        told = replace(_NAMELESS, save="newest", lacks=_not_written(seen))
        _join(newest, told, found, beside, seen.opened)
    return Grouped([_at_step(one, seen) for one in found.values()], beside)


def main_files(paths: Collection[str]) -> tuple[str, ...]:
    """Those of a save's files whose names do not say that they only go with another; the shortest first."""
    mains = [path for path in paths if not any(map(_SELDOM_GIVEN.fullmatch, _WORDS.findall(_stem(path))))]
    return tuple(sorted(mains, key=lambda path: (len(base_name(path)), path)))


def _newest_seen(seen: SavesSeen, found: Mapping[str, Entry]) -> _Save | None:
    """The newest save that was seen, if it has several files and their names do not show that.

    A file of its own number (``step-30.pt`` beside ``last.pt``) is a save by itself, but for side files.
    """
    files = [path for path in (seen.saves[-1].files if seen.saves else ()) if os.path.exists(path)]  # noqa: PTH110
    known = [path for path in files if path in found and _is_nameless(found[path])]
    again = [path for path in known if not any(char.isdecimal() for char in _stem(path))]
    files = [path for path in files if path in (again or known) or path not in found]
    return _Save(files={path: path for path in files}) if len(files) > 1 and known else None


def _is_nameless(entry: Entry) -> bool:
    return entry.format in _OF_ONE_FILE and not entry.save and entry.kind is Kind.PERIODIC


def _not_written(seen: SavesSeen) -> str:
    """Which file all saves before the newest wrote under one name, and this one did not; '' for none."""
    *before, newest = seen.saves
    always = set(before[0].files).intersection(*(one.files for one in before)) if len(before) > 1 else set()
    missing = sorted(always - set(newest.files))
    return f"{base_name(missing[0])} beside it is of the save before: it was not finished" if missing else ""


def _at_step(entry: Entry, seen: SavesSeen) -> Entry:
    """``entry`` at the step at which it was seen written, where neither name nor contents say one.

    A number of its name that is near that step is the step, as the script counts it.
    """
    if entry.identity.tells:
        return entry
    step = next((save.step for save in reversed(seen.saves) if entry.path in save.files), None)
    if step is None:
        return entry
    numbers = [int(one) for one in re.findall(r"\d+", _stem(entry.path))]
    named = [one for one in numbers if abs(one - step) <= _NEAR]
    return replace(entry, global_step=named[-1] if named else step, about=not named)


def _saves(
    found: Mapping[str, Entry],
    members: Mapping[str, Sequence[str]],
    listings: Iterable[Listing],
    roots: Sequence[str],
) -> dict[_Place, dict[_Number, _Save]]:
    """The saves of each place by number."""
    saves: dict[_Place, dict[_Number, _Save]] = defaultdict(lambda: defaultdict(_Save))
    taken: set[str] = set()
    for path, one in found.items():
        if not _is_one_file(one, members):
            taken.update(members.get(path, ()))
            unit = _numbered_folder(path, roots) if one.format == "folder" else None
            if unit is not None:
                save = saves[_Place(unit.parent, unit.counts)][unit.number]
                save.claimed = True
                save.files |= {member[len(path) + 1 :]: member for member in members.get(path, ())}
    for listing in listings:
        files = {
            name: told
            for name in listing.files
            if listing.join(name) not in taken and (told := _of_a_save(listing, name, found))
        }
        masks = _varying(files)
        unit = None if _counts_files(files) else _numbered_folder(listing.path, roots)
        for name, known in files.items():
            numbered = _in_folder(unit, name) if unit is not None else _by_name(listing.path, name, masks)
            if numbered is None:
                continue
            place, number, member = numbered
            if isinstance(known, Entry):
                place = replace(place, rank=known.rank, session=known.session)
            saves[place][number].files.setdefault(member, listing.join(name))
    return saves


def _is_one_file(entry: Entry, members: Mapping[str, Sequence[str]]) -> bool:
    return entry.format in _OF_ONE_FILE and tuple(members.get(entry.path, ())) == (entry.path,)


def _of_a_save(listing: Listing, name: str, found: Mapping[str, Entry]) -> Entry | bool:
    """The entry of a periodic save; True for a file that may belong to one, False for any other."""
    if name in listing.links:
        return False
    one = found.get(listing.join(name))
    if one is None:
        return _BESIDE.fullmatch(name) is not None and not is_unfinished(name)
    return one if one.format in _OF_ONE_FILE and one.kind is Kind.PERIODIC else False


@dataclass(frozen=True, slots=True)
class _Unit:
    """A numbered folder: all that is in it is one save. ``inside`` is the way from it to where one looks."""

    parent: str
    counts: str
    number: _Number
    inside: str = ""


def _numbered_folder(path: str, roots: Sequence[str]) -> _Unit | None:
    """The nearest folder, at or above ``path``, whose name says a step or an epoch, or is only a number.

    The names of ``roots``, and of what is above them, say nothing of saves.
    """
    inside = ""
    while any(path.startswith(f"{root}/") for root in roots):
        path, _, name = path.rpartition("/")
        told = step_in(name)
        if told is not None or name.isdecimal():
            counts, number = told or ("", int(name))
            return _Unit(path, counts, (number,), inside)
        inside = f"{rank_left_open(name)}/{inside}"
    return None


def _counts_files(files: Iterable[str]) -> bool:
    """Whether the files of one folder tell different steps or epochs themselves."""
    return len({told for told in map(step_in, files) if told is not None}) > 1


def _varying(files: Iterable[str]) -> _Masks:
    """Which of the numbers in a name change from file to file, by the name without its numbers.

    Of a name that is alone nobody knows: its last number is taken for the one.
    """
    alike: dict[str, list[_Number]] = defaultdict(list)
    for name in files:
        mask, numbers = _split(name)
        if numbers:
            alike[mask].append(numbers)
    return {
        mask: tuple(at for at, seen in enumerate(zip(*several, strict=True)) if len(set(seen)) > 1)
        if len(several) > 1
        else (len(several[0]) - 1,)
        for mask, several in alike.items()
    }


def _split(name: str) -> tuple[str, _Number]:
    opened = rank_left_open(name)
    return re.sub(r"\d+", "#", opened), tuple(map(int, re.findall(r"\d+", opened)))


def _in_folder(unit: _Unit, name: str) -> tuple[_Place, _Number, str]:
    member = re.sub(rf"(?<!\d)0*{unit.number[0]}(?!\d)", "#", rank_left_open(name))
    return _Place(unit.parent, unit.counts), unit.number, f"{unit.inside}{member}"


def _by_name(folder: str, name: str, masks: _Masks) -> tuple[_Place, _Number, str] | None:
    mask, numbers = _split(name)
    columns = masks.get(mask, ())
    told = step_in(name)
    if (not columns and told is None) or has_part_of_step(name):
        return None
    counts, number = ("", tuple(numbers[at] for at in columns)) if told is None else (told[0], (told[1],))
    kept = iter("#" if at in columns else str(one) for at, one in enumerate(numbers))
    return _Place(folder, counts), number, re.sub("#", lambda _: next(kept), mask)


def _lacking(save: _Save, before: Sequence[_Save]) -> str:
    """What every one of the saves before had and this one has not, as a clause; '' for nothing.

    A save that shares no file with this one is of something else.
    """
    like = [one for one in before if not one.files.keys().isdisjoint(save.files)]
    if not like:
        return ""
    always = set(like[0].files).intersection(*(one.files for one in like))
    missing = sorted(always - save.files.keys())
    if not missing:
        return ""
    known = like[-1].files[missing[0]]
    more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
    had = "which the save before it has" if len(like) == 1 else f"which the {len(like)} saves before it have"
    return f"its save has nothing like {base_name(known)}{more}, {had}: it was not finished"


def _join(
    save: _Save, told: Entry, found: dict[str, Entry], beside: dict[str, tuple[str, ...]], opened: str
) -> None:
    """Have every entry of ``save`` know it: all are of the step that one of them tells, and of one time.

    The file that was ``opened`` last time comes first, then those whose names speak for them.
    """
    paths = tuple(sorted(save.files.values()))
    known = [path for path in paths if path in found]
    mains = main_files(known)
    order = [*mains, *(path for path in known if path not in mains)]
    order.sort(key=lambda path: masked(base_name(path)) != opened)
    teller = next((found[path] for path in order if found[path].identity.tells), None)
    saved_ns = max((found[path].mtime_ns for path in known), default=0)
    for turn, path in enumerate(order):
        one = replace(found[path], save=told.save, lacks=told.lacks, turn=turn, saved_ns=saved_ns)
        if teller is not None and not one.identity.tells:
            one = replace(
                one,
                global_step=teller.global_step,
                epoch=teller.epoch,
                step_in_epoch=teller.step_in_epoch,
            )
        found[path] = one
        beside[path] = tuple(other for other in paths if other != path)


def _stem(path: str) -> str:
    return base_name(path).partition(".")[0]
