"""Where MindSpore's ranks meet: our own scheduler in this process, or MindSpore's in one of its own."""

from collections.abc import Iterable, Mapping

from faultrun.frameworks.environment import WorkerLaunchSpec
from faultrun.frameworks.mindspore import scheduler_argv, scheduler_environment
from faultrun.model.events import Event, HelperExit
from faultrun.model.rendezvous import SchedulerFailed
from faultrun.model.spec import RunSpec
from faultrun.supervisor.builtin_scheduler import BuiltinScheduler
from faultrun.supervisor.reactor import Reactor
from faultrun.workers.logs import LogFiles
from faultrun.workers.process import Launch, Process, start


class Schedulers:
    """One an incarnation; it never outlives the workers it serves."""

    def __init__(self, spec: RunSpec, environ: Mapping[str, str], python: str, reactor: Reactor) -> None:
        self._spec = spec
        self._environ = environ
        self._python = python
        self._reactor = reactor
        self._ours: BuiltinScheduler | None = None
        self._processes: dict[int, Process] = {}

    def provide(self, life: WorkerLaunchSpec, logs: LogFiles) -> None:
        """Ours listens before the first worker runs; OSError if MindSpore's process cannot be started."""
        logs.link_scheduler()
        incarnation = life.plan.incarnation
        if not life.builtin_scheduler:
            self._start_process(life, logs, incarnation)
            return
        size, address = life.plan.topology.world_size, (life.master_addr, life.master_port)
        try:
            self._ours = BuiltinScheduler(self._reactor, size, incarnation, address, logs.scheduler)
        except OSError as error:
            why = f"cannot listen at {address[0]}:{address[1]}: {error.strerror}"
            self._reactor.post(SchedulerFailed(at_s=self._now(), incarnation=incarnation, why=why))

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

    def _start_process(self, life: WorkerLaunchSpec, logs: LogFiles, incarnation: int) -> None:
        process = start(
            Launch(
                argv=scheduler_argv(self._spec.command, self._python),
                env=scheduler_environment(self._environ, self._spec, life),
                stdout=logs.scheduler,
                cpus=self._spec.binding.scheduler_cpus,
                memory_nodes=self._spec.binding.scheduler_memory_nodes,
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
        yield HelperExit(
            at_s=self._now(), incarnation=incarnation, name="scheduler", pid=process.pid, status=status
        )

    def _now(self) -> float:
        return self._reactor.clock.now()
