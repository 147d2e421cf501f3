"""Reads the workers' new logs for the first step that one of them tells of, where ranks do not report theirs.

Only the beginning of each log is read, and only until there is a step, a rank that reports, or the end. Where
ranks have stayed, only what those that came print is read: their logs go on where the dead ones' ended.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from faultrun.core.logged_steps import LoggedStep, first_step, names_epoch
from faultrun.files import bytes_from
from faultrun.model.events import Event, IncarnationStarted
from faultrun.model.observed.recovery import FirstStepLogged
from faultrun.model.run import Phase, Step
from faultrun.supervisor.launch.progress_page import LiveWorkers
from faultrun.supervisor.reactor import Reactor

_MOST_BYTES = 1 << 20
_SOONEST_S, _LATEST_S = 0.1, 5.0
_SHARE = 0.05


@dataclass(slots=True)
class _Beginning:
    """What has been read of one log. ``rest`` is being written, ``epoch`` is the last line that names one."""

    path: Path
    begin: int = 0
    size_bytes: int = 0
    rest: str = ""
    epoch: str = ""

    def first(self) -> LoggedStep | None:
        """The first step, once a whole line tells of it."""
        data = bytes_from(self.path, self.begin + self.size_bytes, _MOST_BYTES - self.size_bytes)
        self.size_bytes += len(data)
        *lines, self.rest = (self.rest + data.decode("utf-8", "replace")).replace("\r", "\n").split("\n")
        found = first_step([self.epoch, *lines])
        self.epoch = next((line for line in reversed(lines) if names_epoch(line)), self.epoch)
        return found


class FirstStepWatch:
    """Implements ``interfaces.EventListener``. A life's logs are looked at until its workers are ended."""

    def __init__(self, reactor: Reactor, workers: LiveWorkers) -> None:
        self._reactor = reactor
        self._workers = workers
        self._began_s = 0.0
        self._incarnation = -1
        self._logs: Mapping[int, _Beginning] = {}

    def tell(self, event: Event, step: Step) -> None:
        """See ``interfaces.EventListener``."""
        files = self._workers.logs
        if self._logs and step.state.phase is not Phase.RUNNING:
            # A life that was short may have said more than was read.
            for found in self._look(self._logs):
                self._reactor.post(found)
            self._logs = {}
        if (
            not isinstance(event, IncarnationStarted)
            or step.state.phase is not Phase.RUNNING
            or files is None
        ):
            return
        self._began_s, self._incarnation = self._reactor.now(), event.incarnation
        plan = step.state.plan
        stayed = frozenset[int]() if plan is None else plan.kept
        logs = {rank: files.worker(rank) for rank in event.ranks if rank not in stayed}
        began = {path: path.stat().st_size for path in logs.values() if stayed and path.exists()}
        self._logs = {rank: _Beginning(path, began.get(path, 0)) for rank, path in logs.items()}
        self._again()

    def _again(self) -> None:
        now_s = self._reactor.now()
        interval_s = min(_LATEST_S, max(_SOONEST_S, _SHARE * (now_s - self._began_s)))
        logs = self._logs
        self._reactor.call_at(now_s + interval_s, lambda: self._look(logs))

    def _look(self, logs: Mapping[int, _Beginning]) -> Iterable[Event]:
        if logs is not self._logs or self._reports():
            return
        for rank, log in logs.items():
            found = log.first()
            if found is not None:
                self._logs = {}
                yield FirstStepLogged(
                    at_s=self._reactor.now(),
                    incarnation=self._incarnation,
                    rank=rank,
                    step=found.step,
                    epoch=found.epoch,
                    in_epoch=found.in_epoch,
                )
                return
        if any(log.size_bytes < _MOST_BYTES for log in logs.values()):
            self._again()

    def _reports(self) -> bool:
        """Whether a rank speaks for itself."""
        page = self._workers.page
        return page is None or bool(page.reporting())
