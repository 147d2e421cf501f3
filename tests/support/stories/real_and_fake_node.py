"""The same node twice, in memory and real, behind one face: what ``tests/contracts`` asks both of."""

import os
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol, TypeVar

from faultrun.checkpoints.catalog import Catalog
from faultrun.core.diagnosis.signature_table import ROWS
from faultrun.core.plan.next_plan import Rules
from faultrun.model.actions import Action, Spawn, StartTimer
from faultrun.model.events import Event, Timer, TimerFired
from faultrun.model.exits import Exited, ExitStatus, Signaled
from faultrun.model.plan import Plan
from faultrun.model.spec.output import Logs
from faultrun.model.spec.run_spec import Recovery, Rendezvous, RunSpec
from faultrun.model.topology import BootId
from faultrun.supervisor.checkpoints.finder import CheckpointFinder
from faultrun.supervisor.control import Control
from faultrun.supervisor.executor import LocalExecutor
from faultrun.supervisor.exit_inspector import ExitInspector
from faultrun.supervisor.hangs.inspection import Inspector
from faultrun.supervisor.interfaces import Executor
from faultrun.supervisor.launch.devices import DeviceAssignment
from faultrun.supervisor.launch.environment import SupervisorEnv
from faultrun.supervisor.launch.prepare import Preparer, WorkerCommand
from faultrun.supervisor.local_agreement import LocalAgreement
from faultrun.supervisor.reactor import Reactor, RunClock
from faultrun.supervisor.snapshots.memory import SnapshotMemory
from faultrun.supervisor.standby.pool import Standbys
from faultrun.supervisor.workers.worker_group import WorkerGroup
from faultrun.workers.fork_server import ForkServer
from faultrun.workers.logs.streams import Streams
from faultrun.workers.shared_deadline import SharedDeadline
from faultrun.workers.sweep import sweep
from support.machine.processes import wait_until
from support.stories.fake_world import Circumstances, FakeWorld, Habit
from support.stories.specs import a_spec
from support.stories.story import NODE, POLICY, first_plan, topology

E = TypeVar("E", bound=Event)

_WATCHDOG = 99
_PATIENCE_S = 20.0
_READY = "ready"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What a test needs of the node. Ranks from ``unstartable`` on cannot be started."""

    workers: int = 2
    habits: Mapping[int, Habit] = field(default_factory=dict)
    unstartable: int | None = None
    torn_checkpoint: bool = False
    taken_port: int | None = None


class Node(Protocol):
    """A world, and a hand that can do to its workers what fate does."""

    world: Executor

    def now_s(self) -> float:
        """Run-seconds."""
        ...

    def are_up(self, *ranks: int) -> None:
        """Return once these workers are in their main loop."""
        ...

    def end(self, rank: int, status: ExitStatus) -> None:
        """Have a worker end in this way."""
        ...

    def close(self) -> None:
        """Leave nothing behind."""
        ...


Make = Callable[[Wanted, Path], Node]


class FakeNode:
    """The node in memory."""

    def __init__(self, wanted: Wanted, folder: Path) -> None:
        ranks = range(wanted.workers)
        self._fake = FakeWorld(
            Rules(topology=topology(wanted.workers), policy=POLICY),
            NODE,
            Circumstances(
                habits=wanted.habits,
                unstartable=frozenset(ranks[wanted.unstartable :] if wanted.unstartable is not None else ()),
                nothing_whole="none whole" if wanted.torn_checkpoint else "",
                prepare_failure=(64, "port is taken") if wanted.taken_port else None,
            ),
        )
        self.world: Executor = self._fake

    def now_s(self) -> float:
        return self._fake.now_s

    def are_up(self, *ranks: int) -> None:
        """They always are."""

    def end(self, rank: int, status: ExitStatus) -> None:
        self._fake.end(rank, status)

    def close(self) -> None:
        """Memory needs no sweeping."""


class RealNode:
    """The real world on this machine, with small shell scripts for workers."""

    def __init__(self, wanted: Wanted, folder: Path) -> None:
        self._boot = BootId(os.urandom(8).hex())
        self._wanted = wanted
        self._folder = folder
        self.deadline = SharedDeadline()
        self._fork_server = ForkServer()
        spec = self._spec()
        self._reactor = Reactor(RunClock())
        self._control = Control(folder, self._reactor, 30.0, SnapshotMemory(lambda: None))
        clock = self._reactor.clock
        devices = DeviceAssignment(spec, os.environ, lambda line: None, folder)
        preparer = Preparer(spec, os.environ, folder / "original", clock, lambda line: None, devices)
        standbys = Standbys(spec.standby, folder, lambda: None, self._reactor)
        self._group = WorkerGroup(spec, self._env(), self._reactor, self._control, standbys)
        rules = Rules(topology=spec.topology, policy=POLICY)
        self.world: Executor = LocalExecutor(
            self._group,
            Inspector(self._group, self._reactor, folder),
            LocalAgreement(rules, None, self._reactor),
            CheckpointFinder(spec, Catalog(spec.recovery.checkpoint_dirs, settle_s=0.0), clock),
            preparer,
            self._reactor,
        )

    def now_s(self) -> float:
        return self._reactor.clock.now()

    def are_up(self, *ranks: int) -> None:
        for rank in ranks:
            log = self._folder / f"incarnation_{self._group.live.incarnation}" / f"worker_{rank}.log"
            wait_until(lambda log=log: _READY in log.read_text(), what=f"rank {rank}")  # type: ignore[misc]

    def end(self, rank: int, status: ExitStatus) -> None:
        """A worker is told by its script's own signal to return, or is killed."""
        pid = self._group.live.pids[rank]
        match status:
            case Exited(code=code):
                (self._folder / f"code_{rank}").write_text(str(code))
                os.kill(pid, signal.SIGUSR1)
            case Signaled(signum=signum):
                os.kill(pid, signum)

    def close(self) -> None:
        self._fork_server.close()
        sweep(frozenset({self._boot}), patience_s=5)
        while self._group.live.pids:
            self._reactor.wait()
        self._control.close()
        self._reactor.close()

    def _spec(self) -> RunSpec:
        wanted = self._wanted
        folder = self._folder / "ckpt"
        if wanted.torn_checkpoint:
            folder.mkdir()
            (folder / "net-1_5.ckpt").write_bytes(b"torn")
        if wanted.unstartable is not None:
            (self._folder / f"device{wanted.unstartable}").touch()
        return replace(
            a_spec("/bin/sh", "-c", workers=wanted.workers),
            recovery=Recovery(checkpoint_dirs=(str(folder),) if wanted.torn_checkpoint else ()),
            rendezvous=Rendezvous(port=wanted.taken_port, fixed_port=wanted.taken_port is not None),
        )

    def _env(self) -> SupervisorEnv:
        return SupervisorEnv(
            environ=os.environ,
            boot=self._boot,
            python="python",
            log_dir=self._folder,
            ascend=False,
            command=lambda plan, rank: WorkerCommand(args=(self._script(rank),), environ=os.environ),
            exits=ExitInspector(ROWS, self._reactor.clock),
            streams=Streams(Logs(), self._folder),
            deadline=self.deadline,
            leave=lambda: None,
            fork_server=self._fork_server,
        )

    def _script(self, rank: int) -> str:
        if self._wanted.habits.get(rank) is Habit.IGNORES:
            return f"trap '' TERM; echo {_READY}; exec sleep 60"
        code = self._folder / f"code_{rank}"
        return f"trap 'exit $(cat {code})' USR1; echo {_READY}; sleep 60 & wait"


def plan_of(wanted: Wanted, incarnation: int = 0) -> Plan:
    return first_plan(wanted.workers, incarnation=incarnation)


def spawn_of(wanted: Wanted, incarnation: int = 0) -> Spawn:
    return Spawn(
        plan=plan_of(wanted, incarnation),
        ranks=tuple(range(wanted.workers)),
        master_addr="127.0.0.1",
        master_port=29500,
    )


@dataclass(slots=True)
class Asked:
    """A node under question: actions in, events out, and an end to waiting."""

    node: Node
    events: list[Event] = field(default_factory=list)

    def perform(self, *actions: Action) -> None:
        for action in actions:
            self.node.world.perform(action)

    def until(self, kind: type[E], count: int = 1) -> list[E]:
        """Wait for ``count`` events of ``kind``; return them. Everything else is kept in ``events``."""
        deadline = StartTimer(
            timer=Timer.BACKOFF, at_s=self.node.now_s() + _PATIENCE_S, incarnation=_WATCHDOG
        )
        self.node.world.perform(deadline)
        found: list[E] = []
        while len(found) < count:
            for event in self.node.world.wait():
                late = isinstance(event, TimerFired) and event.incarnation == _WATCHDOG
                assert not late, f"no {kind.__name__} came, only {self.events}"
                self.events.append(event)
                if isinstance(event, kind):
                    found.append(event)
        return found
