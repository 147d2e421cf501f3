"""Where ranks meet: MindSpore's at our own scheduler or its own process, torch's at rank 0."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from faultrun.frameworks.environment import WorkerLaunchSpec
from faultrun.frameworks.mindspore import scheduler_argv, scheduler_environment
from faultrun.model.actions import Spawn
from faultrun.model.events import Event, HelperExit
from faultrun.model.observed.mindspore_rendezvous import SchedulerFailed
from faultrun.model.spec.run_spec import Framework, RunSpec
from faultrun.supervisor.reactor import Reactor
from faultrun.workers.launch import Launch
from faultrun.workers.logs.log_files import LogFiles
from faultrun.workers.process import Process, start
from faultrun.workers.standby import Listener

if TYPE_CHECKING:
    from faultrun.supervisor.workers.mindspore_scheduler import BuiltinScheduler

_HEAD_START_S = 0.1
"""Measured: torch's rendezvous ends 0.36 s earlier with 2 workers, 0.3 s with 4 (docs/decisions)."""


class Schedulers:
    """One an incarnation; it never outlives the workers it serves."""

    def __init__(self, spec: RunSpec, environ: Mapping[str, str], python: str, reactor: Reactor) -> None:
        self._spec, self._environ, self._python = spec, environ, python
        self._reactor = reactor
        self._ours: BuiltinScheduler | None = None
        self._processes: dict[int, Process] = {}

    def provide(self, shared: WorkerLaunchSpec, logs: LogFiles) -> None:
        """Ours listens before the first worker runs; OSError if MindSpore's process cannot be started."""
        logs.link_scheduler()
        incarnation = shared.plan.incarnation
        if not shared.builtin_scheduler:
            self._start_process(shared, logs, incarnation)
            return
        from faultrun.supervisor.workers.mindspore_scheduler import BuiltinScheduler  # noqa: PLC0415  MindSpore's only

        size, address = shared.plan.topology.world_size, (shared.master_addr, shared.master_port)
        try:
            self._ours = BuiltinScheduler(self._reactor, size, incarnation, address, logs.scheduler)
        except OSError as error:
            why = f"cannot listen at {address[0]}:{address[1]}: {error.strerror}"
            self._reactor.post(SchedulerFailed(at_s=self._reactor.now(), incarnation=incarnation, why=why))

    def left(self, rank: int) -> Iterable[Event]:
        """A rank has ended with exit code 0: those that wait for it at ours would wait for ever."""
        return self._ours.left(rank) if self._ours is not None else ()

    def dismiss(self) -> None:
        """The workers it served are gone."""
        if self._ours is not None:
            self._ours.close()
            self._ours = None
        for process in self._processes.values():
            process.kill_group()

    def pids(self) -> frozenset[int]:
        """MindSpore's processes that have not been reaped."""
        return frozenset(self._processes)

    def _start_process(self, shared: WorkerLaunchSpec, logs: LogFiles, incarnation: int) -> None:
        process = start(
            Launch(
                argv=scheduler_argv(self._spec.command, self._python),
                env=scheduler_environment(self._environ, self._spec, shared),
                stdout=logs.scheduler,
                cpus=self._spec.binding.scheduler_cpus,
                memory_nodes=self._spec.binding.scheduler_memory_nodes,
                hooked=True,
            )
        )
        self._processes[process.pid] = process
        self._reactor.watch(process.pidfd, lambda: self._ended(process, incarnation))

    def _ended(self, process: Process, incarnation: int) -> Iterable[Event]:
        """One that was dismissed may end when the next incarnation has its own already."""
        self._reactor.forget(process.pidfd)
        del self._processes[process.pid]
        status = process.reap()
        assert status is not None, "a readable pidfd is a process that ended"
        at_s, pid = self._reactor.now(), process.pid
        yield HelperExit(at_s=at_s, incarnation=incarnation, name="scheduler", pid=pid, status=status)


def listens_first(spec: RunSpec, order: Spawn, local_rank: int) -> Listener | None:
    """Where rank 0, started before this one, will listen for it; None where it does not."""
    here = _rank_0_is_here(spec, order)
    if spec.framework is not Framework.TORCH or (here and local_rank == 0):
        return None
    return Listener(address="" if here else order.master_addr, port=order.master_port)


def _rank_0_is_here(spec: RunSpec, order: Spawn) -> bool:
    return spec.framework is Framework.TORCH and order.plan.topology.node_rank(spec.node) == 0


def head_start(spec: RunSpec, order: Spawn, first: Process) -> None:
    """Ranks that import side by side arrive side by side: rank 0 goes first."""
    if len(order.ranks) > 1 and _rank_0_is_here(spec, order):
        first.wait(_HEAD_START_S)
