"""How often to copy the state: so seldom that it costs less than a given share of the training time.

Replica groups can resume only from a step that each of them has saved, and
each rank measures other costs. So the learnt interval is a power of two, the
longest of any rank counts, and copies fall on global steps that it divides.
"""

from collections import deque
from collections.abc import Callable
from statistics import median

BOUND = 0.01
"""Copies take at most this share of the time of the steps between them."""

_WARM_UP = 3


class Interval:
    """Learns what a copy and a step cost, in seconds, and answers whether a copy is due.

    ``agree`` is told this rank's interval and returns the longest of all ranks.
    """

    def __init__(self, every: int | None, agree: Callable[[int], int] | None = None) -> None:
        if every is not None and every < 1:
            raise ValueError("every counts steps: it must be at least 1")
        self._fixed = every
        self._agree = agree
        self._agreed = 1
        self._copies: deque[float] = deque(maxlen=7)
        self._steps: deque[float] = deque(maxlen=21)
        self._seen = 0

    @property
    def every(self) -> int:
        """Copy once in so many steps, as known so far."""
        if self._fixed is not None:
            return self._fixed
        return self._agreed

    @property
    def step_s(self) -> float:
        """What a step usually takes, copies left out; 0 before one is known."""
        return median(self._steps) if self._steps else 0.0

    @property
    def copy_s(self) -> float:
        """What a copy usually takes; 0 before one was made."""
        return median(self._copies) if self._copies else 0.0

    def stepped(self, step: int, took_s: float) -> bool:
        """Global ``step`` took so long (the first, which compiles, is not counted); whether to copy now."""
        self._seen += 1
        if self._seen > 1:
            self._steps.append(took_s)
        if self._fixed is None:
            own = self._affordable()
            self._agreed = max(own, self._agree(own)) if self._agree is not None else own
        return step % self.every == 0

    def copied(self, took_s: float) -> None:
        """A copy was made, and took so long."""
        if self._seen > 1:
            self._copies.append(took_s)

    def _affordable(self) -> int:
        """The least power of two of steps that are worth a copy."""
        if not self._copies or len(self._steps) < _WARM_UP:
            return 1
        worth = median(self._copies) / (BOUND * max(median(self._steps), 1e-9))
        every = 1
        while every < worth:
            every *= 2
        return every
