"""Which folders are stages of one training: a later one counts from the beginning again. Pure.

Pre-training and fine-tuning by one script, the phases of a curriculum: ``stage1/step_100`` and then
``stage2/step_10``. The largest step is not the newest there. A folder of best models is no stage, nor is a
copy of older saves: they do not begin where counting begins.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from faultrun.checkpoints.names import place_of, plainly_numbered
from faultrun.model.checkpoint import Entry, Kind
from faultrun.model.observed.saves import NOTHING_SEEN, SavesSeen, SeenSave

_WORDS = re.compile(r"[A-Za-z]+(?:[_-]?\d+)?")
_MOST_STAGES, _NEAR = 8, 2


@dataclass(frozen=True, slots=True)
class _Folder:
    """The steps that a folder has, with the times of their newest files, in ns."""

    name: str
    times: Mapping[int, int]

    @property
    def begins_anew(self) -> bool:
        """Whether it has two saves or more, in the order of their times, from the first there can be."""
        steps = sorted(self.times)
        in_order = [self.times[step] for step in steps] == sorted(self.times.values())
        return len(steps) > 1 and in_order and steps[0] <= 2 * (steps[1] - steps[0])

    def follows(self, other: "_Folder") -> bool:
        """Whether it is of a later stage than ``other``, which got no save since."""
        again = min(self.times) < max(other.times)
        return again and min(self.times.values()) > max(other.times.values())


def with_stages(entries: Sequence[Entry], seen: SavesSeen = NOTHING_SEEN) -> list[Entry]:
    """``entries``, each with the number of its stage where it is of a later one than the first.

    Where none was ``seen`` to begin, folders and the times of their files tell: one save is no stage there.
    """
    if len(seen.stages) > 1:
        return [replace(one, stage=stage_of(one.path, seen.stages)) for one in entries]
    folders, stages = _folders(entries), dict[str, int]()
    for folder in sorted(folders, key=lambda one: min(one.times.values())):
        before = [stages.get(one.name, 0) for one in folders if folder.begins_anew and folder.follows(one)]
        stages |= {folder.name: 1 + max(before)} if before else {}
    return [replace(one, stage=stages.get(_folder_of(one.path), 0)) for one in entries]


def stage_of(path: str, stages: Sequence[str]) -> int:
    """Which of ``stages``, by the words that tell them apart, a file is of; 0 for the first and for none."""
    words = _WORDS.findall(path)
    return max((at for at, word in enumerate(stages) if word in words), default=0)


def without_stage(path: str, stages: Sequence[str]) -> str:
    """``path`` as it would be in any stage."""
    return _WORDS.sub(lambda word: "*" if word[0] in stages else word[0], path)


def stages_after(stages: tuple[str, ...], saves: Sequence[SeenSave]) -> tuple[str, ...]:
    """``stages`` once the newest of ``saves`` was written, by the words that tell them apart in names.

    It begins one if its number is below that of the save before: under the same name but for numbers, or when
    that save was due again. So it does in another folder if training itself counts anew.
    """
    newest, name = saves[-1], _masked(saves[-1].files[0])
    words = _words(newest)
    if known := [at for at, word in enumerate(stages) if word in words]:
        return stages[: known[-1] + 1]
    earlier = [one for one in saves[:-1] if _masked(one.files[0]) == name] or saves[:-1]
    before = [_words(one) for one in earlier[-1:]]
    new = [word for word in words if before and word not in before[0]]
    if not new or not _counts_anew(newest, earlier, saves[-2], same=_masked(earlier[-1].files[0]) == name):
        return stages
    old = next((word for word in before[0] if word not in words), "")
    return (*(stages or (old,)), new[0])[-_MOST_STAGES:]


def _counts_anew(newest: SeenSave, earlier: Sequence[SeenSave], last: SeenSave, *, same: bool) -> bool:
    before, moved = earlier[-1], _folder_of(newest.files[0]) != _folder_of(last.files[0])
    lower = newest.number is not None and before.number is not None and newest.number < before.number
    at = [one.step for one in (*earlier[-2:], newest) if one.step is not None]
    due = len(at) == 3 and abs((at[2] - at[1]) - (at[1] - at[0])) <= _NEAR < at[2] - at[1]
    again = moved and newest.step is not None and last.step is not None and newest.step < last.step
    return (lower and (same or due)) or again


def _words(save: SeenSave) -> list[str]:
    """The words of a save's names, with numbers behind them, but for what counts saves."""
    words = _WORDS.findall(plainly_numbered(save.files[0]))
    numbers = [re.search(r"\d+$", word) for word in words]
    counts = [at for at, one in enumerate(numbers) if one is not None and int(one[0]) == save.number]
    return [word for at, word in enumerate(words) if at not in counts[-1:]]


def _masked(path: str) -> str:
    return re.sub(r"\d+", "#", plainly_numbered(path))


def _folders(entries: Iterable[Entry]) -> list[_Folder]:
    times: dict[str, dict[int, int]] = defaultdict(dict)
    for one in entries:
        if one.global_step is not None and one.kind is Kind.PERIODIC and one.run_id is None:
            at = times[_folder_of(one.path)]
            at[one.global_step] = max(one.mtime_ns, at.get(one.global_step, 0))
    return [_Folder(name, at) for name, at in times.items()]


def _folder_of(path: str) -> str:
    """The folder that it lies in, or that its own numbered folder lies in; those of all ranks are one."""
    return place_of("/".join(map(plainly_numbered, path.rpartition("/")[0].split("/"))))
