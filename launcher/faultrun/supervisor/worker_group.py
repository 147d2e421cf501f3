"""The workers of this node, and MindSpore's scheduler: started, signalled, reaped."""

import contextlib
import signal
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from faultrun.frameworks.environment import WorkerLaunchSpec, WorkerPlacement, worker_environment
from faultrun.frameworks.mindspore import needs_scheduler
from faultrun.model.actions import Kill, RequestGasp, RestorePolicy, Spawn
from faultrun.model.events import (
    Event,
    Heartbeat,
    IncarnationStarted,
    SpawnFailed,
    WorkerExit,
    WorkerStarted,
    ended_well,
)
from faultrun.model.evidence import DeathNote
from faultrun.model.gasp import GaspRequested
from faultrun.model.plan import Plan
from faultrun.model.spec import MsScheduler, RunSpec
from faultrun.model.topology import BootId
from faultrun.supervisor.control import Control
from faultrun.supervisor.exit_inspector import ExitInspector
from faultrun.supervisor.head_start import head_start, listens_first
from faultrun.supervisor.orphans import Orphans
from faultrun.supervisor.prepare import Outfit
from faultrun.supervisor.progress import ProgressPage
from faultrun.supervisor.reactor import Reactor
from faultrun.supervisor.schedulers import Schedulers
from faultrun.supervisor.standbys import Standbys
from faultrun.supervisor.streams import Streams
from faultrun.workers import policy, unstarted
from faultrun.workers.follow import Follower
from faultrun.workers.logs import LogFiles
from faultrun.workers.process import Launch, Process, reap_strangers, start, undisturbed
from faultrun.workers.rotate import Rotator


@dataclass(frozen=True, slots=True, kw_only=True)
class Base:
    """What every worker of this supervisor inherits; read once, where the command line is read."""

    environ: Mapping[str, str]
    boot: BootId
    python: str
    log_dir: Path
    ascend: bool
    outfit: Callable[[Plan, int], Outfit]
    coroner: ExitInspector
    follower: Follower | None = None
    rotator: Rotator | None = None


class WorkerGroup:
    """Owns every process of one node. All methods run in the main thread (PDEATHSIG is per thread)."""

    def __init__(
        self, spec: RunSpec, base: Base, reactor: Reactor, control: Control, standbys: Standbys
    ) -> None:
        self._spec = spec
        self._base = base
        self._reactor = reactor
        self._control = control
        self.standbys = standbys
        self._leaving = False
        self._orphans = Orphans(reactor)
        self._workers: dict[int, Process] = {}
        self._schedulers = Schedulers(spec, base.environ, base.python, reactor)
        self._incarnation = -1
        self.page: ProgressPage | None = None
        self.request: RequestGasp | None = None
        self._streams: Streams | None = None

    def spawn(self, order: Spawn) -> None:
        """Start the scheduler if there is one, then every rank; post what became of each."""
        self._incarnation = order.plan.incarnation
        self._leaving, self.request = False, None
        self.standbys.begin(self._incarnation)
        self._orphans = Orphans(self._reactor)
        streams = self._new_streams()
        self._base.coroner.begin()
        started = 0
        try:
            streams.open(order.ranks)
            self._new_page(order, streams.files)
            life = self._life(order, streams.files)
            if needs_scheduler(self._spec):
                self._schedulers.provide(life, streams.files)
            for local_rank, rank in enumerate(order.ranks):
                warm = self._start_worker(order, life, local_rank, rank)
                started += 1
                if local_rank == 0 and not warm:
                    head_start(self._spec, order, self._workers[rank].pidfd)
        except OSError as error:
            # Those behind the first that cannot be started would only be killed again.
            self._post_failures(order.ranks[started:], error)
            return
        self._reactor.post(
            IncarnationStarted(
                at_s=self._now(),
                incarnation=self._incarnation,
                ranks=order.ranks,
                master_port=order.master_port,
            )
        )

    def request_gasp(self, order: RequestGasp) -> None:
        """SIGTERM, then SIGCONT in case it was stopped, to each leader; then the same by socket."""
        self._leaving, self.request = True, order
        self._orphans.promise(order.ranks)
        began = time.monotonic()
        leaders = [self._workers[rank] for rank in sorted(order.ranks) if rank in self._workers]
        with undisturbed():
            for worker in leaders:
                worker.signal_leader(signal.SIGTERM)
                worker.signal_leader(signal.SIGCONT)
            done_s, took_s = self._now(), time.monotonic() - began
        window_s = order.deadline_s - self._now()
        self._control.request_gasp(order.ranks, window_s, peers_lost=order.peers_lost)
        self._reactor.post(
            GaspRequested(
                at_s=done_s,
                incarnation=self._incarnation,
                ranks=tuple(sorted(order.ranks)),
                deadline_s=order.deadline_s,
                took_s=took_s,
            )
        )

    def ask_for_threads(self) -> None:
        """Have every worker write what its threads do, beside the main one; nothing of before is left."""
        if self.logs is not None:
            self.logs.drop_threads()
            self._control.request_threads(frozenset(self._workers))

    def wake(self, ranks: frozenset[int]) -> None:
        """SIGCONT to the whole process group of each rank: its children may have been stopped with it."""
        for rank in sorted(ranks & self._workers.keys()):
            self._workers[rank].wake_group()

    def kill(self, order: Kill) -> None:
        """SIGKILL to the whole process group of each rank."""
        self._leaving = True
        for rank in sorted(order.ranks & self._workers.keys()):
            self._workers[rank].kill_group()
            for event in self._orphans.give_up(rank):
                self._reactor.post(event)

    def restore_policy(self, order: RestorePolicy) -> None:
        """Schedule the workers as any process, if they are still those that were meant."""
        if order.incarnation == self._incarnation:
            for worker in self._workers.values():
                policy.as_usual(worker.pid)

    def dismiss_helpers(self) -> None:
        """End the scheduler: the workers it served are gone."""
        self._schedulers.dismiss()

    def reap_strangers(self) -> Iterable[Event]:
        """SIGCHLD: adopted orphans are taken out of the process table."""
        ours = frozenset(process.pid for process in self._workers.values())
        reap_strangers(ours | self._schedulers.pids() | self.standbys.pids())
        return ()

    def spared(self) -> frozenset[int]:
        """Processes that outlive the incarnation: a sweep passes them over."""
        return self.standbys.pids()

    def death_notes(self, ranks: tuple[int, ...]) -> tuple[DeathNote, ...]:
        """What the logs of the dead say last; called from the helper thread once all have ended."""
        if self.logs is None or self.page is None:
            return ()
        with contextlib.suppress(OSError):
            self.logs.drop_unused()
        return self._base.coroner.notes(ranks, self.logs, self.page.reporting())

    @property
    def logs(self) -> LogFiles | None:
        """The log files of the incarnation; None before the first."""
        return self._streams.files if self._streams is not None else None

    @property
    def incarnation(self) -> int:
        """The incarnation whose workers these are; -1 before the first."""
        return self._incarnation

    def newest_steps(self) -> Iterable[Event]:
        """How far everybody is, read before a death is judged."""
        steps = self.page.steps() if self.page is not None else ()
        if steps:
            yield Heartbeat(at_s=self._now(), incarnation=self._incarnation, steps=steps)

    def pids(self) -> Mapping[int, int]:
        """Rank to pid of the living workers."""
        return {rank: worker.pid for rank, worker in self._workers.items()}

    def workers(self) -> dict[int, Process]:
        """Rank to process of the living workers, as they are now."""
        return dict(self._workers)

    def _new_streams(self) -> Streams:
        files = LogFiles(
            log_dir=self._base.log_dir,
            worker_name=self._spec.logs.worker_log_name,
            incarnation=self._incarnation,
        )
        self._streams = Streams(self._spec.logs, files, self._base.follower, self._base.rotator)
        return self._streams

    def _new_page(self, order: Spawn, logs: LogFiles) -> None:
        if self.page is not None:
            self.page.close()
            self.page = None  # on a full disk there may be no other
        self.page = ProgressPage(logs.folder / "progress", order.ranks)
        self._control.begin(self._incarnation, self.page)

    def _life(self, order: Spawn, logs: LogFiles) -> WorkerLaunchSpec:
        assert self.page is not None
        return WorkerLaunchSpec(
            boot=self._base.boot,
            plan=order.plan,
            master_addr=order.master_addr,
            master_port=order.master_port,
            socket=str(self._control.path),
            progress_page=str(self.page.path.absolute()),
            error_dir=str(logs.folder.absolute()),
            group_info_dir=str(self._base.log_dir.absolute()),
            ascend=self._base.ascend,
            builtin_scheduler=self._serves_itself(order),
        )

    def _serves_itself(self, order: Spawn) -> bool:
        ours = self._spec.rendezvous.ms_scheduler is MsScheduler.BUILTIN
        return ours and not order.native_scheduler and needs_scheduler(self._spec)

    def _start_worker(self, order: Spawn, life: WorkerLaunchSpec, local_rank: int, rank: int) -> bool:
        """True when a standby became this worker."""
        assert self._streams is not None
        outfit = self._base.outfit(order.plan, rank)
        seat = WorkerPlacement(
            rank=rank,
            local_rank=local_rank,
            node_rank=order.plan.topology.node_rank(self._spec.node),
            local_world_size=len(order.ranks),
            device=outfit.device,
        )
        group_info = self._base.log_dir / f"device{rank}"
        launch = Launch(
            argv=(*self._spec.command.prefix, *outfit.args),
            env=worker_environment(outfit.environ, self._spec, seat, life),
            stdout=self._streams.files.worker(rank),
            stderr=self._streams.errors(rank, local_rank),
            cpus=_share(self._spec.binding.cpus, local_rank),
            memory_nodes=_share(self._spec.binding.memory_nodes, local_rank),
        )
        group_info.mkdir(exist_ok=True)
        port = listens_first(self._spec, order, local_rank)
        standby = self.standbys.take(rank, launch, port) if rank in order.standbys else None
        self.standbys.remember(rank, launch)
        self._employ(rank, standby or start(launch), standby=standby is not None)
        if life.builtin_scheduler and order.plan.topology.world_size > 1:
            policy.without_preempting(self._workers[rank].pid)
        self._streams.show(rank, local_rank)
        return standby is not None

    def _employ(self, rank: int, worker: Process, *, standby: bool) -> None:
        """From now on this process is the worker of ``rank``."""
        self._workers[rank] = worker
        self._reactor.watch(worker.pidfd, lambda: self._worker_ended(rank))
        self._reactor.post(
            WorkerStarted(
                at_s=self._now(),
                incarnation=self._incarnation,
                node=self._spec.node,
                rank=rank,
                pid=worker.pid,
                standby=standby,
            )
        )

    def _worker_ended(self, rank: int) -> Iterable[Event]:
        """It is gone with its leader, unless it was promised time to save and a program of it still lives."""
        worker = self._workers[rank]
        self._reactor.forget(worker.pidfd)
        ended = worker.ended_as()
        gone = partial(self._worker_gone, rank)
        return () if ended and self._orphans.outlive(rank, worker.pid, ended, gone) else gone()

    def _worker_gone(self, rank: int) -> Iterable[Event]:
        worker = self._workers[rank]
        # Until it is reaped its number still means its group; what a clean end leaves behind is swept last.
        ended, done = worker.ended_as(), self.page is not None and self.page.done(rank)
        if ended is not None and not ended_well(ended, done=done):
            self._base.coroner.saw(rank, worker.pid, ended)
            worker.kill_group()
        status = worker.reap()
        assert status is not None, "a readable pidfd is a process that ended"
        del self._workers[rank]
        instead = self.standbys.unanswered(rank, restart=not self._leaving)
        if instead is not None:
            self._start_instead(rank, instead)
            return
        yield from self.newest_steps()
        left = WorkerExit(
            at_s=self._now(),
            incarnation=self._incarnation,
            node=self._spec.node,
            rank=rank,
            pid=worker.pid,
            status=status,
            done=done,
        )
        yield left
        if left.clean:
            yield from self._schedulers.left(rank)

    def _start_instead(self, rank: int, launch: Launch) -> None:
        """Cold, where a standby was lost before it became the worker."""
        try:
            self._employ(rank, start(launch), standby=False)
        except OSError as error:
            self._post_failures((rank,), error)

    def _post_failures(self, ranks: tuple[int, ...], error: OSError) -> None:
        why = unstarted.why(error, self._spec.command.prefix[0], self._base.log_dir)
        for rank in ranks:
            self._reactor.post(
                SpawnFailed(
                    at_s=self._now(),
                    incarnation=self._incarnation,
                    rank=rank,
                    errno=error.errno or 0,
                    why=why,
                )
            )

    def _now(self) -> float:
        return self._reactor.clock.now()


def _share(shares: tuple[tuple[int, ...], ...], local_rank: int) -> tuple[int, ...]:
    return shares[local_rank] if local_rank < len(shares) else ()
