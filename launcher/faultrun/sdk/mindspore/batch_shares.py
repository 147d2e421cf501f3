"""The global batch of a world that may become smaller: the same steps of the same samples, in parts.

The order of an epoch is that of the whole world (``faultrun.sdk.stay.batch_shares``). A step stays one call
of the training network, so that callbacks, schedules and places in an epoch count what they always counted.
"""

import os
from collections.abc import Iterator
from typing import Any

import numpy as np
from mindspore import nn, ops

from faultrun.errors import FaultrunError
from faultrun.sdk.session import read_identity
from faultrun.sdk.stay.batch_shares import Sharing


class SharedBatches:
    """The batches of this rank, by the numbers of their samples: a ``batch_sampler`` of ``GeneratorDataset``.

        batches = sdk.mindspore.SharedBatches(len(rows), 32, seed=1)
        data = ds.GeneratorDataset(rows, ["x", "y"], batch_sampler=batches)
        data.set_init_step(point.step)  # where training resumes, as without it
        model = ms.Model(batches.train_step(nn.WithLossCell(network, loss), optimizer))

    ``samples``: how many there are; ``batch``: how many a rank takes when all are there. Epochs are shuffled
    by ``seed``, None: not. What does not fill a step of all ranks is left out, as with ``drop_remainder``.
    Each pass over it is the next epoch, so one iterator serves all of them, as in ``Model.train``.

    FaultrunError: there is not one step in an epoch.
    """

    def __init__(self, samples: int, batch: int, *, seed: int | None = None) -> None:
        session = read_identity(os.environ)
        full, world = session.batch_ranks, session.world_size
        self.sharing = Sharing(full=full, world=world, rank=session.rank)
        self._samples, self._batch, self._seed = samples, batch, seed
        steps = 0 if batch < 1 else samples // (full * batch)
        if steps < 1:
            because = f"{samples} samples do not fill batches of {batch} for {full} ranks"
            hint = "give as batch what one rank takes in a step, at most samples / ranks"
            raise FaultrunError("SharedBatches has no step in an epoch", because=because, hint=hint)
        self._steps = steps
        self._epoch = 0

    def __len__(self) -> int:
        """Steps in an epoch."""
        return self._steps

    def __iter__(self) -> Iterator[list[int]]:
        """The samples of each step that this rank computes. MindSpore asks anew for the epochs it skips."""
        order, total = self._order(self._epoch), self._steps * self.sharing.full * self._batch
        self._epoch += 1
        for step in range(self._steps):
            parts = self.sharing.share(step, total, self._batch)
            yield [int(order[place]) for part in parts if part.weight for place in part.positions]

    def train_step(self, network: Any, optimizer: Any, sens: float | None = None) -> Any:
        """``nn.TrainOneStepCell`` of ``network``, which ends in the loss, for what this rank has of a step.

        With ranks left out it adds up the gradients of as many parts as keep each within ``batch``, and
        returns this rank's share of the loss: the mean over ranks is the loss of the step. ``sens`` as there.
        """
        if self.sharing.world == self.sharing.full:
            return nn.TrainOneStepCell(network, optimizer, sens)
        return _StepInParts(network, optimizer, sens, self.sharing, self.sharing.full * self._batch)

    def _order(self, epoch: int) -> Any:
        if self._seed is None:
            return np.arange(self._samples)
        return np.random.default_rng((self._seed, epoch)).permutation(self._samples)


class _StepInParts(nn.TrainOneStepCell):  # type: ignore[misc]  # MindSpore has no types
    """A step of which this rank computes more than it did: in parts, with one update."""

    def __init__(
        self, network: Any, optimizer: Any, sens: float | None, sharing: Sharing, global_batch: int
    ) -> None:
        super().__init__(network, optimizer, 1.0 if sens is None else sens)
        self.parts = sharing.parts
        self.of_all = sharing.world / global_batch
        self.add = ops.Add()
        self.over_all = ops.HyperMap()

    def construct(self, *inputs: Any) -> Any:
        """Compute the step in parts: the mean of a part weighs its share of the step; ranks are averaged."""
        size = inputs[0].shape[0]
        parts = self.parts if size > self.parts else size
        total = 0.0
        grads = inputs[:0]
        for number in range(parts):
            first, last = number * size // parts, (number + 1) * size // parts
            part = inputs[:0]
            for one in inputs:
                part += (one[first:last],)
            weight = (last - first) * self.of_all
            loss = self.network(*part)
            sens = ops.fill(loss.dtype, loss.shape, self.sens * weight)
            more = self.grad(self.network, self.weights)(*part, sens)
            grads = more if number == 0 else self.over_all(self.add, grads, more)
            total = total + loss * weight
        grads = self.grad_reducer(grads)
        return ops.depend(total, self.optimizer(grads))
