"""How often to copy the state: so seldom that it costs less than a given share of the training time."""

import math
from collections import deque
from statistics import median

BOUND = 0.01
"""Copies take at most this share of the time of the steps between them."""

_WARM_UP = 3


class Interval:
    """Learns what a copy and a step cost, in seconds, and answers whether a copy is due."""

    def __init__(self, every: int | None) -> None:
        if every is not None and every < 1:
            raise ValueError("every counts steps: it must be at least 1")
        self._fixed = every
        self._copies: deque[float] = deque(maxlen=7)
        self._steps: deque[float] = deque(maxlen=21)
        self._since = 0
        self._seen = 0

    @property
    def every(self) -> int:
        """Copy once in so many steps, as known so far."""
        if self._fixed is not None:
            return self._fixed
        if not self._copies or len(self._steps) < _WARM_UP:
            return 1
        return max(1, math.ceil(median(self._copies) / (BOUND * max(median(self._steps), 1e-9))))

    @property
    def step_s(self) -> float:
        """What a step usually takes, copies left out; 0 before one is known."""
        return median(self._steps) if self._steps else 0.0

    @property
    def copy_s(self) -> float:
        """What a copy usually takes; 0 before one was made."""
        return median(self._copies) if self._copies else 0.0

    def stepped(self, took_s: float) -> bool:
        """A step took so long (the first, which compiles, is not counted); whether to copy now."""
        self._seen += 1
        if self._seen > 1:
            self._steps.append(took_s)
        self._since += 1
        return self._since >= self.every

    def copied(self, took_s: float) -> None:
        """A copy was made, and took so long."""
        if self._seen > 1:
            self._copies.append(took_s)
        self._since = 0
