"""Posts what a start came to: whether the script went on from its recovery point, and how long that took."""

import contextlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from faultrun.core.recovery.resume_verdict import Opened, StartPlace, check, opened_of, place_of
from faultrun.core.recovery_timing import Stopwatch, look
from faultrun.files import bytes_from
from faultrun.model.events import Event, FirstStep
from faultrun.model.observed.recovery import FirstStepLogged
from faultrun.model.plan import Plan, Reason
from faultrun.model.printable import one_line
from faultrun.model.run import Step
from faultrun.model.spec.run_spec import Recovery
from faultrun.model.wire import PROGRAMS_FILE
from faultrun.supervisor.launch.progress_page import LiveWorkers
from faultrun.supervisor.reactor import Reactor

_MOST_BYTES = 1 << 16


class _Opens(Protocol):
    """What a script opened before its first step; None: unknown."""

    @property
    def opened(self) -> tuple[str, ...] | None: ...


class ResumeCheck:
    """Implements ``interfaces.EventListener``. It has no times of a recovery that another began."""

    def __init__(self, reactor: Reactor, recovery: Recovery, saves: _Opens, workers: LiveWorkers) -> None:
        self._reactor, self._recovery, self._saves, self._workers = reactor, recovery, saves, workers
        self._origin: StartPlace | None = None
        self._watch = Stopwatch()

    def tell(self, event: Event, step: Step) -> None:
        """Check the first step against the recovery point, time the start; skip other incarnations."""
        if event.incarnation != step.state.incarnation:
            return
        if isinstance(event, FirstStep | FirstStepLogged) and step.state.plan is not None:
            self._began(event, step.state.plan)
        self._watch, timed = look(self._watch, event, step.state.phase)
        if timed is not None:
            self._reactor.post(timed)

    def _began(self, first: FirstStep | FirstStepLogged, plan: Plan) -> None:
        """The very first incarnation has nothing to be compared with."""
        if plan.point is None and plan.reason is Reason.FIRST:
            self._origin = place_of(first)
        elif not plan.kept:
            opened = Opened()
            if plan.point is not None and (paths := self._saves.opened) is not None:
                opened = opened_of(paths, plan.point, several=not plan.of_one_node)
            if self._workers.logs is not None:
                opened = replace(opened, refused=_refused(self._workers.logs.folder))
            self._reactor.post(check(first, plan.point, self._recovery, self._origin, opened))


def _refused(folder: Path) -> str:
    """Why the SDK refused the recovery point to a program below a rank; "" where it refused none."""
    for path in folder.glob(PROGRAMS_FILE.format(rank="*")):
        with contextlib.suppress(ValueError, AttributeError):  # a worker may write anything
            for line in bytes_from(path, 0, _MOST_BYTES).splitlines():
                if why := json.loads(line).get("refused"):
                    return one_line(str(why))
    return ""
