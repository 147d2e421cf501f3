"""The last boundary of a replica, copied: what can be saved where the living state is between two.

Survivors of a killed rank stand there if ranks meet between the first update of a step and its last: in a
step with several updates, or in an optimizer that talks to its peers. All others need no copy.
"""

import time

from faultrun.sdk.snapshots.copy_interval import CopyInterval
from faultrun.sdk.snapshots.interval import AUTO, SnapshotEvery
from faultrun.sdk.torch.state.boundary import passes
from faultrun.sdk.torch.state.trees import SMALL_BYTES, bytes_of, copied, map_tensors
from faultrun.sdk.torch.training import Training
from faultrun.sdk.worker.training_stages import told
from faultrun.sdk.worker.worker import Worker


class LastBoundary:
    """Copies the last boundary of one rank. Main thread. ``every``: steps, as ``protect`` was told; not 0."""

    def __init__(self, training: Training, worker: Worker, every: SnapshotEvery) -> None:
        self._training = training
        self._interval = CopyInterval(None if every == AUTO else every, worker.agree_on_interval)
        self._is_learnt, self._is_small = every == AUTO, False
        self._has_room = True
        self._went_on_s = time.perf_counter()

    def stepped(self) -> None:
        """A step is complete: copy it, if it is one of those."""
        training, interval = self._training, self._interval
        if not training.under_way.keeps_copies or not self._has_room:
            training.kept = None
            return
        began_s = time.perf_counter()
        due = interval.stepped(training.position.step, began_s - self._went_on_s)
        if due or self._is_small or training.kept is None:
            try:
                self._copy()
            except (MemoryError, RuntimeError) as error:
                self._has_room = False
                told(f"no copy of the last step is kept beside training: {error}")
            interval.copied(time.perf_counter() - began_s)
        self._went_on_s = time.perf_counter()

    def renews(self) -> None:
        """More belongs to the newest boundary than when it was copied, if it was."""
        training = self._training
        if training.kept is not None and training.kept[0].position == training.history[-1].position:
            self._copy()

    def _copy(self) -> None:
        training = self._training
        boundary, training.kept = training.history[-1], None
        if boundary.passage and not passes(boundary.passage.done, timeout_s=60):
            return
        state = copied(training.host_state_at(boundary))
        sizes: list[int] = []
        map_tensors(state, lambda tensor: sizes.append(bytes_of(tensor)))
        self._is_small = self._is_learnt and sum(sizes) <= SMALL_BYTES
        training.kept = boundary, state
        training.recorder.keep_copied(boundary.rng)
