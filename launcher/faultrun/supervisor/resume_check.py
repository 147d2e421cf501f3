"""Posts whether a script went on from its recovery point, once its first step is known."""

from faultrun.core.resumption import StartPlace, check, place_of
from faultrun.model.events import Event, FirstStep
from faultrun.model.plan import Reason
from faultrun.model.recovery import FirstStepLogged
from faultrun.model.run import Step
from faultrun.model.spec import Recovery
from faultrun.supervisor.reactor import Reactor


class ResumeCheck:
    """Implements ``ports.EventListener``. The very first incarnation has nothing to be compared with."""

    def __init__(self, reactor: Reactor, recovery: Recovery) -> None:
        self._reactor = reactor
        self._recovery = recovery
        self._origin: StartPlace | None = None

    def tell(self, event: Event, step: Step) -> None:
        """See ``ports.EventListener``."""
        plan = step.state.plan
        if not isinstance(event, FirstStep | FirstStepLogged) or plan is None:
            return
        if event.incarnation != plan.incarnation:
            return
        if plan.point is None and plan.reason is Reason.FIRST:
            self._origin = place_of(event)
            return
        self._reactor.post(check(event, plan.point, self._recovery, self._origin))
