"""Looks at the processors until there is room for standbys, and posts that there is. Starts nothing."""

from collections.abc import Callable, Iterable

from faultrun.core.standby.headroom import SHORTEST_LOOK_S, ProcessorSample, processor_room
from faultrun.core.standby.policy import (
    ASKED_SETTLE_S,
    SETTLE_S,
    UNSEEN_ROOM_S,
    UNSEEN_SETTLE_S,
    waits_for_a_seat,
)
from faultrun.model.events import Event, FirstStep, IncarnationStarted
from faultrun.model.observed.recovery import FirstStepLogged
from faultrun.model.observed.standby import RoomFound, StandbyChanged, StandbyPhase, StandbyWish
from faultrun.model.run import Phase, Step
from faultrun.supervisor.reactor import Reactor


class HeadroomWatch:
    """Implements ``interfaces.EventListener``. Once a life, and no longer than standbys wait for room.

    ``workers`` run on this node; ``sample`` reads what the processors have done, every ``interval_s``.
    """

    def __init__(
        self,
        wish: StandbyWish,
        workers: int,
        sample: Callable[[], ProcessorSample],
        reactor: Reactor,
        interval_s: float = 1.0,
    ) -> None:
        self._wish, self._workers, self._sample = wish, workers, sample
        self._reactor, self._interval_s = reactor, interval_s
        self._watch = 0
        self._looking = self._waits = False
        self._from_s = self._until_s = 0.0
        self._before: ProcessorSample | None = None

    def tell(self, event: Event, step: Step) -> None:
        """Look for room from the start of workers, or of a wait for a seat, while standbys are wanted."""
        waits = bool(self._wish.count) and waits_for_a_seat(step.state)
        if waits and not self._waits:
            # Its first sample is that of the first look: all nodes of a run that restarts pass by here.
            self._before, now_s = None, self._reactor.now()
            self._begin(event.incarnation, now_s + ASKED_SETTLE_S, now_s + UNSEEN_SETTLE_S)
        self._waits = waits
        if not self._wish.count or (step.state.phase is not Phase.RUNNING and not waits):
            self._looking = False
            return
        match event:
            case IncarnationStarted(at_s=at_s):
                self._before = self._sample()
                soonest_s = ASKED_SETTLE_S if self._wish.asked else UNSEEN_ROOM_S
                self._begin(event.incarnation, at_s + soonest_s, at_s + UNSEEN_SETTLE_S)
            case FirstStep(at_s=at_s) | FirstStepLogged(at_s=at_s) if (
                self._looking and event.incarnation == step.state.incarnation
            ):
                self._begin(event.incarnation, at_s, at_s + SETTLE_S)
                for found in self._judged(event.incarnation):
                    self._reactor.post(found)
            case StandbyChanged(state=StandbyPhase.OFF):
                self._looking = False

    def _begin(self, life: int, from_s: float, until_s: float) -> None:
        """Look now and then; whatever looked before looks no longer."""
        self._looking, self._from_s, self._until_s = True, from_s, until_s
        self._watch += 1
        self._again(life, self._watch)

    def _again(self, life: int, watch: int) -> None:
        self._reactor.call_at(self._reactor.now() + self._interval_s, lambda: self._look(life, watch))

    def _look(self, life: int, watch: int) -> Iterable[Event]:
        if watch != self._watch or not self._looking:
            return
        yield from self._judged(life)
        if self._looking and self._reactor.now() < self._until_s:
            self._again(life, watch)

    def _judged(self, life: int) -> Iterable[Event]:
        """What the time since the look before says; too soon after it, that one is kept for the next."""
        now_s, now = self._reactor.now(), self._sample()
        if (before := self._before) is None or now.at_s - before.at_s >= SHORTEST_LOOK_S:
            self._before = now
        room = processor_room(before, now, self._workers) if now_s >= self._from_s else None
        if room is not None:
            self._looking = False
            yield RoomFound(at_s=now_s, incarnation=life, at_once=room.at_once, why=room.why)
