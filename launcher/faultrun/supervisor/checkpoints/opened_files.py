"""What was read of checkpoints before a life began to train. Asks no process.

The kernel names no process. What is read while no rank lives is read by others (an evaluation, a copy to
another store), and another run in the folder reads, too: then it is unknown what the script has opened.
"""

from faultrun.checkpoints.saves.save_names import is_of_a_save
from faultrun.model.checkpoint import RecoveryPoint
from faultrun.model.observed.saves import BY_OTHERS


class OpenedFiles:
    """Files that one life has opened, from its plan on; before that, our own look for a checkpoint reads."""

    def __init__(self) -> None:
        self.point: RecoveryPoint | None = None
        self._paths: dict[str, None] = {}
        self._waits = self._by_others = False

    def begin(self, point: RecoveryPoint | None, *, shared: bool = False) -> None:
        """A life is planned that is to begin at ``point``; ``shared``: with another run in the folder."""
        self.point, self._paths, self._waits, self._by_others = point, {}, True, shared

    @property
    def paths(self) -> tuple[str, ...] | None:
        """The files that the script has opened; None where others read here, too."""
        return None if self._by_others else tuple(self._paths)

    @property
    def at_start(self) -> tuple[str, ...]:
        """What is told of the life as it starts."""
        return (BY_OTHERS,) if self._by_others else ()

    def read(self, path: str, *, lives: bool) -> bool:
        """Note that ``path`` was read, as ranks live or not; whether that is news of the script."""
        if not (is_of_a_save(path) or (self.point is not None and self.point.holds(path))):
            return False
        self._by_others |= self._waits and not lives
        self._waits &= not lives
        new = lives and not self._by_others and path not in self._paths
        self._paths |= {path: None} if lives else {}
        return new
