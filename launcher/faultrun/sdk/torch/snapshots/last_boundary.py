"""The last boundary of a replica, copied: what can be saved where the living state is between two.

Survivors of a killed rank stand there if ranks meet between the first update of a step and its last: in a
step with several updates, or in an optimizer that talks to its peers. All others need no copy.
"""

import time
from collections.abc import Callable
from typing import Any

from faultrun.sdk.snapshots.copy_interval import CopyInterval
from faultrun.sdk.snapshots.interval import AUTO, SnapshotEvery
from faultrun.sdk.torch.state.boundary import Boundary, passes
from faultrun.sdk.torch.state.rng import rng_to_plain
from faultrun.sdk.torch.state.trees import SMALL_BYTES, bytes_in, copied
from faultrun.sdk.torch.training import Training
from faultrun.sdk.worker.training_stages import told
from faultrun.sdk.worker.worker import Worker


class LastBoundary:
    """Copies the last boundary of one rank. Main thread. ``every``: steps, as ``protect`` was told; not 0.

    ``state`` makes what a save of that boundary holds, by default what ``Training.load`` takes.
    """

    def __init__(
        self,
        training: Training,
        worker: Worker,
        every: SnapshotEvery = AUTO,
        state: Callable[[Boundary], Any] | None = None,
    ) -> None:
        self._training, self._state = training, state or training.host_state_at
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
            self.keeps()
            interval.copied(time.perf_counter() - began_s)
        self._went_on_s = time.perf_counter()

    def keeps(self, most_bytes: int | None = None) -> None:
        """Copy it now, if there is room and it has no more bytes: what follows may change it."""
        training = self._training
        if most_bytes is not None and bytes_in(training.state_at(training.history[-1])) > most_bytes:
            return
        try:
            if self._has_room:
                self._copy()
        except (MemoryError, RuntimeError) as error:
            self._has_room = False
            told(f"no copy of the last step is kept beside training: {error}")

    @property
    def is_kept(self) -> bool:
        """Whether the newest boundary is."""
        kept = self._training.kept
        return kept is not None and kept[0] is self._training.history[-1]

    def draws(self) -> None:
        """Random numbers were drawn since, which belong to it."""
        training = self._training

        def renew() -> None:
            if training.kept is not None and self.is_kept:
                slot = training.kept[0].rng
                training.recorder.record(slot, training.position, training.reading.loader_state())
                training.kept[1]["rng"] = rng_to_plain(training.recorder.read(slot))

        training.lock.boundary(renew)

    def lets_go(self) -> None:
        """All is as it was: forget the copy, unless steps need one."""
        if not self._training.under_way.keeps_copies:
            self._training.kept = None

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
        state = copied(self._state(boundary))
        self._is_small = self._is_learnt and bytes_in(state) <= SMALL_BYTES
        training.kept = boundary, state
        training.recorder.keep_copied(boundary.rng)
