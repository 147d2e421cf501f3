"""Which rank is killed when, drawn by chance from a seed: the same seed, the same campaign."""

import random
from dataclasses import dataclass
from enum import Enum

WORKERS = 2
STEPS = 30
SAVE_EVERY = 5
_AFTER_AT_MOST_S = 0.05


class When(Enum):
    """The first three are the victim's own hand, the last is ours, at any moment of whatever it does."""

    BEFORE = "before"  # the step has not begun
    INSIDE = "inside"  # gradients are there, weights are not updated
    AFTER = "after"  # weights are updated, nothing is saved
    OUTSIDE = "outside"


class Way(Enum):
    """How the workers learn where to resume."""

    REWRITE = "rewrite"
    ARGUMENT = "argument"


@dataclass(frozen=True, slots=True, kw_only=True)
class Kill:
    """One run of the campaign; ``number`` counts from 1. ``after_s`` is the delay of a kill from outside."""

    number: int
    rank: int
    step: int
    when: When
    way: Way
    after_s: float = 0.0

    @property
    def option(self) -> str:
        """The kill as the job's option; a rank that does not exist never dies by its own hand."""
        rank = -1 if self.when is When.OUTSIDE else self.rank
        return f"--kill={rank}:{self.step}:{self.when.value}"


def plan(runs: int, seed: int) -> tuple[Kill, ...]:
    """Draw ``runs`` kills. A longer campaign begins with the kills of a shorter one."""
    rng = random.Random(seed)
    return tuple(_draw(rng, number) for number in range(1, runs + 1))


def _draw(rng: random.Random, number: int) -> Kill:
    when = rng.choice(list(When))
    outside = when is When.OUTSIDE
    return Kill(
        number=number,
        rank=rng.randrange(WORKERS),
        step=rng.randint(1, STEPS // 2 if outside else STEPS),  # from outside, it must still be there
        when=when,
        way=rng.choice(list(Way)),
        after_s=rng.uniform(0.0, _AFTER_AT_MOST_S) if outside else 0.0,
    )
