"""The zoo of layouts: how training codes lay their saves out, and what happens to them; drawn from a seed.

A case is a list of what is done to files, life after life. Each file says inside which save it is of, so that
what a script would get from a path can be compared with what it should have got: the newest save of which all
is there, as far as anybody can know by then. A member that was never once written is known to nobody.
"""

import os
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from benchmarks.campaigns.layouts_files import Op, read
from benchmarks.campaigns.layouts_names import KINDS, LAYOUTS, SPELLINGS, Layout

Save = tuple[int, int]
"""The stage, counted from 1, and the number of the save within it."""


class Fault(Enum):
    """What is wrong with the last save of a life."""

    NOTHING = "nothing wrong"
    CUT = "cut short"
    TORN = "a member torn"
    EMPTY = "a member empty"
    MISSING = "a member missing"
    BETWEEN = "killed between two members"


_MOVES = (("last", "prev"), (".0.", ".1."), (".1.", ".2."), ("_1", "_2"), ("_2", "_3"))
"""What a save, or a copy of it, is called as the next ones begin."""


class Due(NamedTuple):
    """What a script should get: the save, what its files say, whether all that it needs was ever written."""

    save: Save
    who: str
    known: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One case; ``lives`` are how many saves each life makes, ``faults`` what becomes of the last of each."""

    number: int
    seed: int
    layout: Layout
    spelling: str
    lives: tuple[int, ...]
    faults: tuple[Fault, ...]
    in_place: bool
    tells: bool
    more: frozenset[str]

    def told(self) -> str:
        """In a few words, for the table."""
        lives = ", ".join(f"{n} saves, {one.value}" for n, one in zip(self.lives, self.faults, strict=True))
        marks = sorted(
            {*self.more, *(["in place"] if self.in_place else []), *(["tells"] if self.tells else [])}
        )
        return f"{' '.join(self.layout.members)} as {self.spelling}: {lives}; {' '.join(marks)}"

    def before(self) -> Iterator[Op]:
        """What lies in the folder before the run begins."""
        if "foreign" in self.more:
            for number in (7, 9):
                for member, path in enumerate(self.paths((1, number), 9)):
                    yield Op(what="write", path=path, who=f"other {number} {member}", step=self._step(number))

    def paths(self, save: Save, life: int) -> tuple[str, ...]:
        """Where the members of a save lie."""
        stage, number = save
        step = self._step(number)
        told = {"n": SPELLINGS[self.spelling][1](step), "N": f"{step:06d}", "e": number, "s": stage}
        told |= {"t": number % 2, "r": number % 3}
        return tuple(one.format(**told, d=f"2026-11-28_10-0{life}-00") for one in self.layout.members)

    def _places(self, save: Save, life: int) -> list[tuple[str, ...]]:
        """Where the members lie, and where they are moved later."""
        places = [self.paths(save, life)]
        for old, new in _MOVES if self.layout.kind in {"moved", "copied on"} else ():
            if old in places[-1][0]:
                places.append(tuple(one.replace(old, new) for one in places[-1]))
        return places

    def life(self, life: int, start: Save | None) -> Iterator[Op]:
        """What is done in a life that went on from ``start``; "told" is where a save is complete."""
        chance = random.Random(f"{self.seed}:{self.number}:{life}")
        if life == 0 and "pretrained" in self.more:
            yield Op(what="write", path="resnet50-0676ba61.pth", who="pretrained 0 0")
            yield Op(what="write", path="cache/tokens.bin", who="pretrained 0 1")
        saves = list(self._saves(start or (1, 0), self.lives[life]))
        yield Op(what="step", step=self._step((start or (1, 0))[1]) + 1)
        late: list[Op] = []
        for save in saves:
            step = self._step(save[1])
            yield Op(what="step", step=step)
            last = save == saves[-1]
            fault = self.faults[life] if last else Fault.NOTHING
            for begin, end in reversed([*pairwise(self._places(save, life))]):
                what = "move" if self.layout.kind == "moved" else "copy"
                yield from (Op(what=what, path=to, who=path) for path, to in zip(begin, end, strict=True))
            now = list(self._written(save, life, fault, chance))
            if self.layout.late and fault in {Fault.NOTHING, Fault.MISSING, Fault.BETWEEN}:
                yield now[0]
                yield from late
                late = now[1:] if fault is Fault.NOTHING else []
            else:
                yield from now
            if fault is Fault.NOTHING:
                yield from self._beside(save, now, chance)
                yield from self._sometimes(save, life)
                if life == 0:
                    yield Op(what="told")
                yield Op(what="step", step=step + 1)
        yield from late if chance.random() < 0.5 else ()

    def _saves(self, start: Save, count: int) -> Iterator[Save]:
        stage, number = start
        for made in range(count):
            if self.layout.kind == "stages" and stage == 1 and number >= 3 and made:
                stage, number = 2, 0
            number += 1
            yield stage, number

    def _written(self, save: Save, life: int, fault: Fault, chance: random.Random) -> Iterator[Op]:
        paths = self.paths(save, life)
        struck = chance.randrange(len(paths))
        if fault is Fault.MISSING and life == 0 and save[1] == 1:
            struck = len(paths) - 1  # without the first nobody could know what the script is given
        if fault is Fault.BETWEEN:
            struck = chance.randrange(1, len(paths)) if len(paths) > 1 else len(paths)
        backwards = random.Random(f"{self.seed}:{self.number}").random() < 0.25 and not self.layout.late
        backwards = backwards and (life > 0 or save[1] > 1 or fault is Fault.NOTHING)
        order = [*enumerate(paths)][:: -1 if backwards else 1]
        for nth, (member, path) in enumerate(order):
            what = "place" if self.in_place else "write"
            if fault is Fault.BETWEEN and nth >= struck:
                return
            if member == struck and fault in _DONE:
                what = "half" if fault is Fault.CUT and self.in_place else _DONE[fault]
            who = f"own {life}:{save[0]}.{save[1]} {member}"
            yield Op(what=what, path=path, who=who, step=self._step(save[1]) if self.tells else 0)
            if member == struck and fault is Fault.CUT:
                return

    def _beside(self, save: Save, now: Sequence[Op], chance: random.Random) -> Iterator[Op]:
        beside = self.layout.beside.format(n=SPELLINGS[self.spelling][1](self._step(save[1])))
        if self.layout.kind in {"pointer", "link"}:
            target = now[0].path if self.layout.kind == "link" else now[0].path.partition("/")[0]
            yield Op(what=self.layout.kind, path=beside, who=target)
        if self.layout.kind == "best beside" and chance.random() < 0.6:
            yield Op(what="write", path=beside, who=now[0].who, step=now[0].step)
        if self.layout.kind == "results beside" and chance.random() < 0.6:
            path = self.layout.beside.format(n=self._step(save[1]) + 1)
            yield Op(what="write", path=path, who="own-results 0 0")

    def _sometimes(self, save: Save, life: int) -> Iterator[Op]:
        """What is done after some saves only."""
        stage, number = save
        folder, _, name = self.paths(save, life)[0].rpartition("/")
        if "once" in self.more and life == 0 and save == (1, 1):
            yield Op(what="write", path="vocab.pt", who="own-once 0 0")
        if "seldom" in self.more and number % 3 == 0:
            yield Op(what="write", path=f"{folder}/extra_{name}".lstrip("/"), who="own-seldom 0 0")
        if "touched" in self.more and number == 2:
            yield from (Op(what="touch", path=path) for path in self.paths((stage, 1), 0))
        if "copied" in self.more and number == 2:
            yield from (Op(what="copy", path=f"kept/{path}", who=path) for path in self.paths((stage, 1), 0))
        if "rotated" in self.more and number > 2:
            for at in range(life + 1):
                yield from (Op(what="remove", path=path) for path in self.paths((stage, number - 2), at))

    def _step(self, number: int) -> int:
        return number * SPELLINGS[self.spelling][0]

    def loads(self) -> Mapping[str, tuple[str, ...]]:
        """By the path that a script may be given: what it loads then."""
        found: dict[str, tuple[str, ...]] = {}
        for life in range(len(self.lives)):
            for save in ((stage, number) for stage in (1, 2) for number in range(1, 12)):
                paths = self.paths(save, life)
                for of in self._places(save, life):
                    for member, path in enumerate(of):
                        if self.layout.ranks:
                            found[path] = (path,)
                        elif self.layout.folder or member == 0:
                            found[path] = of
                if self.layout.folder:
                    found["/".join(paths[0].split("/")[: self.layout.folder])] = paths
                if "copied" in self.more:
                    kept = {f"kept/{path}": tuple(f"kept/{one}" for one in of) for path, of in found.items()}
                    found |= {path: of for path, of in kept.items() if not path.startswith("kept/kept")}
                if self.layout.kind == "best beside":
                    best = self.layout.beside.format(n=SPELLINGS[self.spelling][1](self._step(save[1])))
                    found[best] = (best,)
        return found

    def newest_whole(self, root: Path, written: frozenset[int], life: int) -> Due | None:
        """The newest save of which every member that was ever ``written`` is there."""
        members = range(len(self.layout.members)) if self.layout.ranks else written
        for save in ((stage, number) for stage in (2, 1) for number in range(11, 0, -1)):
            for at in range(life, -1, -1):
                who = f"own {at}:{save[0]}.{save[1]}"
                for paths in self._places(save, at):
                    if all(read(root / paths[one]) == f"{who} {one}" for one in members):
                        return Due(save, who, len(written) == len(paths))
        return None

    def verdict(self, root: Path, due: Due | None, chosen: Sequence[str], *, told: bool) -> str:
        """What to say of the paths ``chosen`` (one a rank, none: nothing) where ``due`` is right."""
        wanted = due.who if due else ""
        if not chosen and due and not due.known:
            return UNKNOWABLE
        if not chosen:
            return f"wrong: nothing, though {wanted} is whole" if wanted else RIGHT
        files = dict.fromkeys(
            os.path.relpath(os.path.realpath(one), os.path.realpath(root)) for one in chosen
        )
        table = self.loads()
        loads = [table.get(one) for one in files]
        known = [path for of in loads for path in of or ()]
        whos = {path: read(root / path) for path in known}
        saves = {who.rpartition(" ")[0] for who in whos.values() if who}
        gone = [path for path, who in whos.items() if not who]
        if None in loads or (self.layout.ranks and len(loads) < len(self.layout.members)):
            other = {read(root / one).rpartition(" ")[0] for one in files if (root / one).is_file()}
            return (
                TOLD
                if told and other == {wanted}
                else f"wrong: the script cannot load {list(files)}, {wanted or 'nothing'} is due"
            )
        if saves == {wanted} and not gone:
            return RIGHT
        if saves == {wanted} and not any((root / path).exists() for path in gone):
            return UNKNOWABLE
        return f"wrong: {list(files)} gives {sorted(saves)}, broken {gone}; {wanted or 'nothing'} is due"


RIGHT, TOLD, UNKNOWABLE = "right", "cannot tell", "unknowable"
_OF_NUMBERED = {"foreign", "touched", "copied", "rotated", "seldom"}
_MORE_OF_IT = ("pretrained", "once", "supervisor lost", *sorted(_OF_NUMBERED))
_DONE = {Fault.CUT: "tmp", Fault.TORN: "torn", Fault.EMPTY: "empty", Fault.MISSING: "skip"}


def draw(number: int, seed: int) -> Case:
    """Case ``number``: the same for the same seed, however many there are."""
    chance = random.Random(f"{seed}:{number}")
    kind = KINDS[number % len(KINDS)]
    layout = chance.choice([one for one in LAYOUTS if one.kind == kind])
    spelled = "{n}" in "".join(layout.members) and chance.random() < 0.4 and kind != "parts"
    spellings = [one for one in SPELLINGS if one != "1_000" or "step_{n}" in layout.members[0]]  # else 1, 000
    lives = chance.choice(((1,), (2,), (5,), (2, 1), (3, 1), (3, 2), (2, 0), (2, 1, 1)))
    if kind == "stages":
        lives = chance.choice(((4,), (5,), (6,), (5, 1), (4, 2)))
    more = {one for one in _MORE_OF_IT if chance.random() < 0.2} - (
        {"seldom"} if layout.ranks or kind == "results beside" else set()
    )
    faults = [one for one in Fault if one is not Fault.BETWEEN or len(layout.members) > 1]
    return Case(
        number=number,
        seed=seed,
        layout=layout,
        spelling=chance.choice(spellings) if spelled else "30",
        lives=lives,
        faults=tuple(chance.choice(faults) if count else Fault.NOTHING for count in lives),
        in_place=chance.random() < (0.7 if kind == "in place" else 0.4),
        tells=chance.random() < 0.4,
        more=frozenset(more if layout.numbered else more - _OF_NUMBERED),
    )
