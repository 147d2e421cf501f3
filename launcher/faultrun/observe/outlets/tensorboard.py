"""TensorBoard: how the run goes, beside the curves of the training (``--tensorboard``). A sidecar.

Of the package ``tensorboard`` only the messages and the framing of a record are used: its own file writer
would import TensorFlow where that is installed, and needs a thread.
"""

import os
import socket
import time
from collections.abc import Callable
from pathlib import Path

from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.record_writer import RecordWriter

from faultrun.journal.lines import JournalLine
from faultrun.model.spec.run_spec import RestartPolicy
from faultrun.observe.outlets.sidecar import Work
from faultrun.observe.status.snapshot import RunMoment, RunSnapshot

_EVERY_S = 10.0
_VERSION = "brain.Event:2"


class Scalars(Work):
    """The horizontal axis is the global step, else seconds of the run."""

    interval_s = 1.0

    def __init__(
        self,
        log_dir: Path,
        folder: Path,
        policy: RestartPolicy,
        begins_at: int,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._snapshot = RunSnapshot(log_dir, policy)
        self._now = now
        self._begins_at = begins_at
        self._recoveries: list[int] = []
        self._looked_s = 0.0
        self._last: tuple[float, int, int] | None = None
        folder.mkdir(parents=True, exist_ok=True)
        name = f"events.out.tfevents.{int(time.time()):010d}.{socket.gethostname()}.{os.getpid()}.faultrun"
        self._records = RecordWriter(_WholeRecords(folder / name))
        self._records.write(Event(wall_time=time.time(), file_version=_VERSION).SerializeToString())

    def take(self, line: JournalLine) -> None:
        """See ``sidecar.Work``. What a supervisor before us wrote is not written again."""
        before = self._snapshot.faults_over
        self._snapshot.take(line)
        if line.seq >= self._begins_at:
            self._recoveries += range(before, self._snapshot.faults_over)

    def tick(self) -> None:
        """See ``sidecar.Work``."""
        if self._recoveries or self._now() - self._looked_s >= _EVERY_S:
            self._look()

    def end(self) -> None:
        """See ``sidecar.Work``: a short job has a point, too."""
        self._look()

    def _look(self) -> None:
        self._looked_s = self._now()
        now = self._snapshot.moment()
        at = _axis(now)
        for number in self._recoveries:
            fault = now.account.faults[number]
            self._write(at, recovery_seconds=fault.recovery_s, lost_steps=fault.lost_steps)
        self._recoveries.clear()
        self._write(
            at,
            incarnation=now.incarnation,
            workers_up=now.up,
            productive_ratio=now.account.productive_share,
            steps_per_second=self._pace(now),
        )

    def _pace(self, now: RunMoment) -> float | None:
        """Steps a second of the slowest rank since the last look, in the same life."""
        before, self._last = self._last, None
        if not now.steps:
            return None
        self._last = (self._looked_s, min(now.steps), now.incarnation)
        if before is None or before[2] != now.incarnation or self._looked_s - before[0] < 1.0:
            return None
        return (min(now.steps) - before[1]) / (self._looked_s - before[0])

    def _write(self, step: int, **scalars: float | None) -> None:
        values = [
            Summary.Value(tag=f"faultrun/{name}", simple_value=value)
            for name, value in scalars.items()
            if value is not None
        ]
        event = Event(wall_time=time.time(), step=step, summary=Summary(value=values))
        self._records.write(event.SerializeToString())


def _axis(now: RunMoment) -> int:
    if now.steps:
        return max(now.steps)
    high = now.account.high_step
    return int(now.account.wall_s) if high is None else high


class _WholeRecords:
    """A file of whole records: behind half a one, on a disk that was full, no reader would find the next."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)

    def write(self, record: bytes) -> None:
        """Append ``record``, or nothing."""
        size = os.fstat(self._fd).st_size
        try:
            whole = os.write(self._fd, record) == len(record)
        except OSError:
            whole = False
        if not whole:
            os.ftruncate(self._fd, size)
