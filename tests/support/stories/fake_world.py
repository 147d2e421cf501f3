"""A node in memory: processes are entries in a dictionary, and time is a number.

``tests/contracts`` proves that it answers every action as the real one does.
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from faultrun.core.plan.next_plan import Rules, next_step
from faultrun.core.plan.waiting import Waiting
from faultrun.model.actions import (
    Action,
    DismissStandbys,
    FindRecoveryPoint,
    GiveUpHandover,
    Inspect,
    Kill,
    Prepare,
    Publish,
    RaiseAlarm,
    RaiseStandbys,
    RequestGasp,
    RequestSave,
    RestoreScheduling,
    SeatStandbys,
    Spawn,
    StartStandby,
    StartTimer,
    Sweep,
    TellNodes,
    VerifySave,
    Wake,
)
from faultrun.model.checkpoint import RecoveryPoint
from faultrun.model.events import (
    Drained,
    Event,
    IncarnationStarted,
    NothingWhole,
    PlanAdopted,
    Prepared,
    PrepareFailed,
    RecoveryPointChosen,
    SpawnFailed,
    Timer,
    TimerFired,
    WorkerExit,
    WorkerStarted,
)
from faultrun.model.exits import Exited, ExitStatus, Signaled
from faultrun.model.observed.dying_gasp import GaspRequested, GaspSaved, GaspVerified
from faultrun.model.observed.evidence import DeathNote
from faultrun.model.observed.hang import Activity, HangDetected
from faultrun.model.observed.node_fact import NodeFact
from faultrun.model.observed.progress import WorkPhase
from faultrun.model.observed.standby import StandbyChanged, StandbyPhase
from faultrun.model.plan import Plan
from faultrun.model.topology import NodeId

SIGKILL, SIGTERM = 9, 15
ENOENT = 2


class Habit(Enum):
    """What a worker does when it is asked to leave."""

    OBEYS = "dies of SIGTERM"
    SAVES = "saves, then leaves with 143"
    IGNORES = "lives on until SIGKILL"
    UNKILLABLE = "hangs in the kernel"


@dataclass(slots=True)
class Circumstances:
    """What the node is like; a test changes it before or while it runs."""

    habits: Mapping[int, Habit] = field(default_factory=dict)
    unstartable: frozenset[int] = frozenset()
    point: RecoveryPoint | None = None
    nothing_whole: str = ""
    prepare_failure: tuple[int, str] | None = None
    straggling_descendants: tuple[int, ...] = ()
    save_step: int = 7


class Stuck(AssertionError):
    """Nothing is under way and no timer runs: the supervisor would wait for ever."""


class FakeWorld:
    """Implements ``interfaces.Executor``. Time stands still until all is done; then a timer fires."""

    def __init__(
        self,
        rules: Rules,
        node: NodeId,
        around: Circumstances,
        *,
        plan: Plan | None = None,
        now_s: float = 0.0,
    ) -> None:
        self.now_s, self.around = now_s, around
        self.living: dict[int, int] = {}
        self.hung: set[int] = set()
        self.performed: list[Action] = []
        self.timers: dict[Timer, StartTimer] = {}
        self.incarnation = -1
        self.coming: deque[Event] = deque()
        self._rules, self._node, self._plan, self._next_pid = rules, node, plan, 1000

    def wait(self) -> Iterable[Event]:
        """See ``interfaces.Executor``."""
        if not self.coming:
            self.fire(min(self.timers.values(), key=lambda timer: timer.at_s, default=None))
        return [self.coming.popleft()]

    def fire(self, timer: StartTimer | None) -> None:
        """Let the time of ``timer`` come."""
        if timer is None:
            raise Stuck(f"nothing will ever happen; living: {sorted(self.living)}")
        del self.timers[timer.timer]
        self.now_s = max(self.now_s, timer.at_s)
        self.post(TimerFired(at_s=self.now_s, incarnation=timer.incarnation, timer=timer.timer))

    def post(self, event: Event) -> None:
        """Have ``event`` returned by a coming ``wait``."""
        self.coming.append(event)

    def end(self, rank: int, status: ExitStatus) -> None:
        """A worker ends, of its own accord or by somebody's hand."""
        pid = self.living.pop(rank, None)
        self.hung.discard(rank)
        if pid is not None:
            self._happens(WorkerExit, self.incarnation, node=self._node, rank=rank, pid=pid, status=status)

    def _happens(self, kind: Callable[..., Event], incarnation: int, **fields: object) -> None:
        self.post(kind(at_s=self.now_s, incarnation=incarnation, **fields))

    def perform(self, action: Action) -> None:  # noqa: C901, PLR0912  one row a case
        """See ``interfaces.Executor``."""
        self.performed.append(action)
        match action:
            case StartTimer(timer=timer):
                self.timers[timer] = action
            case RequestGasp():
                self._request_gasp(action)
            case Kill(ranks=ranks):
                self._kill(ranks)
            case Sweep():
                self._sweep(action)
            case FindRecoveryPoint():
                self._survey(action)
            case Prepare(plan=plan):
                self._prepare(plan)
            case Publish(fact=fact):
                self._tell(fact)
            case Spawn():
                self._spawn(action)
            case VerifySave(incarnation=incarnation, rank=rank, path=path):
                self._happens(
                    GaspVerified,
                    incarnation,
                    rank=rank,
                    path=path,
                    whole=path.endswith("whole"),
                    why="read back",
                )
            case Inspect(incarnation=incarnation, suspicion=suspicion):
                self._happens(
                    HangDetected,
                    incarnation,
                    rank=suspicion.behind[0],
                    step=self.around.save_step,
                    doing=WorkPhase.COMPUTING,
                    stance=Activity.STOPPED,
                    silent_s=suspicion.silent_s,
                    limit_s=suspicion.limit_s,
                    why="is stopped (state T: SIGSTOP)",
                )
            case StartStandby(rank=rank):
                for state in (StandbyPhase.STARTING, StandbyPhase.READY):
                    self._standby(rank, state)
            case DismissStandbys(ranks=ranks, state=state):
                for rank in ranks:
                    self._standby(rank, state)
            case RaiseAlarm() | TellNodes() | RequestSave() | RestoreScheduling() | Wake():
                pass
            case RaiseStandbys() | GiveUpHandover() | SeatStandbys():
                pass

    def _standby(self, rank: int, state: StandbyPhase) -> None:
        self._happens(StandbyChanged, self.incarnation, rank=rank, state=state)

    def habit(self, rank: int) -> Habit:
        """What the worker does when it is asked to leave."""
        return self.around.habits.get(rank, Habit.OBEYS)

    def _kill(self, ranks: frozenset[int]) -> None:
        for rank in sorted(ranks & self.living.keys()):
            if self.habit(rank) is Habit.UNKILLABLE:
                self.hung.add(rank)
            else:
                self.end(rank, Signaled(signum=SIGKILL))

    def _request_gasp(self, order: RequestGasp) -> None:
        self._happens(
            GaspRequested,
            self.incarnation,
            ranks=tuple(sorted(order.ranks)),
            deadline=order.deadline,
            took_s=0.0,
        )
        for rank in sorted(order.ranks & self.living.keys()):
            if self.habit(rank) is Habit.OBEYS:
                self.end(rank, Signaled(signum=SIGTERM))
            elif self.habit(rank) is Habit.SAVES:
                self._save(rank)
                self.end(rank, Exited(code=128 + SIGTERM))

    def _save(self, rank: int) -> None:
        self._happens(
            GaspSaved,
            self.incarnation,
            rank=rank,
            path=f"gasp_{rank}_whole",
            step=self.around.save_step,
            size_bytes=1,
            took_s=0.25,
        )

    def _sweep(self, order: Sweep) -> None:
        stuck = (*self.living.values(), *self.around.straggling_descendants)
        notes = tuple(DeathNote(rank=rank, last_line=f"last words of {rank}") for rank in order.dead)
        self._happens(Drained, order.incarnation, stragglers=tuple(stuck), swept=0, notes=notes)

    def _survey(self, request: FindRecoveryPoint) -> None:
        life, why = request.incarnation, self.around.nothing_whole
        if why:
            self._happens(NothingWhole, life, refused=(), why=why)
        else:
            self._happens(RecoveryPointChosen, life, point=self.around.point, refused=())

    def _prepare(self, plan: Plan) -> None:
        if self.around.prepare_failure is not None:
            code, why = self.around.prepare_failure
            self._happens(PrepareFailed, plan.incarnation, exit_code=code, why=why)
            return
        self._happens(Prepared, plan.incarnation, master_port=20000 + plan.incarnation)

    def _tell(self, fact: NodeFact) -> None:
        answer = next_step(self._rules, self._plan, {fact.node: fact}, self.now_s)
        if isinstance(answer, PlanAdopted):
            self._plan = answer.plan
        if not isinstance(answer, Waiting):
            self.post(answer)

    def _spawn(self, order: Spawn) -> None:
        assert not self.living, f"spawned beside the living ranks {sorted(self.living)}"
        self.incarnation = order.plan.incarnation
        given_up = False
        for rank in order.ranks:
            given_up = given_up or rank in self.around.unstartable
            if given_up:
                self._happens(
                    SpawnFailed,
                    self.incarnation,
                    rank=rank,
                    errno=ENOENT,
                    why="could not start it: No such file or directory",
                )
            else:
                self._start(rank)
        if not given_up:
            self._happens(
                IncarnationStarted, self.incarnation, ranks=order.ranks, master_port=order.master_port
            )

    def _start(self, rank: int) -> None:
        self._next_pid += 1
        self.living[rank] = self._next_pid
        self._happens(WorkerStarted, self.incarnation, node=self._node, rank=rank, pid=self._next_pid)
