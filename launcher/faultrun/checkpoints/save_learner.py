"""What one save of a training is, learned from the files that it is seen to write. Pure.

Files are put together until one of them comes again: with another number in its name, or under the same name
where that has none. A late file joins the save whose number it bears.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from faultrun.checkpoints.names import base_name, is_unfinished, rank_left_open, step_in
from faultrun.model.observed.saves import KEPT, MOST_FILES, NOTHING_SEEN, SavesSeen, SeenSave

_OF_A_SAVE = re.compile(
    r".+\.(?:pt|pth|tar|ckpt|bin|safetensors|pkl|npz|npy|msgpack|h5|distcp|zip)|\.metadata", re.IGNORECASE
)


@dataclass(slots=True)
class _Growing:
    """A save that is being written: its files by what each is called but for numbers."""

    files: dict[str, str] = field(default_factory=dict)
    numbers: set[int] = field(default_factory=set)
    step: int | None = None

    def takes(self, kind: str, number: int | None) -> bool:
        """Whether a file may be of this save: it has none of its kind, and no other number."""
        same_number = number is None or not self.numbers or number in self.numbers
        return kind not in self.files and same_number


class SaveLearner:
    """Keeps the newest saves. ``known`` is what an earlier supervisor of the run had learned.

    ``elsewhere`` is what all nodes of a run of several have seen together by now.
    """

    def __init__(self, known: SavesSeen) -> None:
        self._known = known
        self._saves = [_grown(one) for one in known.saves]
        self.elsewhere = NOTHING_SEEN

    @property
    def seen(self) -> SavesSeen:
        """What is known now of what is written here; of a save of many ranks or files only some are named."""
        saves = tuple(
            SeenSave(
                files=tuple(sorted(one.files.values()))[:MOST_FILES],
                step=one.step,
                number=max(one.numbers, default=None),
            )
            for one in self._saves
        )
        return replace(self._known, saves=saves)

    @property
    def seen_anywhere(self) -> SavesSeen:
        """The same, each save with what other nodes write under one name: none is said to lack it.

        What bears a number is known by that.
        """
        own, beside = self.seen, dict[str, str]()
        written = {_kind_of(path)[0] for one in own.saves for path in one.files}
        for path in (path for one in self.elsewhere.saves for path in one.files):
            kind, number = _kind_of(path)
            if number is None and kind not in written:
                beside[kind] = path
        saves = own.saves or (SeenSave(files=()),) if beside else own.saves
        saves = tuple(replace(one, files=(*one.files, *beside.values())) for one in saves)
        return replace(own, saves=saves, opened=own.opened or self.elsewhere.opened)

    @property
    def kinds(self) -> frozenset[str]:
        """What the files of the last two saves are called but for their numbers."""
        return frozenset[str]().union(*(one.files for one in self._saves[-2:]))

    def saved_at(self, paths: Iterable[str], step: int | None) -> None:
        """Note how far training was when ``paths`` were written, of saves of which that is not known."""
        written = set(paths)
        for save in self._saves:
            if save.step is None and not written.isdisjoint(save.files.values()):
                save.step = step

    def before_training(self, paths: Iterable[str], *, root: str) -> None:
        """Note files that were written before a first step: of no save, unless saves have such files."""
        known = frozenset[str]().union(*(one.files for one in self._saves))
        new = (path for path in paths if _kind_of(path[len(root) :])[0] not in known)
        prepared = tuple(dict.fromkeys((*self._known.prepared, *new)))[:MOST_FILES]
        self._known = replace(self._known, prepared=prepared)

    def resumed_from(self, opened: Iterable[str]) -> None:
        """Note which file of a save the script opened, as it went on from it."""
        names = {masked(base_name(path)) for save in self._saves for path in save.files.values()}
        found = next((name for path in opened if (name := masked(base_name(path))) in names), "")
        self._known = replace(self._known, opened=found or self._known.opened)

    def wrote(self, path: str, *, root: str) -> bool:
        """Take note of a file below ``root`` that was written; whether it is one of a save."""
        if not is_of_a_save(path):
            return False
        kind, number = _kind_of(path[len(root) :])
        of_number = (one for one in reversed(self._saves) if number is not None and number in one.numbers)
        save = next(of_number, self._saves[-1] if self._saves else None)
        if save is not None and number in save.numbers and kind in save.files:
            return True  # once more, or by another rank
        if save is None or not save.takes(kind, number):
            save = _Growing()
            self._saves = [*self._saves, save][-KEPT:]
        save.files[kind] = path
        prepared = tuple(one for one in self._known.prepared if one != path)
        self._known = replace(self._known, prepared=prepared)
        save.numbers |= set() if number is None else {number}
        return True


def is_of_a_save(path: str) -> bool:
    """Whether a file's name may be that of a part of a checkpoint."""
    name = base_name(path)
    return _OF_A_SAVE.fullmatch(name) is not None and not is_unfinished(name)


def _kind_of(path: str) -> tuple[str, int | None]:
    """What a file is called but for its number, whichever rank wrote it; and that number.

    In a folder that is named by a step a file keeps the numbers of its own: ``step_20/encoder2.pt``.
    """
    folder, _, name = "/".join(map(rank_left_open, path.split("/"))).rpartition("/")
    told = next((told for part in reversed(folder.split("/")) if (told := step_in(part))), None)
    if told is not None and step_in(name) is None:
        number = told[1]
        kept = re.sub(rf"(?<!\d)0*{number}(?!\d)", "#", name)
        return f"{masked(folder)}/{kept}", number
    numbers = re.findall(r"\d+", f"{folder}/{name}")
    own = step_in(name)
    return masked(f"{folder}/{name}"), own[1] if own else int(numbers[-1]) if numbers else None


def masked(text: str) -> str:
    """``text`` with its numbers taken out."""
    return re.sub(r"\d+", "#", text)


def _grown(save: SeenSave) -> _Growing:
    found = _Growing(step=save.step)
    for path in save.files:
        kind, number = _kind_of(path)
        found.files[kind] = path
        found.numbers |= set() if number is None else {number}
    return found
