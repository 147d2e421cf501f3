"""TensorBoard: how the run goes, beside the curves of the training (``--tensorboard``). A sidecar.

Of the package ``tensorboard`` only the messages and the framing of a record are used: its own file writer
would import TensorFlow where that is installed, and needs a thread.
"""

import os
import socket
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from faultrun.model.spec import RestartPolicy
from faultrun.observe.account_model import Account
from faultrun.observe.run_snapshot import RunSnapshot, State

_EVERY_S = 10.0
_VERSION = "brain.Event:2"


class Scalars:
    """Implements ``sidecar.Work``. The horizontal axis is the global step, else seconds of the run."""

    interval_s = 1.0

    def __init__(
        self,
        log_dir: Path,
        folder: Path,
        policy: RestartPolicy,
        begins_at: int,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._moment = RunSnapshot(log_dir, policy)
        self._now = now
        self._folder = folder
        self._begins_at = begins_at
        self._recoveries: list[int] = []
        self._looked_s = 0.0
        self._last: tuple[float, int, int] | None = None
        self._write: Callable[[Mapping[str, float], int], None] | None = None

    def begin(self, lifeline: int) -> None:
        """See ``sidecar.Work``."""
        del lifeline
        self._folder.mkdir(parents=True, exist_ok=True)
        self._write = _writer(self._folder)

    def take(self, line: Mapping[str, Any]) -> None:
        """See ``sidecar.Work``. What a supervisor before us wrote is not written again."""
        before = self._moment.faults_over
        self._moment.take(line)
        if isinstance(line.get("seq"), int) and line["seq"] >= self._begins_at:
            self._recoveries += range(before, self._moment.faults_over)

    def tick(self) -> None:
        """See ``sidecar.Work``."""
        if self._recoveries or self._now() - self._looked_s >= _EVERY_S:
            self._look()

    def end(self) -> None:
        """See ``sidecar.Work``: a short job has a point, too."""
        self._look()

    def _look(self) -> None:
        assert self._write is not None
        self._looked_s = self._now()
        account = self._moment.account()
        state = self._moment.state(account)
        at = _axis(account, state)
        for number in self._recoveries:
            fault = account.faults[number]
            took = {"recovery_seconds": fault.recovery_s, "lost_steps": fault.lost_steps}
            self._write(_known(took), at)
        self._recoveries.clear()
        now: dict[str, float | None] = {
            "incarnation": float(state.incarnation),
            "workers_up": float(state.up),
            "productive_ratio": state.productive_share(account),
        }
        self._write(_known({**now, **self._pace(state)}), at)

    def _pace(self, state: State) -> dict[str, float]:
        """Steps a second of the slowest rank since the last look, in the same life."""
        if not state.steps:
            self._last = None
            return {}
        before, self._last = self._last, (self._looked_s, min(state.steps), state.incarnation)
        if before is None or before[2] != state.incarnation or self._looked_s - before[0] < 1.0:
            return {}
        return {"steps_per_second": (min(state.steps) - before[1]) / (self._looked_s - before[0])}


def _known(scalars: Mapping[str, float | None]) -> dict[str, float]:
    return {name: float(value) for name, value in scalars.items() if value is not None}


def _axis(account: Account, state: State) -> int:
    if state.steps:
        return max(state.steps)
    return int(account.wall_s) if account.high_step is None else account.high_step


def _writer(folder: Path) -> Callable[[Mapping[str, float], int], None]:
    """A new file in ``folder``, and a function that appends scalars to it."""
    from tensorboard.compat.proto.event_pb2 import Event  # noqa: PLC0415
    from tensorboard.compat.proto.summary_pb2 import Summary  # noqa: PLC0415
    from tensorboard.summary.writer.record_writer import RecordWriter  # noqa: PLC0415

    name = f"events.out.tfevents.{int(time.time()):010d}.{socket.gethostname()}.{os.getpid()}.faultrun"
    records = RecordWriter(_Whole(folder / name))
    records.write(Event(wall_time=time.time(), file_version=_VERSION).SerializeToString())

    def write(scalars: Mapping[str, float], step: int) -> None:
        values = [
            Summary.Value(tag=f"faultrun/{name}", simple_value=value) for name, value in scalars.items()
        ]
        event = Event(wall_time=time.time(), step=step, summary=Summary(value=values))
        records.write(event.SerializeToString())

    return write


class _Whole:
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
