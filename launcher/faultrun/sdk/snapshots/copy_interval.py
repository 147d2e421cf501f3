"""Every how many steps the main thread copies a state: so seldom that 99 % of the speed are left. Pure."""

import math
from collections import deque
from collections.abc import Callable
from statistics import median

_COPY_SHARE = 0.01
"""Copies take at most this share of the time of the steps between them."""
_WARM_UP = 3


class CopyInterval:
    """How often to copy the state: so seldom that it costs less than a given share of the training time.

    Learns what a copy and a step cost, in seconds. Replica groups can resume only from a step that each of
    them has saved, and each rank measures other costs. So the learnt interval is a power of two, the
    longest of any rank counts (``agree`` is told this rank's and returns that), and copies fall on global
    steps that it divides.
    """

    def __init__(self, every: int | None, agree: Callable[[int], int] = lambda steps: steps) -> None:
        if every is not None and every < 1:
            raise ValueError("every counts steps: it must be at least 1")
        self._fixed = every is not None
        self._agree = agree
        self._copies: deque[float] = deque(maxlen=7)
        self._steps: deque[float] = deque(maxlen=21)
        self._seen = 0
        self.every = every or 1
        """Copy once in so many steps, as known so far."""

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
        if not self._fixed:
            known = len(self._steps) >= _WARM_UP
            worth = self.copy_s / (_COPY_SHARE * max(self.step_s, 1e-9)) if known else 1.0
            own = 1 << math.ceil(math.log2(max(worth, 1.0)))
            self.every = max(own, self._agree(own))
        return step % self.every == 0

    def copied(self, took_s: float) -> None:
        """A copy was made, and took so long."""
        if self._seen > 1:
            self._copies.append(took_s)
