"""Every action is performed here and nowhere else; what comes of it returns as events."""

from collections.abc import Iterable
from dataclasses import replace

from faultrun.errors import assert_never
from faultrun.journal.codec import get_ready
from faultrun.model.actions import (
    Action,
    DismissStandbys,
    ExamineDeaths,
    FindRecoveryPoint,
    FreeSurvivors,
    GiveUpHandover,
    Inspect,
    Kill,
    ParkStandby,
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
    SweepRanks,
    TellNodes,
    VerifySave,
    Wake,
)
from faultrun.model.events import (
    Drained,
    Event,
    IncarnationStarted,
    NodesEvent,
    Prepared,
    RecoveryPointChosen,
    Timer,
    WorkerExit,
    WorkerStarted,
)
from faultrun.model.observed.dying_gasp import GaspVerified
from faultrun.model.spec.windows import Deadline
from faultrun.supervisor.checkpoints.finder import CheckpointFinder
from faultrun.supervisor.hangs.inspection import Inspector
from faultrun.supervisor.interfaces import Agreement
from faultrun.supervisor.launch.prepare import Preparer
from faultrun.supervisor.reactor import BackgroundTasks, Reactor
from faultrun.supervisor.snapshots.to_files import HeldStates
from faultrun.supervisor.workers.worker_group import WorkerGroup

_LAST_CHORE_S = 10.0
_JOIN_BEFORE_FORK_S = 5.0
"""From the beginning of what is under way: a file system that hangs is not waited for anew each time."""
_BUSY_S, _LOOK_AROUND_S = 1.0, 1.0
_LATE_S = 30.0
"""After a start: the workers need the processors first, and seldom fail at once."""

_OF_A_RECOVERY = (
    WorkerExit,
    Sweep,
    Drained,
    FindRecoveryPoint,
    RecoveryPointChosen,
    Publish,
    NodesEvent,
    Prepare,
    Prepared,
    Spawn,
    WorkerStarted,
    IncarnationStarted,
)


class LocalExecutor:
    """Implements ``interfaces.Executor`` with this node's processes, files and clock.

    Each has its own thread: ``_chores`` sweeps, looks for the recovery point and prepares, in this order.
    ``readings`` read saves back while workers run; only the look for the recovery point waits for it.
    ``checks`` has health checks.
    """

    def __init__(
        self,
        group: WorkerGroup,
        inspector: Inspector,
        agreement: Agreement,
        finder: CheckpointFinder,
        preparer: Preparer,
        reactor: Reactor,
    ) -> None:
        self._group, self._inspector = group, inspector
        self._agreement, self._finder = agreement, finder
        self._preparer, self._reactor = preparer, reactor
        self._chores = BackgroundTasks(reactor)
        self.readings = BackgroundTasks(reactor)
        self.checks = BackgroundTasks(reactor)
        self._tasks = (self._chores, self.readings, self.checks, inspector.tasks, group.looks)
        self._last_sweep: tuple[Sweep, HeldStates] | None = None

    def wait(self) -> Iterable[Event]:
        """Wait until something happens; return it as events."""
        return self._reactor.wait()

    def perform(self, action: Action) -> None:  # noqa: C901, PLR0912, PLR0915  one row a case
        """Perform one action; what comes of it returns as events."""
        match action:
            case RequestGasp():
                self._group.request_gasp(action)
            case RequestSave(window_s=window_s):
                self._group.request_save(window_s)
            case Inspect():
                self._inspector.inspect(action)
            case Wake(ranks=ranks):
                self._group.wake(ranks)
            case Kill():
                self._group.kill(action)
            case StartTimer(timer=timer, at_s=at_s, incarnation=incarnation):
                self._reactor.start_timer(timer, at_s, incarnation)
            case Spawn():
                # fork() copies only the calling thread; the helper threads have nothing left to do by now.
                for tasks in self._tasks:
                    tasks.settle(tasks.occupied_s(_JOIN_BEFORE_FORK_S))
                self._last_sweep = None
                self._group.spawn(action)
                self._reactor.call_at(self._reactor.now() + _LOOK_AROUND_S, self._look_around)
            case FreeSurvivors():
                self._group.newcomers.free_survivors(action)
            case ExamineDeaths():
                self._chores.send(lambda: (self._group.examine(action),))
            case SweepRanks():
                self._chores.send(lambda: self._group.sweep_ranks(action))
            case RestoreScheduling():
                self._group.restore_scheduling(action)
            case ParkStandby():
                self._group.newcomers.park(action)
            case StartStandby(incarnation=incarnation) if any(
                tasks.occupied_s(_JOIN_BEFORE_FORK_S) for tasks in self._tasks
            ):
                # A fork would copy the locks that another thread holds; who hangs in the kernel holds none.
                self._reactor.start_timer(Timer.STANDBY, self._reactor.now() + _BUSY_S, incarnation)
            case StartStandby(rank=rank):
                self._group.foresee(rank)
                self._group.standbys.perform(action)
            case DismissStandbys() | RaiseStandbys() | GiveUpHandover() | SeatStandbys():
                self._group.standbys.perform(action)
            case VerifySave():
                self.readings.send(lambda: self._verify(action))
            case Sweep():
                self._group.dismiss_helpers()
                held = self._group.held_states()
                self._last_sweep = (action, held)
                self._chores.send(lambda: self._group.sweep(action, held))
            case FindRecoveryPoint():
                self.readings.drop()
                self._write_what_was_lost_since()
                self._chores.send(lambda: self._find(action))
            case Prepare(plan=plan):
                self._chores.send(lambda: self._preparer.prepare(plan, self._reactor.now()))
            case Publish(fact=fact):
                self._agreement.publish(fact)
            case RaiseAlarm():
                self._agreement.raise_alarm(action)
            case TellNodes(incarnation=incarnation, works=works):
                self._agreement.tell_nodes(incarnation, works)
            case other:
                assert_never(other)

    def settle(self) -> None:
        """Wait, bounded, for what must not be cut; called once the loop has ended."""
        self._chores.settle(_LAST_CHORE_S)

    def _look_around(self) -> Iterable[Event]:
        """Note which processes are not ours while workers train: the sweep then passes over them."""
        if not self._group.leaving and all(tasks.idle() for tasks in self._tasks):
            self._chores.offer(self._get_ready)
        return ()

    def _get_ready(self) -> Iterable[Event]:
        get_ready(*_OF_A_RECOVERY)
        return self._group.look_around()

    def _write_what_was_lost_since(self) -> None:
        """Write copies of a node that was not known to be lost at the sweep, and is when its lease is over.

        Then all nodes look again, and see what is written here.
        """
        if self._last_sweep is None:
            return
        order, before = self._last_sweep
        held = self._group.held_states()
        late = held.lost_since(before)
        if late is not None and not order.write_by.is_over(self._reactor.now()):
            self._last_sweep = (order, held)
            self._chores.send(lambda: self._write_late(order, late))

    def _write_late(self, order: Sweep, late: HeldStates) -> Iterable[Event]:
        now_s = self._reactor.now()
        return late.write(order, Deadline.after(_LATE_S, now_s), now_s)

    def _find(self, action: FindRecoveryPoint) -> Iterable[Event]:
        """The catalog belongs to one thread at a time: what is being read back is awaited."""
        self.readings.settle(None)
        found = self._finder.find(action, self._reactor.now())
        if isinstance(found, RecoveryPointChosen):
            found = replace(found, open_port=self._preparer.open_port())
        yield found

    def _verify(self, action: VerifySave) -> Iterable[Event]:
        """Whether the window may end is judged by how far all are when the save has been read."""
        verdict = self._finder.read_back(action.path)
        verified = GaspVerified(
            at_s=self._reactor.now(),
            incarnation=action.incarnation,
            rank=action.rank,
            path=action.path,
            whole=verdict.whole,
            why=verdict.why,
        )
        yield from self._group.live.newest_steps()
        yield verified
