"""Looks for the first checkpoint that a script writes by itself: its loss is never taken for a beginning.

One counts that stood still from one look to the next: what its writer takes away again, as it fails or under
another name, was none.

Saves that the SDK reports are known at once, and those of a script when a fault makes us look. Before
that, a supervisor that was killed would leave nothing behind that says there was one.
"""

from collections.abc import Callable, Iterable, Mapping

from faultrun.checkpoints.format import Stamp
from faultrun.model.events import Event, IncarnationStarted, PlanAdopted
from faultrun.model.observed.dying_gasp import SaveSeen
from faultrun.model.run import Phase, Step
from faultrun.supervisor.reactor import BackgroundTasks, Reactor

_SOONEST_S, _LATEST_S = 0.1, 30.0
_SHARE = 0.05
_COST = 200
"""Looking takes at most one part of so many of the time."""

Listed = Callable[[], Mapping[str, Stamp]]


class FirstSaveWatch:
    """Implements ``interfaces.EventListener``. Looks while workers run, until a save of the run is known.

    ``listed`` names the checkpoints that lie there; it is called by ``errands``, whose thread may hang
    with its file system. What ``is_early``, written before training began, may be no save; what
    ``is_left_alone`` is none of this run, also if it is touched or copied. That costs a look into the file.
    """

    def __init__(
        self,
        reactor: Reactor,
        errands: BackgroundTasks,
        listed: Listed,
        is_early: Callable[[str], bool] = lambda _: False,
        is_left_alone: Callable[[str], bool] = lambda _: False,
    ) -> None:
        self._reactor, self._errands, self._listed = reactor, errands, listed
        self._is_early, self._is_left_alone = is_early, is_left_alone
        self._life = -1
        self._began_s = 0.0
        self._before: Mapping[str, Stamp] | None = None
        self._fresh: Mapping[str, Stamp] = {}
        self._took_s = 0.0

    def tell(self, event: Event, step: Step) -> None:
        """Begin to look as workers start, and stop when a save is known or they do not run any more."""
        if step.state.phase is not Phase.RUNNING or step.state.run.known_save:
            self._life = -1
            if isinstance(event, PlanAdopted) and not step.state.run.known_save:
                self._before = None
                self._errands.send(self._look_before)
        elif isinstance(event, IncarnationStarted):
            self._life, self._began_s, self._fresh = event.incarnation, self._reactor.now(), {}
            self._send(self._life)

    def _look_before(self) -> Iterable[Event]:
        """Before a worker starts: the first thing that it does may be a save."""
        self._before = self._listed()
        return ()

    def _send(self, life: int) -> Iterable[Event]:
        if life == self._life:
            self._errands.offer(lambda: self._look(life, again=True))
            now_s = self._reactor.now()
            interval_s = max(_SHARE * (now_s - self._began_s), _COST * self._took_s)
            at_s = now_s + min(_LATEST_S, max(_SOONEST_S, interval_s))
            self._reactor.call_at(at_s, lambda: self._send(life))
        return ()

    def _confirm(self, life: int, wait_s: float) -> Iterable[Event]:
        """Look once more, a moment after a look that has seen something new."""
        self._reactor.call_at(self._reactor.now() + wait_s, lambda: self._once_more(life, wait_s))
        return ()

    def _once_more(self, life: int, waited_s: float) -> Iterable[Event]:
        if life == self._life and not self._errands.idle():
            return self._confirm(life, 2 * waited_s)
        if life == self._life:
            self._errands.offer(lambda: self._look(life, again=False))
        return ()

    def _look(self, life: int, *, again: bool) -> Iterable[Event]:
        """In the errands' thread, one at a time."""
        began_s = self._reactor.now()
        there = self._listed()
        self._took_s = self._reactor.now() - began_s
        before = self._before
        self._before = there if before is None else before
        if before is not None and life == self._life:
            fresh = {
                path: stamp
                for path, stamp in there.items()
                if before.get(path) != stamp and not self._is_early(path)
            }
            still = [path for path, stamp in fresh.items() if self._fresh.get(path) == stamp]
            found = next((path for path in still if not self._is_left_alone(path)), "")
            self._fresh = fresh
            self._before = before if found else {**before, **{path: there[path] for path in still}}
            if found:
                yield SaveSeen(at_s=self._reactor.now(), incarnation=life, path=found)
            elif fresh and again:
                self._reactor.call(lambda: self._confirm(life, _SOONEST_S))
