"""What the step under way has done so far: its updates, where ranks met in it, and what it has written.

It counts from boundary to boundary, and knows what each step before did. Where a step ends, the script says.
"""

from collections.abc import Callable
from typing import Any

from faultrun.sdk.torch.group.process_group import meetings
from faultrun.sdk.torch.state.boundary import Boundary
from faultrun.sdk.torch.state.rng_recorder import RngRecorder
from faultrun.sdk.torch.state.state_dict import Parts
from faultrun.sdk.torch.state.trees import copied, same
from faultrun.sdk.torch.state.updated import names_differing
from faultrun.sdk.torch.state.whole_steps import StepWrites, WholeSteps

Loader = Callable[[], Any]
"""What tells where the open loader's own random numbers are."""


class StepUnderWay:
    """Counts for one training. Main thread; where said, another, while that stands still.

    ``step`` is everywhere the number that it will have.
    """

    def __init__(self, parts: Parts, recorder: RngRecorder) -> None:
        self._parts, self._recorder = parts, recorder
        self.updates = [0] * len(parts.optimizers)
        """Of each optimizer, since the start."""
        self.whole = WholeSteps()
        self.meets_between_updates = False
        """Whether ranks meet where the state is that of no step, or nobody knows at once that it is."""
        self._changes = 0
        self._met: int | None = None
        self._met_last = 0
        """Values as the first update of a step began, and as the last one ended."""
        self._mark_of_parameters: Any = None
        self._writes: tuple[int, int] | None = None
        """Values at the last boundary; None where nobody looks."""
        self._updated: tuple[Any, ...] | None = None
        """What was written, and how hyperparameters and objects were, as the last update ended."""

    def boundary(self) -> None:
        """A step begins."""
        self._met, self._changes = None, 0
        self._mark_of_parameters = self._parts.updated.mark()
        self._writes = self._parts.buffers.writes() if self.whole.looks else None

    def distrusts_parameters(self) -> None:
        """They are put back: until the next boundary nobody knows what they should be."""
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
            self.meets_between_updates |= self._met_last != self._met

    def has_updated(self, step: int, loader: Loader) -> None:
        """An optimizer has made its update in ``step``, and its random numbers are noted."""
        if self.whole.looks and not self.meets_between_updates:
            objects, groups = self._parts.objects, self._parts.updated.groups()
            states = {} if objects.large else copied(objects.now())
            self._updated = self._written(step, loader), groups, states

    def seen(self, step: int, loader: Loader) -> tuple[int, StepWrites | None]:
        """How often ranks have met behind its last update, and what it has written as ``step``. Any thread.

        None where nobody looks.
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
        if late and not self.meets_between_updates:
            goes_on = self._has_gone_on(now, writes)
            self.meets_between_updates = bool(objects.large) or whole.vary or goes_on

    def is_whole(self, last: Boundary, now: Boundary, step: int, loader: Loader) -> bool:
        """Whether ``now`` is the end of ``step``, all of which is done. Any thread."""
        late, writes = self.seen(step, loader)
        return self.whole.is_whole(last, now, late, self._parts.objects, writes)

    def _has_gone_on(self, now: Boundary, writes: StepWrites | None) -> bool:
        """Whether the step that ended changed anything behind its last update."""
        if (then := self._updated) is None:
            return False
        differ = then[0] != writes or names_differing(then[1], now.groups)
        return bool(differ) or not same(then[2], now.objects)

    def _written(self, step: int, loader: Loader) -> StepWrites | None:
        if (then := self._writes) is None or self._mark_of_parameters is None:
            return None
        parameters = self._parts.updated.mark()[0] - self._mark_of_parameters[0]
        buffers, put = self._parts.buffers.writes()
        drawn = self._recorder.drew_behind_update(step, loader())
        return StepWrites(self._changes, parameters, buffers - then[0], put - then[1], drawn)
