"""A node whose fate is drawn by hypothesis: who dies, when, and in which order everything arrives."""

from collections import deque
from collections.abc import Iterable

from hypothesis import strategies as st

from faultrun.core.plan.next_plan import Rules
from faultrun.model.events import Event, RunStarted, WorkerExit, WorkerStarted
from faultrun.model.exits import Exited, ExitStatus, Signaled
from faultrun.model.plan import Plan
from faultrun.model.stop import StopRequested, StopSource
from faultrun.model.topology import NodeId
from support.stories.fake_world import Circumstances, FakeWorld, Habit
from support.stories.story import checkpoint

_ENDS: st.SearchStrategy[ExitStatus] = st.sampled_from(
    [Exited(code=1), Exited(code=137), Signaled(signum=9), Signaled(signum=11)]
)
_TROUBLES = st.sampled_from(["death"] * 15 + ["weather"] * 3 + ["time"] * 3 + ["loss"] * 2 + ["stop"])
_HABITS = st.sampled_from([*[Habit.OBEYS, Habit.SAVES, Habit.IGNORES] * 6, Habit.UNKILLABLE])
_MISFORTUNES = st.sampled_from([""] * 16 + ["unstartable", "nothing whole", "unprepared", "stragglers"])


class SupervisorLost(Exception):
    """SIGKILL to the supervisor: its workers die with it, the journal stays."""


class ChancyWorld(FakeWorld):
    """Draws what happens next, as long as ``troubles`` are left; after that all goes well."""

    def __init__(
        self,
        data: st.DataObject,
        rules: Rules,
        node: NodeId,
        *,
        troubles: int,
        plan: Plan | None,
        now_s: float,
    ) -> None:
        super().__init__(rules, node, Circumstances(), plan=plan, now_s=now_s)
        self.draw = data.draw
        self.troubles = troubles
        self.stopped = False
        self.world_size = rules.topology.world_size
        self._exits: deque[WorkerExit] = deque()

    def post(self, event: Event) -> None:
        """Deaths have an order of their own; they may overtake everything but the birth."""
        if isinstance(event, WorkerExit):
            self._exits.append(event)
        else:
            super().post(event)

    def wait(self) -> Iterable[Event]:
        """Something that is under way arrives, or something new happens to this node."""
        if not self.troubles:
            self.around = Circumstances(point=self.around.point)
        if self.coming and isinstance(self.coming[0], RunStarted):
            return super().wait()  # what the supervisor posts itself is always heard first
        while self.troubles and self.draw(st.booleans()):
            self.troubles -= 1
            event = self._trouble()
            if event is not None:
                return [event]
        if self._may_a_death_arrive() and (not self.coming or self.draw(st.booleans())):
            return [self._exits.popleft()]
        if self.coming:
            return [self.coming.popleft()]
        ending = sorted(self.living.keys() - self.hung)
        if ending and (not self.timers or self.draw(st.booleans())):
            self.end(ending[0], Exited(code=0))
            return [self._exits.popleft()]
        return super().wait()

    def _may_a_death_arrive(self) -> bool:
        born = {event.rank for event in self.coming if isinstance(event, WorkerStarted)}
        return bool(self._exits) and self._exits[0].rank not in born

    def _trouble(self) -> Event | None:
        match self.draw(_TROUBLES):
            case "death" if self.living:
                self.end(self.draw(st.sampled_from(sorted(self.living))), self.draw(_ENDS))
            case "time":
                self.now_s += self.draw(st.sampled_from([0.1, 31.0, 400.0]))
            case "stop":
                self.stopped = True
                source = self.draw(st.sampled_from(StopSource))
                return StopRequested(at_s=self.now_s, incarnation=self.incarnation, source=source)
            case "loss":
                raise SupervisorLost
            case "weather":
                self.around = self._drawn_circumstances()
            case _:
                pass
        return None

    def _drawn_circumstances(self) -> Circumstances:
        habits = {rank: self.draw(_HABITS) for rank in range(self.world_size)}
        point = self.draw(st.none() | st.integers(1, 30).map(checkpoint))
        match self.draw(_MISFORTUNES):
            case "unstartable":
                return Circumstances(habits=habits, point=point, unstartable=frozenset({1}))
            case "nothing whole":
                return Circumstances(habits=habits, point=point, nothing_whole="none whole")
            case "unprepared":
                return Circumstances(habits=habits, point=point, prepare_failure=(78, "config is gone"))
            case "stragglers":
                return Circumstances(habits=habits, point=point, straggling_descendants=(4711,))
            case _:
                return Circumstances(habits=habits, point=point)
