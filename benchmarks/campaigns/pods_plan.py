"""When a pod is deleted, how its kubelet goes about it, and how long its workers take to save: by chance."""

import random
from dataclasses import dataclass
from enum import Enum

EARLY_MS = (0, 1, 5, 20, 100)
"""When SIGTERM comes, after the launcher's ``exec``."""

MARGIN_S = 5.0
"""What faultrun keeps of ``terminationGracePeriodSeconds`` for itself."""

_LATEST_S = 1.0
_WINDOW_S = (1.0, 4.0)
_LONGER_S = 1.5
_OVERTAKES_S = 1.0


class Hook(Enum):
    """How the preStop hook and SIGTERM follow each other."""

    FIRST = "hook, then SIGTERM"  # as documented: SIGTERM when the hook has ended
    OVERTAKEN = "SIGTERM beside the hook"  # a node that shuts down, an impatient person
    NONE = "SIGTERM alone"


@dataclass(frozen=True, slots=True, kw_only=True)
class Deletion:
    """One pod, counted from 1; all lengths are in seconds.

    ``at_s`` is after all workers have done a step; after the launcher's ``exec``
    where ``starting``. ``period_s`` is terminationGracePeriodSeconds, counted from the deletion;
    SIGTERM follows the hook after ``overtakes_s`` where it does not wait for its end.
    """

    number: int
    starting: bool
    at_s: float
    hook: Hook
    overtakes_s: float
    period_s: float
    save_s: float

    @property
    def window_s(self) -> float:
        """What is left for saving."""
        return self.period_s - MARGIN_S


def draw(pods: int, seed: int) -> tuple[Deletion, ...]:
    """Draw ``pods`` deletions; one in five comes while the launcher still starts."""
    rng = random.Random(f"pods {seed}")
    return tuple(_draw(rng, number) for number in range(1, pods + 1))


def _draw(rng: random.Random, number: int) -> Deletion:
    window_s = rng.uniform(*_WINDOW_S)
    return Deletion(
        number=number,
        starting=number % 5 == 0,
        at_s=rng.uniform(0.0, _LATEST_S),
        hook=list(Hook)[number % len(Hook)],
        overtakes_s=rng.uniform(0.0, _OVERTAKES_S),
        period_s=window_s + MARGIN_S,
        save_s=rng.uniform(0.0, window_s + _LONGER_S),
    )
