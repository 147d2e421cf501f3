"""Every action is performed here and nowhere else; what comes of it returns as events."""

from collections.abc import Callable, Iterable

from faultrun.errors import assert_never
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
    RestorePolicy,
    Spawn,
    StartStandby,
    StartTimer,
    Sweep,
    VerifySave,
    Wake,
)
from faultrun.model.events import Drained, Event, PrepareFailed, Timer
from faultrun.model.gasp import GaspVerified
from faultrun.supervisor.background import BackgroundTasks
from faultrun.supervisor.hang_watch import HangWatch
from faultrun.supervisor.ports import Agreement, CheckpointFinder, Preparer
from faultrun.supervisor.reactor import Reactor
from faultrun.supervisor.worker_group import WorkerGroup
from faultrun.workers.sweep import sweep

_SWEEP_PATIENCE_S = 10.0
_JOIN_BEFORE_FORK_S = 5.0
_BUSY_S = 1.0
_INTERNAL = 70


class LocalWorld:
    """Implements ``ports.World`` with this node's processes, files and clock."""

    def __init__(
        self,
        reactor: Reactor,
        crew: WorkerGroup,
        agreement: Agreement,
        finder: CheckpointFinder,
        preparer: Preparer,
        boots: frozenset[str],
        hangs: HangWatch,
    ) -> None:
        self._reactor = reactor
        self._crew = crew
        self._agreement = agreement
        self._finder = finder
        self._preparer = preparer
        self._boots = boots
        self._hangs = hangs
        self._errands = BackgroundTasks(reactor)
        self._readings = BackgroundTasks(reactor)

    def wait(self) -> Iterable[Event]:
        """See ``ports.World``."""
        events = self._reactor.wait()
        self._errands.raise_bug()
        self._readings.raise_bug()
        self._hangs.raise_bug()
        for event in events:
            self._hangs.told(event)
        return events

    def perform(self, action: Action) -> None:  # noqa: C901, PLR0912  one row a case
        """See ``ports.World``."""
        match action:
            case RequestGasp():
                self._crew.request_gasp(action)
                self._hangs.end()
            case Inspect():
                self._hangs.inspect(action)
            case Wake(ranks=ranks):
                self._crew.wake(ranks)
            case Kill():
                self._crew.kill(action)
                self._hangs.end()
            case StartTimer(timer=timer, at_s=at_s, incarnation=incarnation):
                self._reactor.start_timer(timer, at_s, incarnation)
            case Spawn(patience=patience):
                # fork() copies only the calling thread; the helper thread has nothing left to do by now.
                self._errands.settle(_JOIN_BEFORE_FORK_S)
                self._readings.settle(_JOIN_BEFORE_FORK_S)
                self._hangs.settle(_JOIN_BEFORE_FORK_S)
                self._crew.spawn(action)
                self._hangs.begin(patience)
            case RestorePolicy():
                self._crew.restore_policy(action)
            case StartStandby(incarnation=incarnation) if not self._quiet():
                self._reactor.start_timer(Timer.STANDBY, self._now() + _BUSY_S, incarnation)
            case StartStandby() | DismissStandbys() | RaiseStandbys() | GiveUpHandover():
                self._crew.standbys.perform(action)
            case VerifySave():
                self._readings.send(
                    lambda: self._verify(action), self._bug(self._readings, action.incarnation)
                )
            case Sweep():
                self._hangs.end()
                self._crew.dismiss_helpers()
                self._errand(action.incarnation, lambda: self._sweep(action))
            case FindRecoveryPoint():
                self._readings.drop()
                self._errand(action.incarnation, lambda: self._survey(action))
            case Prepare(plan=plan):
                self._errand(plan.incarnation, lambda: self._preparer.prepare(plan, self._now()))
            case Publish(fact=fact):
                self._agreement.state(fact)
            case RaiseAlarm(incarnation=incarnation, why=why):
                self._agreement.raise_alarm(incarnation, why)
            case other:
                assert_never(other)

    @property
    def readings(self) -> BackgroundTasks:
        """Who looks at checkpoints while workers run; a file system that hangs holds up nobody else."""
        return self._readings

    def settle(self) -> None:
        """Wait, bounded, for what must not be cut; called once the loop has ended."""
        self._errands.settle(_SWEEP_PATIENCE_S)

    def _quiet(self) -> bool:
        """Whether no errand is under way: then a fork copies no other thread's locks."""
        return self._errands.idle() and self._readings.idle()

    def _errand(self, incarnation: int, errand: Callable[[], Iterable[Event]]) -> None:
        self._errands.send(errand, self._bug(self._errands, incarnation))

    def _bug(self, errands: BackgroundTasks, incarnation: int) -> Callable[[], Event]:
        def bug() -> Event:
            why = f"a bug in faultrun: {errands.bug!r}"
            return PrepareFailed(at_s=self._now(), incarnation=incarnation, exit_code=_INTERNAL, why=why)

        return bug

    def _survey(self, action: FindRecoveryPoint) -> Iterable[Event]:
        """The catalog belongs to one thread at a time, and what is being read back is soon known."""
        self._readings.settle(None)
        yield self._finder.find(action, self._now())

    def _verify(self, action: VerifySave) -> Iterable[Event]:
        """Whether the window may end is judged by how far everybody is when the save has been read."""
        verified = self._verified(action)
        yield from self._crew.newest_steps()
        yield verified

    def _verified(self, action: VerifySave) -> Event:
        verdict = self._finder.read_back(action.path)
        return GaspVerified(
            at_s=self._now(),
            incarnation=action.incarnation,
            rank=action.rank,
            path=action.path,
            whole=verdict.whole,
            why=verdict.why,
        )

    def _sweep(self, action: Sweep) -> Iterable[Event]:
        swept, stragglers = sweep(self._boots, patience_s=_SWEEP_PATIENCE_S, spare=self._crew.spared())
        yield Drained(
            at_s=self._now(),
            incarnation=action.incarnation,
            stragglers=stragglers,
            swept=swept,
            notes=self._crew.death_notes(action.dead),
        )

    def _now(self) -> float:
        return self._reactor.clock.now()
