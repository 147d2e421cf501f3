"""Whether a step is whole that the script has not ended: if all is done that each step before it did.

The script alone knows where its steps end. A rank that stands behind an update, for a peer that is gone, is
taken to have ended its step if the updates, the changes of objects and the meetings of each earlier one were
the same, and all these have been made again; so, too, what is written to parameters and buffers, and which
hyperparameters change, and whether random numbers are drawn behind the last update. Where steps differ, or
one did nothing yet, nothing is taken so.
"""

from typing import NamedTuple

from faultrun.sdk.torch.state.boundary import Boundary, Objects
from faultrun.sdk.torch.state.trees import same
from faultrun.sdk.torch.state.updated import names_differing
from faultrun.sdk.worker.training_stages import told


class StepWrites(NamedTuple):
    """What was done since the last boundary, as far as it is counted.

    ``changes`` ended; writes to ``parameters`` and to ``buffers``, and buffers that were ``put`` anew;
    whether anything was ``drawn`` behind the last update, None where that was not noted.
    """

    changes: int
    parameters: int
    buffers: int
    put: int
    drawn: bool | None


class WholeSteps:
    """What the steps so far did. Main thread; ``is_whole`` also another, while that stands still."""

    def __init__(self) -> None:
        self._updates: tuple[int, ...] = ()
        self.vary = False
        """Whether not all steps made the same updates."""
        self.meet_late = 0
        """How often ranks meet behind the last update of a step, at most."""
        self._moving: set[str] = set()
        self._written: StepWrites | None = None
        self._hyperparameters: set[str] = set()

    @property
    def looks(self) -> bool:
        """Whether it is to be known what a step has written."""
        return bool(self.meet_late)

    def ended(
        self, last: Boundary, now: Boundary, met: int, objects: Objects, written: StepWrites | None
    ) -> None:
        """The script has ended a step, which began at ``last``; ranks have ``met`` behind its last update."""
        made = _made(last, now)
        self.vary |= self._updates not in ((), made)
        self._updates = made
        if met and not self.meet_late:
            told(
                f"ranks meet in step {now.position.step} behind its last update, before guard.step() or its"
                " end: of a fault there it is taken that a step does what each one before it did"
            )
        self.meet_late = max(self.meet_late, met)
        if met and written is not None:
            self.vary |= self._written not in (None, written)
            self._written = written
            self._hyperparameters |= names_differing(last.groups, now.groups)
        known = self._moving | objects.large
        self._moving |= {
            name
            for name, one in now.objects.items()
            if name not in known and not same(last.objects[name], one)
        }

    def is_whole(
        self, last: Boundary, now: Boundary, met: int, objects: Objects, written: StepWrites | None
    ) -> bool:
        """``now`` is taken after an update, and has no tensor with ``last`` in common."""
        made, moving = _made(last, now), self._moving | objects.large
        return (
            made == self._updates
            and not self.vary
            and 0 not in made
            and last.trained == now.trained  # else some may be frozen for a part of the step
            and met <= self.meet_late
            and (not met or self._is_as_ever(last, now, written))
            and not any(same(last.objects[name], now.objects[name]) for name in moving)
        )

    def _is_as_ever(self, last: Boundary, now: Boundary, written: StepWrites | None) -> bool:
        is_known = written is not None and written.drawn is not None and written == self._written
        return is_known and names_differing(last.groups, now.groups) <= self._hyperparameters


def _made(last: Boundary, now: Boundary) -> tuple[int, ...]:
    return tuple(there - here for here, there in zip(last.updates, now.updates, strict=True))
