"""When a rank's shard is copied into its memory, and by whom: at the steps of an interval, beside training.

The thread that copies reads the state of a boundary while the main thread goes on up to its next update,
where it waits for the copy (``UpdateLock.lend``). Where every step is copied, the main thread does it: two
copies are enough only if one is whole before any rank can begin the next.
"""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from faultrun.sdk.snapshots.copy_thread import Copier
from faultrun.sdk.snapshots.interval import SnapshotInterval
from faultrun.sdk.torch.state.boundary import Boundary, passes
from faultrun.sdk.torch.state.rng import Rng
from faultrun.sdk.torch.state.state_dict import assemble
from faultrun.sdk.torch.training import Training

_DEVICE_BEHIND_S = 60.0

_State = dict[str, Any]


@dataclass(slots=True)
class ShardCopies:
    """Copies one rank's shard. Main thread. ``write`` puts a state into memory; ``failed`` is told why not.

    ``arrived`` waits until the next node has the newest copy, where there is one that takes it.
    ``summed`` puts a checksum to the copy of a step, for which there is time beside training only.
    """

    _training: Training
    _interval: SnapshotInterval
    _write: Callable[[Boundary, _State], None]
    _summed: Callable[[int], None]
    _failed: Callable[[str], None]
    _arrived: Callable[[], None]
    _copier: Copier | None = None
    _stepped_s: float = 0.0
    _is_beside: bool = False

    def stepped(self, *, there: bool) -> None:
        """A step is complete. ``there``: whether there is memory to copy it into."""
        boundary, interval = self._training.history[-1], self._interval
        step = boundary.position.step
        if there and interval.is_due(step + 1) and not interval.is_due(step):
            self._arrived()
        now_s = time.perf_counter()
        if self._stepped_s:
            interval.step_took(now_s - self._stepped_s, beside=self._is_beside)
        self._stepped_s, self._is_beside = now_s, False
        if not there or not interval.is_due(step):
            return
        self.wait()
        if interval.is_beside(step):
            self._is_beside = True
            self._begin(boundary)
        else:
            self._write(boundary, self._training.state_at(boundary))
            if interval.is_due(step + 1):
                self._arrived()

    def copy_now(self, *, there: bool) -> None:
        """Copy the newest boundary, and wait for that: the script will not come back to an older one."""
        if there and self._interval.every:
            self.wait()
            boundary = self._training.history[-1]
            self._write(boundary, self._training.state_at(boundary))
        self._stepped_s = 0.0

    def goes_on(self) -> None:
        """The way to here was no training."""
        self._stepped_s = 0.0
        self._training.redo.kept = self._interval.redone

    def wait(self) -> None:
        """Until no copy is under way."""
        if self._copier is not None:
            self._copier.wait()

    def _begin(self, boundary: Boundary) -> None:
        if self._copier is None:
            self._copier = Copier(self._failed)
            self._copier.start()
        training = self._training
        numbers = training.recorder.read(boundary.rng), boundary.epoch_rng
        training.lock.lend()
        self._copier.begin(partial(self._copy, boundary, numbers))

    def _copy(self, boundary: Boundary, numbers: tuple[Rng, Rng | None]) -> None:
        """In the thread that copies."""
        training, began_s, began_busy_s = self._training, time.perf_counter(), time.thread_time()
        try:
            passage = boundary.passage
            if passage is not None and not passes(passage.done, _DEVICE_BEHIND_S):
                return
            state = assemble(training.parts, boundary, boundary, numbers, training.writer.session)
            self._write(boundary, training.parts.device.to_host(state))
            took_s = time.perf_counter() - began_s
        finally:
            training.lock.give_back()
        self._summed(boundary.position.step)
        sum_s = time.perf_counter() - began_s - took_s
        busy_s = time.thread_time() - began_busy_s
        self._interval.copy_took(took_s, sum_s, 0.0 if self._has_idle_cores() else busy_s)

    def _has_idle_cores(self) -> bool:
        """Whether each rank here has a core for copies besides those that it computes on."""
        on_cpu = self._training.parts.device.mark is None
        each = 1 + (torch.get_num_threads() if on_cpu else 1)
        return len(os.sched_getaffinity(0)) >= each * self._training.writer.session.local_world_size
