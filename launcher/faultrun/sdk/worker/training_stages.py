"""Several trainings in one script, one after the other: the recovery point is of one of them.

faultrun hands over one point for the whole process, the one of the largest step below ``--checkpoint_dir``.
Which training it belongs to, only the folder tells that it lies in.
"""

import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from faultrun.errors import CannotNow
from faultrun.sdk.session import ResumePoint

_ONE_EACH = "run each training by a faultrun command and with a --checkpoint_dir of its own"


@dataclass(frozen=True, slots=True)
class TrainingFolders:
    """Where a training saves: the very folders that hold its checkpoints, and the one of its gasps."""

    saves: frozenset[Path]
    gasps: Path

    def holds(self, path: str | os.PathLike[str]) -> bool:
        """Whether a checkpoint there is of this training. Links are followed."""
        real = Path(os.path.realpath(path))
        return real.parent in self.saves or real.parent.parent == self.gasps

    def meets(self, other: "TrainingFolders") -> bool:
        """Whether the checkpoints of the two cannot be told apart."""
        return self.gasps == other.gasps or bool(self.saves & other.saves)


def saving_in(saves: Iterable[str | os.PathLike[str]], gasps: str | os.PathLike[str]) -> TrainingFolders:
    """The place that these paths lead to."""
    return TrainingFolders(
        saves=frozenset(Path(os.path.realpath(one)) for one in saves), gasps=Path(os.path.realpath(gasps))
    )


class Stages:
    """The trainings of this process so far. Main thread only."""

    def __init__(self, point: ResumePoint | None) -> None:
        self._point = point
        self._now: TrainingFolders | None = None
        self._ended: list[TrainingFolders] = []
        self._taken_by: TrainingFolders | None = None

    @property
    def any_ended(self) -> bool:
        """Whether a training was over before."""
        return bool(self._ended)

    def is_used_up(self) -> bool:
        """Whether a training that is over went on from the point, which lay in its own folder."""
        taker = self._taken_by
        return self._point is not None and taker in self._ended and taker.holds(self._point.path)

    def begins(self, place: TrainingFolders, resumes_from: str | os.PathLike[str] | None) -> None:
        """A training begins. FaultrunError where it, or one before, may go on from another's point."""
        self._now = place
        if self._point is None:
            if any(map(place.meets, self._ended)):
                told(
                    "a second training of this script saves in the same folders: no restart could tell"
                    " their checkpoints apart, and it would end with an error; give each its own"
                )
            return
        real = os.path.realpath(self._point.path)
        takes = resumes_from is not None and os.path.realpath(resumes_from) == real
        if self._ended:
            self._check(place, takes)
        if takes:
            self._taken_by = place

    def ends(self) -> None:
        """The training is over."""
        if self._now is not None and self._now not in self._ended:
            self._ended.append(self._now)

    def _check(self, place: TrainingFolders, takes: bool) -> None:
        assert self._point is not None
        taker = self._taken_by
        why = ""
        if any(map(place.meets, self._ended)):
            why = "an earlier training of this script saves in the same folders, and it may be of either"
        elif takes and taker is not None:
            why = "an earlier training of this script went on from it already"
        elif taker is not None and not taker.holds(self._point.path):
            why = "an earlier training went on from it, and it lies elsewhere than that one saves"
        if why:
            raise CannotNow(
                f"{self._point.path} is not known to be of this training", because=why, hint=_ONE_EACH
            )


def told(words: str) -> None:
    """The worker's log is where the user of a callback looks."""
    print(f"faultrun: {words}", file=sys.stderr, flush=True)  # noqa: T201
