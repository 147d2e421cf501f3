"""At which step a save was written, where neither its name nor its contents say one. Pure."""

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from faultrun.checkpoints.names import base_name, has_part_of_step, plainly_numbered
from faultrun.checkpoints.saves.save_names import inside, kind_of_file, of_any_rank, shards_in
from faultrun.model.checkpoint import Entry
from faultrun.model.observed.saves import SavesSeen, SeenSave

_NEAR = 2


def at_steps(entries: Sequence[Entry], seen: SavesSeen, roots: Sequence[str]) -> list[Entry]:
    """``entries`` at the steps at which they were seen written, or to which their numbers lead on.

    What is no newer than a save that was seen was written before it, whatever its number is.
    """
    if not seen.saves:
        return [*entries]
    saves = {one.path: _seen_in(one.path, seen) for one in entries}
    newest_ns = max((one.mtime_ns for one in entries if saves[one.path] is not None), default=0)
    told: dict[int | None, set[int | None]] = defaultdict(set)
    for one in entries:
        if (save := saves[one.path]) is not None and one.identity.tells:
            told[one.global_step].add(save.step)
    known, found = seen.order, list[Entry]()
    for one in entries:
        if (save := saves[one.path]) is not None:
            found.append(_at_step(one, save, seen, roots, total=len(told[one.global_step]) > 1))
        else:
            newer = one.mtime_ns > newest_ns and one.path not in known
            found.append(_continued(one, seen, roots) if newer else one)
    return found


def _at_step(entry: Entry, save: SeenSave, seen: SavesSeen, roots: Sequence[str], *, total: bool) -> Entry:
    """``entry`` at the step of ``save``, where neither name nor contents say one, or they say a total.

    A number of its name that is near that step is the step, as the script counts it; one that says less than
    half of it counts something else. A file without a number stands behind those of its save that have one.
    """
    if save.step is None:
        return entry
    if entry.identity.tells and (
        entry.global_step is not None or not has_part_of_step(base_name(entry.path))
    ):
        counts = entry.global_step is not None and save.step - entry.global_step > max(_NEAR, save.step // 2)
        counts |= entry.global_step is not None and total  # saves of several steps tell the same
        return replace(entry, seen_step=save.step) if counts else entry
    steps = sorted({0, *(one.step for one in seen.saves if one.step is not None)})
    stride = min((after - before for before, after in pairwise(steps)), default=0)
    counted = [one.number for one in seen.saves].count(save.number) == 1
    numbers = [int(one) for one in re.findall(r"\d+", plainly_numbered(inside(entry.path, roots)))]
    named = [
        one
        for one in numbers
        if abs(one - save.step) <= _NEAR or (counted and one == save.number and 0 < one - save.step < stride)
    ]
    step = named[-1] if named and save.step not in named else save.step
    turn = entry.turn + (not numbers)
    return replace(entry, global_step=step, turn=turn)


def _continued(entry: Entry, seen: SavesSeen, roots: Sequence[str]) -> Entry:
    """A save that was not seen, at the step to which its number leads on from those that were seen.

    A number that did not grow with the steps, as that of a loss does not, leads nowhere.
    """
    if entry.identity.tells or entry.global_step is not None or entry.epoch is not None:
        return entry
    shards = shards_in(seen.saves, roots)
    kind, number = kind_of_file(inside(entry.path, roots), shards)
    known = [
        (one.number, one.step)
        for one in seen.saves
        if one.number is not None
        and one.step is not None
        and kind in (kind_of_file(inside(path, roots), shards)[0] for path in one.files)
    ]
    if number is None or not known or known != sorted(known) or number <= known[-1][0]:
        return entry
    (first, began), (last, step) = known[0], known[-1]
    if abs(last - step) > _NEAR:
        rate = (step - began) / (last - first) if last > first else step / last if last else 1.0
        number = step + round((number - last) * rate)
    return replace(entry, global_step=number)


def _seen_in(path: str, seen: SavesSeen) -> SeenSave | None:
    """The newest save that has the file, or a file in the folder; else one that has that of another rank."""
    for name, of in ((path, str), (of_any_rank(path), of_any_rank)):
        for save in seen.saves[::-1]:
            if any(f"{of(one)}/".startswith(f"{name}/") for one in (*save.paths, *save.ranks)):
                return save
    return None
