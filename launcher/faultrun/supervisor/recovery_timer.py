"""Posts how long a recovery took, once it is over, so that the journal has it in one line."""

from faultrun.core.stopwatch import Stopwatch, look
from faultrun.model.events import Event
from faultrun.model.run import Step
from faultrun.supervisor.reactor import Reactor


class RecoveryTimer:
    """Implements ``ports.EventListener``. Of a recovery that another supervisor began it knows nothing."""

    def __init__(self, reactor: Reactor) -> None:
        self._reactor = reactor
        self._watch = Stopwatch()

    def tell(self, event: Event, step: Step) -> None:
        """See ``ports.EventListener``. What is about another incarnation than the run's is passed over."""
        if event.incarnation != step.state.incarnation:
            return
        self._watch, timed = look(self._watch, event, step.state.phase)
        if timed is not None:
            self._reactor.post(timed)
