"""Where the two streams of each worker go: a log file, cut when it grows too long, and the console."""

from pathlib import Path

from faultrun.model.spec import Logs, Stream
from faultrun.workers.follow import Follower
from faultrun.workers.logs import LogFiles
from faultrun.workers.rotate import Rotator


class Streams:
    """The log files of one incarnation. No ``follower``: nothing is shown; no ``rotator``: nothing is cut."""

    def __init__(
        self, wanted: Logs, files: LogFiles, follower: Follower | None, rotator: Rotator | None
    ) -> None:
        self.files = files
        self._wanted = wanted
        self._follower = follower
        self._rotator = rotator

    def open(self, ranks: tuple[int, ...]) -> None:
        """Begin the logs of ``ranks``, which come in the order of their local ranks. OSError: no room."""
        self.files.open(ranks)
        if self._rotator is not None:
            errors = [self.errors(rank, local_rank) for local_rank, rank in enumerate(ranks)]
            apart = [path for path in errors if path is not None]
            self._rotator.watch([*(self.files.worker(rank) for rank in ranks), *apart])

    def errors(self, rank: int, local_rank: int) -> Path | None:
        """A file of its own for standard error, only where the console shall see one of the two streams."""
        shown = self._wanted.console(rank, local_rank)
        return self.files.worker_errors(rank) if shown in (Stream.OUT, Stream.ERR) else None

    def show(self, rank: int, local_rank: int) -> None:
        """Have the console follow what the user wants to see of this worker."""
        if self._follower is None:
            return
        match self._wanted.console(rank, local_rank):
            case Stream.ALL | Stream.OUT:
                self._follower.follow(self.files.worker(rank), f"[{rank}] ", to_fd=1)
            case Stream.ERR:
                self._follower.follow(self.files.worker_errors(rank), f"[{rank}] ", to_fd=2)
            case Stream.NONE:
                pass
