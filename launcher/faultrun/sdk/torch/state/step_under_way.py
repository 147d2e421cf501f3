"""What the step under way has done so far, and whether it is whole though the script has not ended it.

The script alone knows where its steps end. A rank that stands behind an update, for a peer that is gone, is
taken to have ended its step if the updates, the changes of objects and the meetings of each earlier one were
the same, and all these have been made again; so, too, what is written to parameters and buffers, and which
hyperparameters change, and whether random numbers are drawn behind the last update. Where steps differ, or
one did nothing yet, nothing is taken so.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from faultrun.sdk.torch.group.process_group import meetings
from faultrun.sdk.torch.state.boundary import Boundary, Objects
from faultrun.sdk.torch.state.rng_recorder import RngRecorder
from faultrun.sdk.torch.state.state_dict import Parts
from faultrun.sdk.torch.state.trees import copied, same
from faultrun.sdk.torch.state.updated import names_differing
from faultrun.sdk.worker.training_stages import told

Loader = Callable[[], Any]
"""What tells where the open loader's own random numbers are."""


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


class StepUnderWay:
    """Counts for one training. Main thread; where said, another, while that stands still.

    ``step`` is everywhere the number that it will have.
    """

    def __init__(self, parts: Parts, recorder: RngRecorder) -> None:
        self._parts, self._recorder = parts, recorder
        self.updates = [0] * len(parts.optimizers)
        """Counted for each optimizer, since the start."""
        self.whole = WholeSteps()
        self._between = self._is_unknown = self._is_known = False
        """Whether ranks meet where the state is that of no step; and where it is unknown yet whether they do:
        some steps meet behind their last update, and what these do there was not looked at."""
        self._changes = 0
        self._met: int | None = None
        self._met_last = 0
        """Values as the first update of a step began, and as the last one ended."""
        self._mark_of_parameters: Any = None
        self._writes: tuple[int, int] | None = None
        """Values at the last boundary; None where it is not looked at."""
        self._updated: tuple[Any, ...] | None = None
        """What was written, and how all that may change was, as the last update ended."""

    @property
    def keeps_copies(self) -> bool:
        """Whether each last step is to be copied, for survivors may stand where the state is that of none."""
        return self._between or self._is_unknown

    def changes_early(self) -> None:
        """Parameters were changed before the update."""
        self._between = True

    def boundary(self) -> None:
        """A step begins."""
        self._met, self._changes = None, 0
        self._mark_of_parameters = self._parts.updated.boundary()
        self._writes = self._parts.buffers.writes() if self.whole.looks else None

    def distrusts_parameters(self) -> None:
        """They are put back: until the next boundary it is unknown what they should be."""
        self._mark_of_parameters = None

    def begins_change(self) -> None:
        """An update, or another change of parameters, begins."""
        if self._met is None:
            self._met = meetings()

    def ends_change(self) -> None:
        """It is made."""
        self._changes += 1
        if self._met is not None:
            self._met_last = meetings()
            self._between |= self._met_last != self._met

    def has_updated(self, step: int, loader: Loader) -> None:
        """An optimizer has made its update in ``step``, and its random numbers are noted."""
        if self.whole.looks and not self._between:
            objects, updated = self._parts.objects, self._parts.updated
            states = {} if objects.large else copied(objects.now())
            self._updated = self._written(step, loader), updated.mark(), updated.groups(), states

    @property
    def waits(self) -> bool:
        """Whether ranks have met behind the last update, and so it may wait for a peer. Any thread."""
        return self._met is not None and meetings() != self._met_last

    def seen(self, step: int, loader: Loader) -> tuple[int, StepWrites | None]:
        """How often ranks have met behind its last update, and what it has written as ``step``. Any thread.

        None where it is not looked at.
        """
        return 0 if self._met is None else meetings() - self._met_last, self._written(step, loader)

    @property
    def has_changed_parameters(self) -> bool:
        """Whether parameters are not as at the last boundary. Any thread."""
        mark = self._mark_of_parameters
        return mark is not None and bool(self._parts.updated.mark() != mark)

    def ended(self, last: Boundary | None, now: Boundary, late: int, writes: StepWrites | None) -> None:
        """The script has ended it at ``now``: ranks had met ``late``, and it had made these ``writes``."""
        objects, whole = self._parts.objects, self.whole
        if last is not None and now.position.step == last.position.step + 1:
            whole.ended(last, now, late, objects, writes)
            if whole.looks and self._writes is None:
                self._writes = self._parts.buffers.writes()
        if late and not self._between:
            self._is_known |= self._updated is not None
            goes_on = self._has_gone_on(now, writes)
            self._between = bool(objects.large) or whole.vary or goes_on
        self._is_unknown = whole.meet_in_some and not self._is_known

    def is_whole(self, last: Boundary, now: Boundary, step: int, loader: Loader) -> bool:
        """Whether ``now`` is the end of ``step``, all of which is done. Any thread."""
        late, writes = self.seen(step, loader)
        return self.whole.is_whole(last, now, late, self._parts.objects, writes)

    def _has_gone_on(self, now: Boundary, writes: StepWrites | None) -> bool:
        """Whether the step that ended changed anything behind its last update."""
        if (then := self._updated) is None:
            return False
        written, mark, groups, objects = then
        has_moved = mark != self._mark_of_parameters
        self.whole.vary |= has_moved and written == writes  # it could not be counted how much of it is done
        differ = has_moved or written != writes or names_differing(groups, now.groups)
        return bool(differ) or not same(objects, now.objects)

    def _written(self, step: int, loader: Loader) -> StepWrites | None:
        if (then := self._writes) is None or self._mark_of_parameters is None:
            return None
        parameters = self._parts.updated.mark()[0] - self._mark_of_parameters[0]
        buffers, put = self._parts.buffers.writes()
        drawn = self._recorder.drew_behind_update(step, loader())
        return StepWrites(self._changes, parameters, buffers - then[0], put - then[1], drawn)


class WholeSteps:
    """What the steps so far did. Main thread; ``is_whole`` also another, while that stands still."""

    def __init__(self) -> None:
        self._updates: tuple[int, ...] = ()
        self.vary = False
        """Whether not all steps made the same updates."""
        self.meet_late = 0
        """How often ranks meet behind the last update of a step, at most."""
        self.meet_in_some = False
        """Whether they do so in some steps, and not in all."""
        self._met: int | None = None
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
        self.meet_in_some |= self._met not in (None, met)
        self._met, self.meet_late = met, max(self.meet_late, met)
        if met and written is not None:
            self.vary |= self._written not in (None, written)
            self._written = written
            self._hyperparameters |= names_differing(last.groups, now.groups)
        if not now.objects.keys() <= self._moving:
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
    return tuple([there - here for here, there in zip(last.updates, now.updates, strict=True)])
