"""Who dies where, and when faultrun is told to stop, drawn by chance: the same seed, the same campaign."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

STEPS = 40
SAVE_EVERY = 5
_LATEST_FROM_OUTSIDE = STEPS - 15
_START_S = (0.2, 3.0)
_IN_A_STEP_S = 0.02


class Place(Enum):
    """Where the victim is when it ends itself."""

    START = "start"  # before the first step: imports, meeting, creating, resuming
    FORWARD = "forward"  # before or after any module's forward pass
    ALL_REDUCE = "all-reduce"  # while one of the gradients is being averaged
    UPDATE = "update"  # between two parameters of the optimizer's step
    SAVE = "save"  # at a call of the file system in a periodic save, or while it writes
    STEP = "step"  # at any moment of one step, where its parts cannot be told apart
    ANYTIME = "anytime"  # a few steps long, whatever it does


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One run of the campaign, counted from 1. ``fraction`` (0 to 1) is the moment inside the place."""

    number: int
    rank: int
    step: int
    place: Place
    fraction: float

    @property
    def option(self) -> str:
        """As the job reads it (``jobs/gasp_death.py``)."""
        return f"--die={self.rank}:{self.step}:{self.place.value}:{self.fraction:.6f}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """SIGTERM to faultrun, ``after_s`` after some rank finished ``step``; 0: after faultrun was started."""

    number: int
    step: int
    after_s: float


def draw_faults(runs: int, seed: int, workers: int, places: Sequence[Place]) -> tuple[Fault, ...]:
    """Draw ``runs`` deaths, each place equally often. A longer campaign begins like a shorter one."""
    rng = random.Random(f"faults {seed}")
    return tuple(
        _draw_fault(rng, number, workers, places[(number - 1) % len(places)]) for number in range(1, runs + 1)
    )


def draw_stops(runs: int, seed: int) -> tuple[Stop, ...]:
    """Draw ``runs`` moments, one in five of them before the first step."""
    rng = random.Random(f"stops {seed}")
    return tuple(_draw_stop(rng, number) for number in range(1, runs + 1))


def _draw_fault(rng: random.Random, number: int, workers: int, place: Place) -> Fault:
    match place:
        case Place.START:
            step = 1
        case Place.SAVE:
            step = rng.randint(1, STEPS // SAVE_EVERY) * SAVE_EVERY
        case Place.ANYTIME:
            step = rng.randint(1, _LATEST_FROM_OUTSIDE)
        case _:
            step = rng.randint(1, STEPS)
    return Fault(number=number, rank=rng.randrange(workers), step=step, place=place, fraction=rng.random())


def _draw_stop(rng: random.Random, number: int) -> Stop:
    if number % 5 == 0:
        return Stop(number=number, step=0, after_s=rng.uniform(*_START_S))
    return Stop(number=number, step=rng.randint(1, STEPS - 5), after_s=rng.uniform(0.0, _IN_A_STEP_S))
