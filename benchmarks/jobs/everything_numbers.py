"""A training whose every bit is known beforehand: what each sample adds, and the weights after each step.

A gradient does not depend on the weights, and all numbers are small and whole, so that sums are the same in
any order, for any number of ranks. The weights of a step are therefore right only if each step before it was
done once, with its own samples.
"""

import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np

LAYERS, ROWS, COLUMNS, BATCH = 3, 6, 16, 2
STEPS_AN_EPOCH = 40
MOMENTUM = 0.5
_SPREAD = 6 * BATCH
"""By this much a part of a mean over 1, 2, 3 or 6 ranks, and over a batch, is a whole number."""

Array = Any


def inputs(samples: Sequence[int]) -> Array:
    """A row of ``COLUMNS`` for each."""
    numbers = np.asarray(samples, dtype=np.int64)[:, None]
    return ((numbers * 31 + np.arange(COLUMNS) * 17 + numbers // 7) % 7 - 3).astype(np.float64)


def factors(samples: Sequence[int], epoch: int) -> Array:
    """What its outputs are multiplied with, another in each epoch: a row of ``LAYERS * ROWS``."""
    numbers = np.asarray(samples, dtype=np.int64)[:, None]
    return _SPREAD * ((numbers * 13 + epoch * 29 + np.arange(LAYERS * ROWS) * 11) % 5 - 2).astype(np.float64)


def samples_of(step: int, rank: int, world: int) -> list[int]:
    """What a rank reads in a step (from 1), as torch's DistributedSampler deals it out unshuffled."""
    first = (step - 1) % STEPS_AN_EPOCH * BATCH
    return [(first + one) * world + rank for one in range(BATCH)]


def epoch_of(step: int) -> int:
    """From 0."""
    return (step - 1) // STEPS_AN_EPOCH


def gradient(step: int, world: int) -> Array:
    """Of all ranks together: ``LAYERS * ROWS`` by ``COLUMNS``."""
    samples = [one for rank in range(world) for one in samples_of(step, rank, world)]
    return factors(samples, epoch_of(step)).T @ inputs(samples) / len(samples)


class Truth:
    """The weights and the momentum after each step of a training of ``world`` ranks that nobody disturbs."""

    def __init__(self, world: int) -> None:
        self._world = world
        zero = np.zeros((LAYERS * ROWS, COLUMNS))
        self._states: list[tuple[Array, Array]] = [(zero, zero)]

    def after(self, step: int) -> tuple[Array, Array]:
        """Weights and momentum."""
        while len(self._states) <= step:
            weights, momentum = self._states[-1]
            momentum = momentum * MOMENTUM + gradient(len(self._states), self._world)
            self._states.append((weights - momentum, momentum))
        return self._states[step]

    def loss(self, step: int, rank: int) -> float:
        """Of one rank, before the update of this step."""
        samples = samples_of(step, rank, self._world)
        outputs = inputs(samples) @ self.after(step - 1)[0].T
        return float((outputs * factors(samples, epoch_of(step))).sum() / BATCH)


def digest(weights: Sequence[Array], momentum: Sequence[Array]) -> str:
    """Of every bit of both, layer by layer."""
    found = 0
    for one in (*weights, *momentum):
        found = zlib.crc32(np.ascontiguousarray(one + 0.0).tobytes(), found)  # there is but one zero
    return f"{found:08x}"


def share_of(state: Array, rank: int, shards: int) -> list[Array]:
    """The rows of each layer that a rank holds, where layers are cut into ``shards`` parts."""
    each = ROWS // shards
    return [layer[rank * each : (rank + 1) * each] for layer in state.reshape(LAYERS, ROWS, COLUMNS)]


def row(sample: int) -> Array:
    """What it adds to the gradient of MindSpore's one layer."""
    return (_SPREAD * ((sample * 5 + np.arange(COLUMNS) * 3 + sample // 11) % 9 - 3)).astype(np.float32)


class Sums:
    """The weights of the training with MindSpore after each step: one sample a rank and step."""

    def __init__(self, world: int) -> None:
        self._world = world
        each = range(STEPS_AN_EPOCH * world)
        rows = np.stack([row(one) for one in each]).astype(np.float64)
        means = rows.reshape(STEPS_AN_EPOCH, world, COLUMNS).mean(1)
        self._within = np.concatenate([np.zeros((1, COLUMNS)), means.cumsum(0)])

    def after(self, step: int) -> Array:
        """As MindSpore holds them."""
        epochs, steps = divmod(step, STEPS_AN_EPOCH)
        return (-(self._within[-1] * epochs + self._within[steps])).astype(np.float32)

    def step_of(self, weights: Array) -> int:
        """Which step has these; -1: none."""
        total, epoch = float(weights.sum(dtype=np.float64)), float(self._within[-1].sum())
        first = max(0, int(-total / epoch) - 2) * STEPS_AN_EPOCH if epoch else 0
        steps = range(first, first + 5 * STEPS_AN_EPOCH)
        return next((step for step in steps if np.array_equal(self.after(step), weights)), -1)
