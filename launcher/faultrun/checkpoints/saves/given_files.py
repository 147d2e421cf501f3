"""Which of the files that a run saves a script is given: what names, contents, sizes and loads say of it."""

import os
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

from faultrun.checkpoints.names import base_name, plainly_numbered, step_in
from faultrun.checkpoints.saves.save_names import inside, masked
from faultrun.model.checkpoint import Entry, Kind
from faultrun.model.observed.saves import SavesSeen

_NO_OTHER = "of no save that was seen before it: those had other files"
_SIDE = "its name says that it goes with another file, and it is saved apart from others"
_SILENT = "it is saved apart from files whose contents tell a step, and tells none"
_NO_NUMBER = "it is saved apart from files with a number, and has none"
_NOT_OPENED = "its save lacks the file that the script opened of another when it last resumed"
_SMALL = "it is saved apart from files of more than twice its size"
_ALIKE = 0.8
_WORDS = re.compile(r"[A-Za-z]+")
_SELDOM_GIVEN = re.compile(
    r"ema|shadow|average|averaged|avg|swa|polyak|teacher|target|opt|optim\w*|sched\w*|scaler|rng|random|vae|text"
    r"|token\w*|netd|d|disc\w*|critic|decoder|dec|lora|buffer|replay|pred\w*|results?|outputs?|logits|samples?"
    r"|embed\w*|feat\w*|metrics?|stats|eval\w*|export\w*|onnx|cache\w*|history",
    re.IGNORECASE,
)
"""Words in names of files that are saved beside the one that a script is given: a guess, and told as one."""


def main_files(paths: Collection[str], roots: Sequence[str] = ()) -> tuple[str, ...]:
    """Files of a save whose names do not say that they only go with another; the shortest first.

    Of a file alone the folders below ``roots`` count, too: those above are the user's.
    """
    common = os.path.commonpath(paths) if len(paths) > 1 else ""
    for path in paths if len(paths) == 1 else ():
        common = path.removesuffix(inside(path, roots)) or path.rpartition("/")[0]
    stems = {path: plainly_numbered(base_name(path)).partition(".")[0] for path in paths}
    words = {
        path: _WORDS.findall(f"{path[len(common) :].rpartition('/')[0]}/{stem}")
        for path, stem in stems.items()
    }
    mains = [path for path in paths if not any(map(_SELDOM_GIVEN.fullmatch, words[path]))]
    return tuple(sorted(mains, key=lambda path: (len(base_name(path)), path)))


def is_copy(size: int, others: Iterable[int]) -> bool:
    """Whether a file may be a copy of another, by their sizes in bytes: a few words more change little."""
    return any(min(size, other) >= _ALIKE * max(size, other) for other in others)


def other_kinds(path: str, seen: SavesSeen) -> tuple[str, ...]:
    """The newest file of each kind that is saved in turn with ``path``: a script may want one of them.

    Kinds are told apart by names without numbers; what was opened at the last resume leaves no doubt.
    """
    kinds = {masked(base_name(one)): one for save in seen.saves for one in save.files if os.path.exists(one)}  # noqa: PTH110
    inside = [
        save.files
        for save in seen.saves
        if any(one == path or one.startswith(f"{path}/") for one in save.files)
    ]
    own = {masked(base_name(one)) for files in inside for one in files}
    alike = [save for save in seen.saves if not own.isdisjoint(masked(base_name(one)) for one in save.files)]
    own |= {masked(base_name(one)) for save in alike for one in save.files}
    known = not own or seen.opened in own
    return () if known else tuple(main_files([one for kind, one in kinds.items() if kind not in own]))


def saved_apart(
    seen: SavesSeen, found: Mapping[str, Entry], roots: Sequence[str], telling: Collection[str]
) -> Iterator[tuple[str, str]]:
    """Files that are saved apart from those that a script resumes from, and why they are none of these.

    ``telling`` are the files whose own contents tell a step: others are given that of the save they are of.

    Of several kinds those count whose names do not say that they go with another, then those that two saves
    or more had, then those whose contents tell a step, then the large ones. What was opened counts always.
    """
    parts = (
        {_kind(part) for path in save.files for part in inside(path, roots).split("/")} for save in seen.saves
    )
    times = Counter(chain.from_iterable(parts))
    sides = {path for path in seen.past if not main_files([path], roots)}
    mains = _pools([one for path, one in found.items() if times[_kind(path)] or path in sides])
    again = any(times[kind] > 1 for pool in mains for kind in pool.kinds)
    tests: tuple[tuple[str, Callable[[_Pool], bool]], ...] = (
        (_SIDE, lambda pool: bool(main_files([one.path for one in chain(*pool.saves)], roots))),
        (_NO_OTHER, lambda pool: any(times[kind] > 1 for kind in pool.kinds)),
        (_NO_NUMBER, lambda pool: again or any("#" in kind for kind in pool.kinds)),
        (_SILENT, lambda pool: pool.tells(telling, mains)),
        (_SMALL, lambda pool: 2 * pool.size_bytes >= max(one.size_bytes for one in mains)),
    )
    for why, test in tests:
        passed = [pool for pool in mains if test(pool)]
        better = [pool for pool in mains if pool in passed or seen.opened in pool.kinds] if passed else mains
        yield from ((one.path, why) for pool in mains if pool not in better for one in chain(*pool.saves))
        mains = better
    for pool in mains:
        yield from _without_main(pool, seen.opened, telling)


class _Pool(NamedTuple):
    """Saves that have kinds of files in common: ``kinds`` are their names without numbers."""

    kinds: set[str]
    saves: list[list[Entry]]

    @property
    def size_bytes(self) -> int:
        """How large its largest save is."""
        return max(sum(one.size_bytes for one in save) for save in self.saves)

    def tells(self, telling: Collection[str], pools: "Sequence[_Pool]") -> bool:
        """Whether a file's contents tell a step; or its name, where it is as large as one of those."""
        files = [*chain(*self.saves)]
        sizes = [one.size_bytes for pool in pools for one in chain(*pool.saves) if one.path in telling]
        named = (one for one in files if one.identity.tells and is_copy(one.size_bytes, sizes))
        return any(one.path in telling for one in files) or any(named)


def _without_main(pool: _Pool, opened: str, telling: Collection[str]) -> Iterator[tuple[str, str]]:
    """Files of saves that lack the kind that was ``opened`` of another, else one that tells a step itself."""
    kinds: dict[str, list[Entry]] = defaultdict(list)
    for one in chain(*pool.saves):
        kinds[_kind(one.path)].append(one)
    tell = [files[0].path for files in kinds.values() if any(one.path in telling for one in files)]
    told = {_kind(path) for path in main_files(tell)}
    must, why = ({opened}, _NOT_OPENED) if opened in kinds else (told, _SILENT)
    lacking = [save for save in pool.saves if must and must.isdisjoint(_kind(one.path) for one in save)]
    yield from ((one.path, why) for one in chain(*lacking))


def _pools(entries: Iterable[Entry]) -> list[_Pool]:
    saves: dict[str, list[Entry]] = defaultdict(list)
    for one in entries:
        if one.kind is Kind.PERIODIC:
            saves[one.save or one.path].append(one)
    pools: list[_Pool] = []
    for save in saves.values():
        pool = _Pool({_kind(one.path) for one in save}, [save])
        for other in [one for one in pools if not one.kinds.isdisjoint(pool.kinds)]:
            pools.remove(other)
            pool = _Pool(pool.kinds | other.kinds, [*other.saves, *pool.saves])
        pools.append(pool)
    return pools


def _kind(path: str) -> str:
    return masked(base_name(path))


def tells_inside(entry: Entry, roots: Sequence[str]) -> bool:
    """Whether its contents tell a step, and not its name."""
    names = map(plainly_numbered, inside(entry.path, roots).split("/"))
    return entry.identity.tells and not any(map(step_in, names))
