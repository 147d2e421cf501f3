"""A line now and then while workers run: a journal whose writer was killed tells how long they trained.

All else that is worth a line is a change, and a training that goes well has none for days. A line has some
400 bytes, and a supervisor that goes on with the run needs 70 microseconds to replay it, so they become
rarer: a day of training has 380 of them, a month 4,600.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Protocol

from faultrun.model.events import Event, Heartbeat
from faultrun.model.progress import RankStep
from faultrun.supervisor.progress import ProgressPage
from faultrun.supervisor.reactor import Reactor

_SOONEST_S, _LATEST_S = 60.0, 600.0
_SHARE = 0.01


def period_s(watched_s: float) -> float:
    """What a lost supervisor may cost the account: a minute, 1 % of what it has watched, or ten minutes."""
    return min(_LATEST_S, max(_SOONEST_S, _SHARE * watched_s))


class Workers(Protocol):
    """Of the crew: whose life it is, who runs, and how far they are."""

    page: ProgressPage | None

    @property
    def incarnation(self) -> int:
        """The incarnation whose workers these are."""
        ...

    def pids(self) -> Mapping[int, int]:
        """Rank to pid of the living workers."""
        ...


class HeartbeatWriter:
    """Beats from ``begin`` to the supervisor's end; between two lives it is silent."""

    def __init__(
        self, reactor: Reactor, workers: Workers, period_s: Callable[[float], float] = period_s
    ) -> None:
        self._reactor = reactor
        self._workers = workers
        self._period_s = period_s

    def begin(self) -> None:
        """The first beat comes a period from now."""
        clock = self._reactor.clock
        self._reactor.call_at(clock.now() + self._period_s(clock.now() - clock.start_s), self._beat)

    def _beat(self) -> Iterable[Event]:
        self.begin()
        if self._workers.pids():
            page = self._workers.page
            yield Heartbeat(
                at_s=self._reactor.clock.now(),
                incarnation=self._workers.incarnation,
                steps=_ends(page.steps() if page is not None else ()),
            )


def _ends(steps: Collection[RankStep]) -> tuple[RankStep, ...]:
    """The rank furthest behind and the one furthest ahead: a line must not grow with the ranks."""
    order = sorted(steps, key=lambda one: one.step)
    return (order[0], order[-1]) if len(order) > 1 else tuple(order)
