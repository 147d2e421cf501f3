"""Faults of one training: when, of which kind, and what chance decides about each."""

import random
from dataclasses import dataclass
from enum import Enum

from benchmarks.goodput.assumptions import Assumptions


class Kind(Enum):
    """What a fault takes with it."""

    RANK = "a rank ends"
    EVERYWHERE = "all ranks end"
    NODE = "a node is lost"
    HANG = "a rank stands still"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """``recovery`` and ``step`` are drawn between 0 and 1: which measured recovery, how much of a step.

    They belong to the fault and not to who answers it, so that all launchers meet the same faults and
    the same luck: their difference has less noise than each of them.
    """

    at_s: float
    kind: Kind
    recovery: float
    step: float
    human: bool = False


def month(assumed: Assumptions, devices: int, chance: random.Random) -> list[Fault]:
    """The faults of one training, one after the other: a Poisson process, as in the sources."""
    rate = 1 / assumed.mtbf_s(devices)
    found = []
    at_s = chance.expovariate(rate)
    while at_s < assumed.length_s:
        found.append(
            Fault(
                at_s=at_s,
                kind=_kind(assumed, chance.random()),
                recovery=chance.random(),
                step=chance.random(),
                human=chance.random() < assumed.human,
            )
        )
        at_s += chance.expovariate(rate)
    return found


def months(assumed: Assumptions, devices: int, faults: int, seed: int) -> list[list[Fault]]:
    """As many trainings as have so many faults together; 20 at least and 50,000 at most."""
    expected = assumed.length_s / assumed.mtbf_s(devices)
    number = int(min(50_000, max(20, faults / max(expected, 1e-9))))
    chance = random.Random(f"{seed} {devices}")
    return [month(assumed, devices, chance) for _ in range(number)]


def _kind(assumed: Assumptions, draw: float) -> Kind:
    for kind, share in (
        (Kind.EVERYWHERE, assumed.everywhere),
        (Kind.HANG, assumed.hang),
        (Kind.NODE, assumed.node),
    ):
        if draw < share:
            return kind
        draw -= share
    return Kind.RANK
