"""What a save that was seen lacks: files that those before it had, and files that it left as they were. Pure.

A save that is written over tells no number: what it should have is known from what was seen of earlier ones.
"""

import os
import re
import sys
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from faultrun.checkpoints.names import base_name, kind_of, rank_told
from faultrun.checkpoints.saves.given_files import is_copy, main_files
from faultrun.checkpoints.saves.save_names import inside, masked, of_any_rank
from faultrun.model.checkpoint import Entry, Kind
from faultrun.model.observed.saves import SavesSeen, SeenSave

_COMPARED = 3


def of_workers(seen: SavesSeen, world_size: int, roots: Sequence[str]) -> SavesSeen:
    """``seen`` without files of other ranks where names count beyond the workers: those are no ranks."""
    told = {
        one: [int(rank) for path in one.paths + one.ranks for rank in _whose(path, roots) if rank]
        for one in seen.saves
    }
    saves = (
        replace(one, ranks=()) if max(told[one], default=0) >= (world_size or sys.maxsize) else one
        for one in seen.saves
    )
    return replace(seen, saves=tuple(saves))


def not_written(
    seen: SavesSeen, found: Mapping[str, Entry], roots: Sequence[str], over: Collection[str]
) -> tuple[str, ...]:
    """Which files all saves before the newest wrote under one name, and this one did not: it is none.

    One save tells nothing of a name with a number: the next has another. So folders that differ in a number
    count as one. A save that shares no file with the newest is of something else: another stage, the other of
    two that take turns. Without steps it is unknown for sure which files are one save: three must say so. Of
    the files of ranks one is enough, unless they go with a file of no rank.
    """
    saves = seen.saves or (SeenSave(files=()),)
    folders = {_folder_kind(one): one.rpartition("/")[0] for one in (*saves[-1].files, *saves[-1].ranks)}
    *others, newest = ({_moved_to(folders, path) for path in (*one.files, *one.ranks)} for one in saves)
    before = [one for one in others if not one.isdisjoint(newest)]
    told = all(one.step is not None for one in seen.saves)
    before = [] if (over and len(before) == 1) or not (told or len(before) >= _COMPARED) else before
    if told and others and not (before or over):  # of two folders that take turns only the other one shows it
        folder = os.path.dirname(min(newest, default=""))  # noqa: PTH120
        before = [{f"{folder}/{base_name(one)}" for one in others[-1]}]
        before = [] if before[0].isdisjoint(newest) else before
    always = set[str].intersection(*before) - newest if before else set[str]()
    kinds = {*map(masked, newest)}
    alike = [one for one in others if told and not kinds.isdisjoint(map(masked, one))]
    by_kind = set[str].intersection(*alike) if len(alike) > 1 else set[str]()
    sizes = [found[path].size_bytes for path in newest if path in found]
    copies = {
        path
        for path in main_files(by_kind, roots)
        if path in found and is_copy(found[path].size_bytes, sizes)
    }
    always |= set[str]() if over else by_kind - newest - copies
    written, ranks = {*map(of_any_rank, newest)}, {_whose(one, roots) for one in newest}
    shared = not all(any(_whose(one, roots)) for one in newest | always)
    return tuple(
        path
        for path in sorted(always - set(seen.prepared))
        if (path not in found or found[path].kind is Kind.PERIODIC)
        and kind_of(path) is not Kind.BEST
        and (shared or of_any_rank(path) not in written or _whose(path, roots) in ranks)
        and (len(before) > 1 or not re.search(r"\d", of_any_rank(inside(path, roots))))
    )


def left_from_before(
    seen: SavesSeen, turns: Mapping[str, int], over: Collection[str], roots: Sequence[str]
) -> dict[str, set[str]]:
    """Which files of a later save, by path of one of an earlier, never came without that until then.

    A save that training went on after has all that it should, unless later ones have such a file again.
    """
    found: dict[str, set[str]] = defaultdict(set)
    for path, at in turns.items() if all(one.step is not None for one in seen.saves) else ():
        save, whose = seen.saves[at - 1], _whose(path, roots)
        others = {one: _whose(one, roots) for one in (*save.paths, *save.ranks)}
        for other in (
            one for one, rank in others.items() if not (any(rank) and any(whose) and rank != whose)
        ):
            later = [masked(one) for save in seen.saves[turns[other] :] for one in save.files]
            goes_on = over or turns[other] < len(seen.saves)
            every = [{*save.paths, *save.ranks} for save in seen.saves[: turns[other] - 1]]
            before = [paths for paths in every if other in paths]
            always = all(path in paths for paths in before)
            if turns[other] > at and always and (masked(path) in later or not goes_on):
                found[path].add(other)
    return found


def in_folder_of(path: str, others: Collection[str], written: Collection[str]) -> bool:
    """Whether one of ``others`` that were ``written`` lies beside ``path``, which says no number itself."""
    folder, _, name = path.rpartition("/")
    beside = (one for one in others if one in written and one.rpartition("/")[0] == folder)
    return not re.search(r"\d", name) and any(beside)


def by_rank(paths: Sequence[str], roots: Sequence[str]) -> dict[tuple[str, ...], list[str]]:
    """What each rank loads of a save: its own files; all together where one is of no rank."""
    found: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for path in paths:
        found[_whose(path, roots)].append(path)
    return found if all(map(any, found)) else {(): [*paths]}


def why_unfinished(lost: Sequence[str]) -> str:
    """Why a save without the files ``lost``, which those before it had, is none; '' for no file."""
    where = "beside it is of" if lost and os.path.exists(lost[0]) else "is not there, as in"  # noqa: PTH110
    return f"{base_name(lost[0])} {where} the save before: it was not finished" if lost else ""


def _whose(path: str, roots: Sequence[str]) -> tuple[str, ...]:
    """The rank that each name of ``path`` says."""
    return tuple(map(rank_told, inside(path, roots).split("/")))


def _folder_kind(path: str) -> tuple[str, ...]:
    """The folder of ``path`` without numbers, and whose it is."""
    folder = path.rpartition("/")[0]
    return masked(folder), *map(rank_told, folder.split("/"))


def _moved_to(folders: Mapping[tuple[str, ...], str], path: str) -> str:
    """Where ``path`` would lie in the one of ``folders`` that differs from its own in a number at most."""
    return f"{folders.get(_folder_kind(path), path.rpartition('/')[0])}/{base_name(path)}"
