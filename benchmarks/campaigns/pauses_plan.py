"""The plan of the campaign of pauses: which job pauses how, for how long, on whom; which hangs. Pure."""

import random
from dataclasses import dataclass, replace

from benchmarks.jobs.pause_deed import HANGS, PAUSES

_SHORTEST_S, _LONGEST_S = 1.0, 120.0
_LIMITS_S = (4.0, 12.0)
_MINDSPORE_SHARE = 0.25
_EVERYBODY_SHARE = 0.3
_MINDSPORE_WAITS_S = 8.0
"""MindSpore's AllReduce on the CPU gives a silent peer up by itself after some 20 s, whoever launched it."""

_ALONE = frozenset({"load", "save"})
"""What one rank does to the whole machine; all at once would only be more of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One job. A pause takes ``seconds``; a hang has no end, and ``limit_s`` by the user (0: none)."""

    number: int
    kind: str
    seconds: float
    everybody: bool
    framework: str
    limit_s: float = 0.0

    @property
    def hangs(self) -> bool:
        """Whether the rank never goes on."""
        return self.limit_s > 0


def plan(pauses: int, hangs: int, seed: int) -> list[Case]:
    """Kinds take turns; lengths are spread evenly over their orders of magnitude."""
    chance = random.Random(seed)
    kinds, stuck = tuple(PAUSES), tuple(HANGS)
    cases = [_pause(chance, number, kinds[number % len(kinds)]) for number in range(pauses)]
    for number in range(hangs):
        kind = stuck[number % len(stuck)]
        cases.append(
            Case(
                number=pauses + number,
                kind=kind,
                seconds=0.0,
                everybody=False,
                framework="torch" if kind == "deadlock" else _framework(chance),
                limit_s=round(chance.uniform(*_LIMITS_S), 1),
            )
        )
    return cases


def _pause(chance: random.Random, number: int, kind: str) -> Case:
    case = Case(
        number=number,
        kind=kind,
        seconds=round(_SHORTEST_S * (_LONGEST_S / _SHORTEST_S) ** chance.random(), 1),
        everybody=kind not in _ALONE and chance.random() < _EVERYBODY_SHARE,
        framework=_framework(chance),
    )
    if case.framework != "mindspore" or case.seconds <= _MINDSPORE_WAITS_S:
        return case
    if kind == "kernel":  # its ranks come out of the kernel one long after the other
        return replace(case, framework="torch")
    if case.everybody:
        return case
    if kind in _ALONE:
        return replace(case, seconds=_MINDSPORE_WAITS_S)
    return replace(case, everybody=True)


def _framework(chance: random.Random) -> str:
    return "mindspore" if chance.random() < _MINDSPORE_SHARE else "torch"
