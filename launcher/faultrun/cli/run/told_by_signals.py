"""What signals to this process mean: stop, save and go on, or nothing. In a job of SLURM, until when."""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial

from faultrun.core.phases.one_stop import STOP_SOURCES, comes_too_late
from faultrun.model.events import Event
from faultrun.model.observed.dying_gasp import SaveRequested
from faultrun.model.run import RunState
from faultrun.model.spec.run_spec import SignalAnswer, Supervision
from faultrun.model.spec.windows import PLATFORM_MARGIN_S
from faultrun.model.stop import StopRequested
from faultrun.supervisor.control import Control
from faultrun.supervisor.platform.slurm_job import asks_slurm, ends_at_utc_s
from faultrun.supervisor.reactor import BackgroundTasks, Reactor
from faultrun.supervisor.workers.worker_group import WorkerGroup
from faultrun.workers.signals import SignalPipe


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalsTold:
    """Whom signals are passed on to. SLURM is asked once, before any rank is told."""

    supervision: Supervision
    reactor: Reactor
    group: WorkerGroup
    control: Control
    say: Callable[[str], None]

    def listen(self, pipe: SignalPipe, environ: Mapping[str, str]) -> None:
        """Have them heard from now on."""
        unasked = [environ["SLURM_JOB_ID"]] if asks_slurm(environ) else []
        self.reactor.watch(pipe.fd, lambda: self._drain(pipe, unasked))

    def heard_late(self, pipe: SignalPipe, end: RunState) -> bool:
        """Whether a stop has come that is one with this end; ``wait`` returns it."""
        stops = [event for event in self._drain(pipe, []) if isinstance(event, StopRequested)]
        if not stops or comes_too_late(end):
            return False
        self.reactor.post(stops[0])
        return True

    def _drain(self, pipe: SignalPipe, unasked: list[str]) -> Iterable[Event]:
        answers = dict(self.supervision.signals)
        for signum in pipe.drain():
            if (source := STOP_SOURCES.get(signum)) is None:
                yield from self.group.reap_orphans()
                continue
            now_s, number = self.reactor.now(), self.group.live.incarnation
            match answers.get(signum, SignalAnswer.STOP):
                case SignalAnswer.STOP:
                    stop = StopRequested(at_s=now_s, incarnation=number, source=source)
                    if unasked:
                        job_id = unasked.pop()
                        BackgroundTasks(self.reactor).send(partial(self._as_slurm_says, stop, job_id))
                    else:
                        yield stop
                case SignalAnswer.SAVE:
                    window_s = self.supervision.windows.stop_grace_s
                    yield SaveRequested(at_s=now_s, incarnation=number, window_s=window_s)
                    asked = len(self.control.connected)
                    self.say(f"{source.value}: {asked} workers asked to save and go on")
                case SignalAnswer.IGNORE:
                    self.say(f"{source.value} ignored (--signals)")

    def _as_slurm_says(self, stop: StopRequested, job_id: str) -> Iterable[Event]:
        end_utc_s = ends_at_utc_s(job_id, time.time())
        by_s = self.reactor.clock.of_utc_s(None if end_utc_s is None else end_utc_s - PLATFORM_MARGIN_S)
        yield replace(stop, by_s=by_s)
