"""Every how many steps a rank's state is copied: as the script says, or as training affords. Pure.

``auto`` begins with a trial: every second step is copied beside training, and steps with and without a copy
are compared. As it ends all ranks tell what would suit them, and all take the longest interval: only if all
copy the same steps is there one that all can go back to.
"""

import math
from collections import deque
from collections.abc import Sequence
from statistics import median
from typing import Literal

from faultrun.errors import FaultrunError

SnapshotEvery = int | Literal["auto"]
AUTO: Literal["auto"] = "auto"

UNKNOWN = 0
"""Stands for an interval that is not known yet."""
_SHARE = 0.005
"""The share of training time that a rank's own copies may cost: 99 % of the speed are promised. Samples
scatter, and a step waits for the slowest of all ranks, each of which is held up by its own copy."""
_TRIAL_EVERY = 2
_TRIAL_STEPS = 20
_FIRST_COPIES = 2
"""They touch new memory, each its own half: an unused page takes longer."""
_LEAST = 4
"""Samples of each kind."""
_MOST = 256
"""Random numbers and batches of so many steps are kept, to do them again."""


def checked(asked: SnapshotEvery) -> SnapshotEvery:
    """``asked``, as ``protect`` was given it. FaultrunError: it cannot be meant."""
    is_number = isinstance(asked, int) and not isinstance(asked, bool)
    if asked == AUTO or (is_number and int(asked) >= 0):
        return asked
    because = "it is every how many steps a shard is copied into memory"
    hint = '"auto", 1 for every step, a larger number, or 0 for no copies'
    raise FaultrunError(f"snapshot_every={asked!r} cannot be meant", because=because, hint=hint)


class SnapshotInterval:
    """Says at which steps a rank is copied. Main thread; ``copy_took`` is for the thread that copies."""

    def __init__(self, asked: SnapshotEvery) -> None:
        self.asked = asked
        self.every = _TRIAL_EVERY if asked == AUTO else asked
        """A copy is made of each step that this divides; 0: of none."""
        self.is_settled = asked != AUTO
        self._until = self._copies = 0
        self._copies_s: deque[float] = deque(maxlen=_TRIAL_STEPS)
        self._sums_s: deque[float] = deque(maxlen=_TRIAL_STEPS)
        self._taken_s: deque[float] = deque(maxlen=_TRIAL_STEPS)
        self._beside_s: deque[float] = deque(maxlen=_TRIAL_STEPS)
        self._alone_s: deque[float] = deque(maxlen=_TRIAL_STEPS)
        self._arrivals_s: deque[float] = deque(maxlen=_TRIAL_STEPS)

    @property
    def redone(self) -> int:
        """How many steps may have to be done again, the one under way included.

        A rank that is killed a step after its last copy began may not have finished it.
        """
        return self.every + 2 if self.every > 1 else 2

    @property
    def told(self) -> int:
        """For the others: the interval, UNKNOWN while it is tried out."""
        return self.every if self.is_settled else UNKNOWN

    def goes_on_after(self, step: int, told: Sequence[int] = ()) -> None:
        """All ranks train from here on. ``told``: by each; what one of them has agreed to holds for all."""
        if not self.is_settled and any(told):
            self.every, self.is_settled = max(told), True
        begins = -(-step // _TRIAL_EVERY) * _TRIAL_EVERY
        self._until = 0 if self.is_settled else begins + _TRIAL_STEPS

    def is_due(self, step: int) -> bool:
        """Whether this step is to be copied."""
        return self.every > 0 and (step % self.every == 0 or step == self._until)

    def is_beside(self, step: int) -> bool:
        """Whether training may go on meanwhile. Not where the next copy comes with the next step.

        Nor where intervals change: the older copy would be written over before all have finished this one.
        """
        return self.every > 1 and step != self._until

    def ends_trial(self, step: int) -> bool:
        """Whether all ranks tell their ``wish`` after this step, and ``settle``."""
        return not self.is_settled and step == self._until

    def step_took(self, took_s: float, *, beside: bool) -> None:
        """A step, and whether a copy was made beside it."""
        if not self.is_settled and self._copies > _FIRST_COPIES:
            (self._beside_s if beside else self._alone_s).append(took_s)

    def copy_took(self, took_s: float, sum_s: float, taken_s: float) -> None:
        """A copy, its checksum, and how much of both another program or thread would have used."""
        self._copies += 1
        if self._copies > _FIRST_COPIES:
            self._copies_s.append(took_s)
            self._sums_s.append(sum_s)
            self._taken_s.append(taken_s)

    def arrival_took(self, took_s: float) -> None:
        """So long training waited until the next node had a copy, the copy's time apart."""
        if not self.is_settled:
            self._arrivals_s.append(took_s)

    @property
    def wish(self) -> int:
        """The interval that suits this rank; UNKNOWN: too little was seen."""
        if min(map(len, (self._copies_s, self._beside_s, self._alone_s))) < _LEAST:
            return UNKNOWN
        step_s, copy_s, sum_s = (median(one) for one in (self._alone_s, self._copies_s, self._sums_s))
        lost_s = max(median(self._beside_s) - step_s, median(self._taken_s))
        arrival_s = median(self._arrivals_s) if self._arrivals_s else None
        return chosen(step_s=step_s, copy_s=copy_s, sum_s=sum_s, lost_s=lost_s, arrival_s=arrival_s)

    def settle(self, wishes: Sequence[int]) -> None:
        """All ranks' wishes at the end of the trial. If one has none yet, it goes on for all."""
        if min(wishes) == UNKNOWN:
            self._until += _TRIAL_STEPS
        else:
            self.every, self.is_settled = max(wishes), True

    def words(self) -> str:
        """What came of the trial, for people; "" if nothing did."""
        if not self.is_settled or not self._copies_s:
            return ""
        copy_ms, step_ms = (1000 * median(one) for one in (self._copies_s, self._alone_s))
        often = "every step" if self.every == 1 else f"every {self.every} steps"
        return (
            f"faultrun: this rank's shard is copied into memory {often} from now on: a copy takes"
            f" {copy_ms:.2f} ms, and a step {step_ms:.2f} ms; snapshot_every of protect() says otherwise"
        )


def chosen(
    *, step_s: float, copy_s: float, lost_s: float, sum_s: float = 0.0, arrival_s: float | None = None
) -> int:
    """The smallest interval that training affords. ``lost_s``: what a copy beside training costs it.

    That is no more than the copy and its checksum take, which is made beside training alone, and waiting
    for the next node, ``arrival_s``; None: none takes copies. They go there beside training, for which there
    is time only if not every step is copied.
    """
    afforded_s = _SHARE * max(step_s, 1e-9)
    if copy_s <= afforded_s and arrival_s is None:
        return 1
    most_s = copy_s + sum_s + (arrival_s or 0.0)
    return min(_MOST, max(_TRIAL_EVERY, math.ceil(min(lost_s, most_s) / afforded_s)))
