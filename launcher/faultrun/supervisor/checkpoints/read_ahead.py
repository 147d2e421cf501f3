"""Reads what new checkpoints say of themselves while workers run: when they have ended, all wait for that.

Nothing follows from it. Whether a file is whole is asked of small ones only: to read large ones takes the
file system from those who train, and is done when one could be resumed from.
"""

from collections.abc import Callable, Iterable
from functools import partial

from faultrun.model.events import Event, FirstStep, IncarnationStarted
from faultrun.model.observed.recovery import FirstStepLogged
from faultrun.model.run import Phase, Step
from faultrun.supervisor.reactor import BackgroundTasks, Reactor

_SOONEST_S, _LATEST_S = 1.0, 30.0
_UNTOLD_S = 60.0
"""Who tells of no step for so long tells of none."""
_SHARE = 0.05
"""The share of the time since the start that passes between looks: all nodes look at one file system."""
_COST = 500
"""Looking takes at most one part of so many of the time."""
_QUICK_S = 0.05
"""What survivors save is read back by the same thread."""
_MOST = 1000
"""How many checkpoints are read ahead: headers of many more would not fit into a supervisor's memory."""


class ReadAhead:
    """Implements ``interfaces.EventListener``.

    ``look`` goes through the checkpoints, remembers what it read and says how many there are; it is called
    by ``errands``, whose thread may hang with its file system.
    """

    def __init__(self, reactor: Reactor, errands: BackgroundTasks, look: Callable[[], int]) -> None:
        self._reactor, self._errands, self._look = reactor, errands, look
        self._life = self._begun = -1
        self._began_s = self._took_s = 0.0
        self._too_many = False

    def tell(self, event: Event, step: Step) -> None:
        """Read ahead from the first step on, or a while after the start; once more as workers end."""
        state = step.state
        if state.phase is not Phase.RUNNING:
            quick = self._took_s < _QUICK_S and not self._too_many
            if self._life >= 0 and quick and state.life.alive and state.stop is None:
                self._errands.offer(self._looked)  # while the others save: what they add is little
            self._life = -1
        elif isinstance(event, IncarnationStarted):
            self._life, self._too_many, self._began_s = event.incarnation, False, self._reactor.now()
            self._begun = -1
            self._reactor.call_at(self._began_s + _UNTOLD_S, partial(self._first, self._life))
        elif isinstance(event, FirstStep | FirstStepLogged) and event.incarnation == self._life:
            self._reactor.call_at(self._reactor.now(), partial(self._first, self._life))

    def _first(self, life: int) -> Iterable[Event]:
        """Not before training has begun: what is read until then is what the script resumes from."""
        if life == self._life and life != self._begun:
            self._begun = life
            self._later(life)
        return ()

    def _later(self, life: int) -> None:
        now_s = self._reactor.now()
        interval_s = min(_LATEST_S, max(_SOONEST_S, _SHARE * (now_s - self._began_s)))
        self._reactor.call_at(now_s + max(interval_s, _COST * self._took_s), lambda: self._again(life))

    def _again(self, life: int) -> Iterable[Event]:
        if life == self._life and not self._too_many:
            self._errands.offer(self._looked)
            self._later(life)
        return ()

    def _looked(self) -> Iterable[Event]:
        """In the errands' thread."""
        began_s = self._reactor.now()
        self._too_many = self._look() > _MOST
        self._took_s = self._reactor.now() - began_s
        return ()
