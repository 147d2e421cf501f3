"""Which files are one save: a model, its optimizer and averages under one number, all that is in one folder.

A training code that writes several files at each save gives them one number: in the files' names
(``model000030.pt``, ``ema_0.9999_000030.pt``), or in the name of their folder (``step_30/``). What the newest
save of a place lacks shows in those before it. Opens nothing: it knows names and stamps alone. Formats that
claim a folder as one checkpoint judge for themselves what belongs to it.
"""

import os
import sys
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from faultrun.checkpoints.format import Listing, Stamp
from faultrun.checkpoints.names import base_name
from faultrun.checkpoints.saves.given_files import is_copy, main_files, saved_apart, tells_inside
from faultrun.checkpoints.saves.newest_save import (
    by_rank,
    in_folder_of,
    left_from_before,
    not_written,
    of_workers,
    why_unfinished,
)
from faultrun.checkpoints.saves.numbered_saves import (
    OF_ONE_FILE,
    Number,
    NumberedSave,
    SavePlace,
    saves_by_number,
    with_ranks,
)
from faultrun.checkpoints.saves.save_names import masked, of_any_rank
from faultrun.checkpoints.saves.steps_of_saves import at_steps
from faultrun.model.checkpoint import Entry, Kind
from faultrun.model.observed.saves import NOTHING_SEEN, SavesSeen

_COMPARED = 3
_Saves = Mapping[SavePlace, Mapping[Number, NumberedSave]]
_NAMELESS = Entry(path="", format="", kind=Kind.PERIODIC, size_bytes=0, mtime_ns=0, inode=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class SavesOfRun:
    """What is known of the run's saves: what was seen, and how far training came.

    ``strangers`` are files of no save of this run, ``world_size`` is how many workers it had at most, 0 where
    unknown. ``order`` is that of the writing, by path; None if unknown. ``first_seen`` tells at
    the end of which life a file was there, None for one of the last.
    """

    seen: SavesSeen = NOTHING_SEEN
    reached: int | None = None
    strangers: Collection[str] = ()
    world_size: int = 0
    order: Mapping[str, int] | None = None
    first_seen: Callable[[Stamp], int | None] = lambda _: None


@dataclass(frozen=True, slots=True)
class Grouped:
    """The entries, by the path of each what else is saved with it, and files of saves that are no entries."""

    entries: list[Entry]
    beside: Mapping[str, tuple[str, ...]]
    others: frozenset[str]


def grouped(
    entries: Sequence[Entry],
    members: Mapping[str, Sequence[str]],
    listings: Sequence[Listing],
    roots: Sequence[str],
    run: SavesOfRun,
) -> Grouped:
    """``entries``, where each file of a save of several knows it, and what that lacks.

    ``members`` are the files of each entry, by its path. The ``turn`` of an entry is when of its save it is
    tried. Files that bear no number are one save if they were seen to be. What one save alone had is not
    missed in the next if training went on after that. Where members come late, the two newest saves may be
    unfinished: neither tells what a save has.
    """
    found = with_ranks(entries, run.seen, run.world_size, roots)
    seen = of_workers(run.seen, run.world_size, roots)
    telling = {path for path, one in found.items() if tells_inside(one, roots)}
    beside: dict[str, tuple[str, ...]] = {}
    saves = saves_by_number(found, members, (listings, run.strangers), roots, seen, run.world_size)
    over = _over(seen, run.reached)
    turns = {path: at for at, one in enumerate(seen.saves, 1) for path in (*one.paths, *one.ranks)}
    best = {path for path, one in found.items() if one.kind is Kind.BEST}
    from_before = left_from_before(seen, turns, over, roots).items()
    left = {path: others for path, others in from_before if path not in best}
    lives = _Lives({one.path: one.files for one in listings}, run.first_seen, left)
    alike: dict[tuple[str, int | None], list[SavePlace]] = defaultdict(list)
    for place in saves:
        alike[place.kind].append(place)
    late = any(one.late for one in seen.saves)
    for place, of_place in saves.items():
        finished = ([*_finished(saves[one], lives)] for one in alike[place.kind] if one != place)
        others = max(finished, key=len, default=[])[-_COMPARED:]
        for number, lacks in _in_order(of_place, others, lives, over, late=late):
            save = of_place[number]
            for path in save.files.values() if save.claimed else ():
                found.pop(path, None)
            if lacks or (len(save.files) > 1 and not save.claimed):
                name = f"{place.folder}#{place.counts}{'.'.join(map(str, number))}"
                _join(save, replace(_NAMELESS, save=name, lacks=lacks), found, beside, seen)
    missing = not_written(seen, found, roots, over)
    for at, one in reversed([*enumerate(seen.saves, 1)]):
        of_it = [path for path in (*one.paths, *one.ranks) if turns[path] == at]
        old = [*missing] if at == len(seen.saves) else []
        old += [
            path for path, others in left.items() if path not in old and in_folder_of(path, others, of_it)
        ]
        for rank, paths in by_rank([*of_it, *old], roots).items():
            lost = [path for path in old if path in paths]
            if (together := _seen_as_one(paths, found, lost, seen)) is not None:
                told = replace(_NAMELESS, save=f"seen {at}{''.join(rank)}", lacks=why_unfinished(lost))
                _join(together, told, found, beside, seen)
    newest = {path for path, at in turns.items() if at == len(seen.saves)}
    for path, files in members.items():
        older = {file: left.get(file, set()) | (newest if file in missing else set()) for file in files}
        lost = [file for file, others in older.items() if not others.isdisjoint(files)]
        written_over = tuple(files) != (path,) and not any(map(str.isdecimal, base_name(path)))
        if path in found and written_over and lost:
            found[path] = replace(found[path], lacks=found[path].lacks or why_unfinished(lost))
    written = (save.files.values() for of_place in saves.values() for save in of_place.values())
    for path, why in [*saved_apart(seen, found, roots, telling)]:
        found[path] = replace(found[path], lacks=found[path].lacks or why)
    loose = frozenset(chain.from_iterable(written)) - found.keys()
    order = _order(saves, beside, run.order or {})
    entries = [replace(one, written=order[one.path]) if one.path in order else one for one in found.values()]
    return Grouped(at_steps(entries, seen, roots), beside, loose)


def _order(saves: _Saves, beside: Mapping[str, Sequence[str]], written: Mapping[str, int]) -> dict[str, int]:
    """The order of the writing, by path: files of one save have that of the last, with those of all ranks."""
    order, of_ranks = {**written}, defaultdict[tuple[str, str, Number], list[str]](list)
    for place, number in ((one, number) for one in saves if one.counts for number in saves[one]):
        of_ranks[of_any_rank(place.folder), place.counts, number] += saves[place][number].files.values()
    for files in (*of_ranks.values(), *([path, *others] for path, others in beside.items())):
        order |= dict.fromkeys(
            files if written else (), max((written.get(one, 0) for one in files), default=0)
        )
    return order


def _seen_as_one(
    paths: Sequence[str], found: Mapping[str, Entry], old: Collection[str], seen: SavesSeen
) -> NumberedSave | None:
    """A save that was seen, if it has several files and their names do not show that.

    A file of its own number (``step-30.pt`` beside ``last.pt``) is a save by itself, but for side files.
    """
    files = [path for path in paths if os.path.exists(path)]  # noqa: PTH110
    there = [found[path] for path in files if path in found and found[path].kind is Kind.PERIODIC]
    known = [one.path for one in there if one.format in OF_ONE_FILE and not one.save]
    stems = [of_any_rank(base_name(path)).partition(".")[0] for path in known]
    again = [one for one, stem in zip(known, stems, strict=True) if not any(map(str.isdecimal, stem))]
    numbered = [path for path in known if path not in again]
    sizes = [found[path].size_bytes for path in numbered]
    # An optimizer beside models with numbers is of their saves, as is what comes with each and is no copy.
    again = [
        one for one in again if is_copy(found[one].size_bytes, sizes) or not _always_with(one, numbered, seen)
    ]
    again = again if main_files(again) else []
    files = [path for path in files if path in (again or known) or path not in found]
    several = len(files) > 1 or (old and not set(files) <= set(old))
    return NumberedSave(files={path: path for path in files}) if several and known else None


def _always_with(path: str, others: Sequence[str], seen: SavesSeen) -> bool:
    """Whether each save before the newest that had ``path`` had files like ``others``, and the reverse."""
    names, kind = ({*map(masked, save.files)} for save in seen.saves[:-1]), masked(path)
    both = [(kind in every, not every.isdisjoint(map(masked, others))) for every in names]
    return len(both) > 1 and bool(others) and all(one == two for one, two in both)


def _over(seen: SavesSeen, reached: int | None) -> set[str]:
    """The files of the newest save, if training went on after it, and no file ever came later than that."""
    newest = seen.saves[-1] if seen.saves else None
    if newest is None or newest.step is None or reached is None or any(one.late for one in seen.saves):
        return set()
    return set(newest.files) if reached > newest.step else set()


@dataclass(frozen=True, slots=True)
class _Lives:
    """When files were seen first: at the end of which life, by their stamps; None: they are of the last."""

    stamps: Mapping[str, Mapping[str, Stamp]]
    first_seen: Callable[[Stamp], int | None]
    left: Mapping[str, set[str]]

    def mixed(self, save: NumberedSave, others: Iterable[NumberedSave]) -> str:
        """Which file is of an earlier life than another, that began the save again; as a clause, '' for none.

        Only files such as ``others`` have together count: else it is unknown whether they are of one save.
        """
        for path in save.files.values():
            if not self.left.get(path, set()).isdisjoint(save.files.values()):
                return f"{base_name(path)} beside it is of the save before: it was not finished"
        lives: dict[int, str] = {}
        together = max((save.files.keys() & one.members for one in others), key=len, default=set[str]())
        for path in map(save.files.__getitem__, sorted(together)):
            folder, _, name = path.rpartition("/")
            stamp = self.stamps.get(folder, {}).get(name)
            life = None if stamp is None else self.first_seen(stamp)
            lives.setdefault(sys.maxsize if life is None else life, name)
        if len(lives) < 2:
            return ""
        return (
            f"{lives[min(lives)]} is of an earlier life than {lives[max(lives)]}: it was not finished again"
        )


def _in_order(
    saves: Mapping[Number, NumberedSave],
    others: Sequence[NumberedSave],
    lives: "_Lives",
    over: Collection[str],
    *,
    late: bool,
) -> Iterator[tuple[Number, str]]:
    """The number of each save of a place, and what it lacks; ``others`` count where none is before it."""
    before: list[NumberedSave] = []
    others = others or [saves[number] for number in sorted(saves)[1 : _COMPARED + 1]]
    for number in sorted(saves):
        save, like = saves[number], before or others
        lacks = lives.mixed(save, like)
        known_by_one = len(like) == 1 and not set(over).isdisjoint(save.files.values())
        if save.files and not (lacks or known_by_one or (save.claimed and before)):
            lacks = _lacking(save, like)
        before = before if lacks and late else [*before, save][-_COMPARED:]
        yield number, lacks


def _finished(saves: Mapping[Number, NumberedSave], lives: "_Lives") -> Iterator[NumberedSave]:
    """Saves of a place of which nothing is missing."""
    return (
        saves[number]
        for number, lacks in _in_order(saves, [NumberedSave()], lives, (), late=True)
        if not lacks
    )


def _lacking(save: NumberedSave, others: Sequence[NumberedSave]) -> str:
    """What every one of ``others`` had and this save has not, as a clause; '' for nothing.

    A save that shares no file with this one is of something else.
    """
    like = [one for one in others if not save.files.keys().isdisjoint(one.members)]
    always = set(like[0].members).intersection(*(one.members for one in like)) if like else set[str]()
    missing = sorted(always - save.files.keys())
    if not missing:
        return ""
    known = (like[-1].files or like[-1].gone)[missing[0]]
    more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
    had = "which another save has" if len(like) == 1 else f"which {len(like)} other saves have"
    return f"its save has nothing like {base_name(known)}{more}, {had}: it was not finished"


def _join(
    save: NumberedSave,
    told: Entry,
    found: dict[str, Entry],
    beside: dict[str, tuple[str, ...]],
    seen: SavesSeen,
) -> None:
    """Have every entry of ``save`` know it: all are of the step that one of them tells, and of one time.

    The file that the user's pattern names comes first, then the one that was opened last time, then those
    whose names speak for them, as they were written in the newest save, best in one that had them all.
    """
    paths = (save.claimed,) if save.claimed else tuple(sorted(save.files.values()))
    known = [path for path in paths if path in found]
    written = [[masked(base_name(path)) for path in save.paths] for save in reversed(seen.saves)] or [[]]
    own = {masked(base_name(path)) for path in known}
    names = next((names for names in written if own <= {*names}), written[0])
    turns = {name: -turn for turn, name in enumerate(reversed(names))}
    mains = sorted(main_files(known), key=lambda path: turns.get(masked(base_name(path)), 1))
    order = [*mains, *(path for path in known if path not in mains)]
    order.sort(key=lambda path: (found[path].format != "pattern", masked(base_name(path)) != seen.opened))
    teller = next((found[path] for path in order if found[path].identity.tells), None)
    saved_ns = max((found[path].mtime_ns for path in known), default=0)
    for turn, path in enumerate(order):
        one = replace(found[path], save=told.save, lacks=told.lacks, turn=turn, saved_ns=saved_ns)
        if teller is not None and not one.identity.tells:
            one = replace(
                one, global_step=teller.global_step, epoch=teller.epoch, step_in_epoch=teller.step_in_epoch
            )
        found[path] = one
        beside[path] = tuple(other for other in paths if other != path)
