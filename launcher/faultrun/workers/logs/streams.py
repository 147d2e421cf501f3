"""Where workers' two streams go: log files, and of them what the user wants to see on the console."""

from pathlib import Path

from faultrun.model.spec.output import Logs, Stream
from faultrun.workers.logs.log_files import LogFiles, files_of
from faultrun.workers.logs.log_follower import Follower
from faultrun.workers.logs.log_rotation import Rotator


class Streams:
    """Where workers' two streams go. No ``follower``: nothing is shown; no ``rotator``: nothing is cut."""

    def __init__(
        self, wanted: Logs, log_dir: Path, follower: Follower | None = None, rotator: Rotator | None = None
    ) -> None:
        self._wanted, self._log_dir, self._follower = wanted, log_dir, follower
        self._rotator = rotator

    def files(self, incarnation: int) -> LogFiles:
        """The log files of one incarnation."""
        return files_of(self._wanted, self._log_dir, incarnation)

    def open(self, files: LogFiles, ranks: tuple[int, ...]) -> None:
        """Begin the logs of ``ranks``, which come in the order of their local ranks. OSError: no room."""
        files.open(ranks)
        if self._rotator is not None:
            errors = [self.errors(files, rank, local_rank) for local_rank, rank in enumerate(ranks)]
            apart = [path for path in errors if path is not None]
            self._rotator.watch([*(files.worker(rank) for rank in ranks), *apart])

    def errors(self, files: LogFiles, rank: int, local_rank: int) -> Path | None:
        """A file of its own for standard error, only where the console shall see one of the two streams."""
        shown = self._wanted.console(rank, local_rank)
        apart = self._wanted.picked_out or self._wanted.picked_err or shown in (Stream.OUT, Stream.ERR)
        return files.worker_errors(rank) if apart else None

    def show(self, files: LogFiles, rank: int, local_rank: int) -> None:
        """Have the console follow what the user wants to see of this worker."""
        if self._follower is None:
            return
        streams = (
            (1, Stream.OUT, files.worker(rank), files.picked_out, self._wanted.picked_out),
            (2, Stream.ERR, self.errors(files, rank, local_rank), files.picked_err, self._wanted.picked_err),
        )
        console, hushed = self._wanted.console(rank, local_rank), not self._wanted.shows(local_rank)
        for to_fd, stream, path, into, needles in streams:
            if path is None:
                continue
            if console in (stream, Stream.ALL):
                self._follower.follow(path, prefix_of(rank), to_fd)
            if needles and not hushed:
                self._follower.pick(path, prefix_of(rank), needles, into)


def prefix_of(rank: int) -> str:
    """What stands before each line of a rank wherever lines of several may."""
    return f"[{rank}]: "
