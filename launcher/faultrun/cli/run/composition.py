"""The only place that constructs: the real world is put together around one ``RunSpec`` here."""

import os
from collections.abc import Callable
from contextlib import ExitStack, closing
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

from faultrun import __version__
from faultrun.checkpoints.catalog import Catalog
from faultrun.checkpoints.registry import registry_for
from faultrun.cli.resolve.context import ProcessContext
from faultrun.cli.run.agreed_rules import rules_of
from faultrun.cli.run.helpers import LEFTOVERS_PATIENCE_S, Helpers, fork_helpers
from faultrun.cli.run.outlets import ReadyNotifier, meter_for, narrator_for, without_secrets
from faultrun.cli.run.start_and_end import (
    ORIGINALS,
    absolute,
    answered_again,
    asked_otherwise,
    at_end,
    begin_anew,
    going_on,
    of_this_run,
    other_script,
    tells_apart,
)
from faultrun.cli.run.told_by_signals import SignalsTold
from faultrun.core.diagnosis.signature_table import ROWS
from faultrun.core.phases.begin import plan_to_go_on_from
from faultrun.core.phases.one_stop import STOP_SOURCES
from faultrun.core.redact import without_logins
from faultrun.core.standby.state import StandbyState
from faultrun.files import text_of
from faultrun.frameworks.mindspore import needs_scheduler
from faultrun.journal.append import JournalWriter, utc_now
from faultrun.journal.codec import encode
from faultrun.journal.logdir import claim, claim_again, mark_ended, write_record
from faultrun.model.events import RunStarted
from faultrun.model.run import RunState
from faultrun.model.spec.run_spec import MsScheduler, RunSpec, SignalAnswer
from faultrun.model.topology import BootId
from faultrun.platforms.cgroup import memory_group, oom_kill_count, processor_sample, spendable_bytes
from faultrun.platforms.folder_watch import folders_beside
from faultrun.platforms.this_machine import KERNEL_BOOT, accelerators_of, hostname
from faultrun.supervisor.checkpoints.finder import CheckpointFinder
from faultrun.supervisor.checkpoints.first_save import FirstSaveWatch
from faultrun.supervisor.checkpoints.other_runs import OtherRuns
from faultrun.supervisor.checkpoints.read_ahead import ReadAhead
from faultrun.supervisor.checkpoints.resume_check import ResumeCheck
from faultrun.supervisor.checkpoints.save_watch import SaveWatch
from faultrun.supervisor.control import Control
from faultrun.supervisor.emergency_window import let_save
from faultrun.supervisor.executor import LocalExecutor
from faultrun.supervisor.exit_inspector import ExitInspector
from faultrun.supervisor.hangs.inspection import Inspector
from faultrun.supervisor.hangs.log_watch import LogWatch
from faultrun.supervisor.hangs.watch import HangWatch
from faultrun.supervisor.interfaces import Agreement
from faultrun.supervisor.launch.devices import DeviceAssignment
from faultrun.supervisor.launch.environment import SupervisorEnv
from faultrun.supervisor.launch.prepare import Preparer
from faultrun.supervisor.launch.progress_page import LiveWorkers, lost_workers, write_heartbeats
from faultrun.supervisor.local_agreement import LocalAgreement
from faultrun.supervisor.loop import supervise
from faultrun.supervisor.reactor import Reactor, RunClock
from faultrun.supervisor.snapshots.memory import SnapshotMemory
from faultrun.supervisor.snapshots.to_next_node import NextNode
from faultrun.supervisor.standby.headroom_watch import HeadroomWatch
from faultrun.supervisor.standby.pool import Standbys
from faultrun.supervisor.workers.worker_group import WorkerGroup
from faultrun.terminal import BottomRow
from faultrun.workers.signals import SignalPipe
from faultrun.workers.sweep import sweep

if TYPE_CHECKING:
    from faultrun.nodes.agent.agreement import NodesAgreement
    from faultrun.supervisor.platform.capacity import CapacityWatch
    from faultrun.supervisor.platform.fault_files import FaultFileWatcher


class _Closes(Protocol):
    def close(self) -> None: ...


C = TypeVar("C", bound=_Closes)


class Supervisor:
    """One supervisor process: ``run`` returns the exit code and the last line, ``close`` leaves nothing.

    ``stopped``: it was told to end. ``row`` is the last one of the terminal, where the live line stands.
    """

    def __init__(
        self,
        spec: RunSpec,
        process: ProcessContext,
        say: Callable[[str], None],
        ready: Callable[[], None],
        row: BottomRow | None,
    ) -> None:
        self._process, self._say, self._ready = process, say, ready
        self._row = row
        self._boot = BootId(os.urandom(8).hex())
        self.log_dir = Path(spec.logs.log_dir).absolute()
        start = RunState(
            node=spec.node,
            topology=spec.topology,
            windows=spec.supervision.windows,
            exit_codes=spec.supervision.policy.exit_codes,
            shrinks=spec.elastic is not None and not spec.elastic.min_nodes,
            fewer_nodes=spec.resizes and len(spec.topology.nodes) > 1,
        )
        self._claimed = claim(self.log_dir, start, spec.run_id, partial(other_script, spec))
        past, self._asked_id = self._claimed.past, spec.run_id
        self._spec = of_this_run(spec, self._claimed)
        self._state = start if past is None else past.state
        self._next_seq = 0 if past is None else past.next_seq
        lost = lost_workers(self._state, self._spec.logs, self.log_dir, RunClock())
        self._came_to = max((one.step for life in lost for one in life.steps), default=None)
        self._stack, self._last = ExitStack(), ExitStack()
        self._look_again: Callable[[int], tuple[int, str]] = lambda code: (code, "")
        self.stopped = self.began = False

    @property
    def journal(self) -> Path:
        """Path of the journal."""
        return self._claimed.journal

    def run(self) -> tuple[int, str]:
        """Supervise until the run is over."""
        if self._claimed.untold is not None:
            return answered_again(self._claimed, self._spec, self._say)
        self._make_room()
        past = self._claimed.past
        clock = RunClock(0.0 if past is None else past.run_s_at(datetime.now(timezone.utc)))
        helpers = fork_helpers(self._spec, self.log_dir, self._next_seq, self._row, self._boot, self._stack)
        nodes = self._nodes(helpers, clock)
        reactor = Reactor(clock)
        windows = self._spec.supervision.windows
        memory = SnapshotMemory(spendable_bytes)
        neighbour = NextNode(self._spec.run_id, self._spec.node, self._spec.rendezvous, memory, reactor)
        control = self._kept(Control(self.log_dir, reactor, windows.stop_grace_s, memory, neighbour))
        self._write_record(control)
        journal = self._writer(control)
        environ, originals = self._process.environ, self.log_dir / ORIGINALS
        devices = DeviceAssignment(self._spec, environ, self._say, self.log_dir)
        preparer = Preparer(self._spec, environ, originals, clock, self._say, devices)
        env = self._supervisor_env(preparer, helpers, clock)
        standbys = self._kept(Standbys(self._spec.standby, self.log_dir, spendable_bytes, reactor))
        group = WorkerGroup(self._spec, env, reactor, control, standbys)
        inspector = Inspector(group, reactor, self.log_dir)
        catalog, agreement = self._catalog(), self._agreement(reactor, nodes, group.live)
        logs = LogWatch(reactor, group.live)
        beside = folders_beside(self._spec.command.script_args)
        saves = self._kept(SaveWatch(reactor, catalog.roots, beside, logs, self._state.run))
        finder = self._finder(catalog, clock, saves)
        world = LocalExecutor(group, inspector, agreement, finder, preparer, reactor)
        saves.attach(world.readings, finder)
        self._stack.callback(world.settle)
        self._stack.callback(devices.abandon)
        supervision, say = self._spec.supervision, self._say
        told = SignalsTold(supervision=supervision, reactor=reactor, group=group, control=control, say=say)
        told.listen(pipe := self._last.enter_context(closing(SignalPipe())), self._process.environ)
        reactor.post(self._started(clock, helpers.fault_files))
        for lost in lost_workers(self._state, self._spec.logs, self.log_dir, clock):
            reactor.post(lost)
        if helpers.fault_files is not None:
            helpers.fault_files.attach(reactor, group.live)
        write_heartbeats(reactor, group.live)
        narrator = self._narrator = narrator_for(self._spec, self.log_dir, self._say)
        listeners = (
            *(narrator, preparer, saves),
            ResumeCheck(reactor, self._spec.recovery, saves, group.live),
            logs,
            HangWatch(self._spec.supervision.hang, group.live, inspector, reactor, logs),
            FirstSaveWatch(reactor, world.readings, finder.listed, saves.is_early, catalog.is_left_alone),
            ReadAhead(reactor, world.readings, catalog.look_ahead),
            HeadroomWatch(self._spec.standby, self._spec.slots, processor_sample, reactor),
            *self._slot_watch(reactor, world, catalog, finder),
            ReadyNotifier(self._ready, journal, self._say),
        )
        # No worker lives any more when the loop ends as it should.
        size, say, left = self._spec.topology.world_size, self._say, self._stack.callback
        left(let_save, group, control, clock, windows=windows, world_size=size, say=say)
        self.began = True
        end = supervise(self._state, world, journal, listeners, self._standby_state())
        again = partial(supervise, end, world, journal, (narrator,), StandbyState())
        self._look_again = partial(self._ended, end, partial(told.heard_late, pipe, end), again)
        line = "" if narrator.outcome is None else narrator.outcome.line
        self.stopped, self.log_dir = end.stop is not None, journal.folder
        code = 1 if end.exit_code is None else end.exit_code
        control.tell_end(line, code)
        return code, line

    def leave(self, exit_code: int) -> tuple[int, str]:
        """Do what is left, and note the exit code; that of a stop, with a line, if one has come since."""
        exit_code, line = self._look_again(exit_code)
        self._last.close()
        past = self._claimed.past
        boot = past.boots[-1] if past is not None and self._claimed.untold is not None else self._boot
        mark_ended(self.log_dir, boot, exit_code)
        return exit_code, line

    def close(self) -> None:
        """Leave no process and no open file; in reverse order of what was begun."""
        self._stack.close()

    def _ended(
        self, end: RunState, stop: Callable[[], bool], again: Callable[[], RunState], code: int
    ) -> tuple[int, str]:
        """Go through the end ``again`` for a ``stop`` that was heard when the loop was over."""
        line = ""
        if stop():
            end, said = again(), self._narrator.outcome
            code, line = (code, "") if said is None else (said.exit_code, said.line)
        at_end(self._spec, self.log_dir, end, self._say)
        return code, line

    def _kept(self, part: C) -> C:
        """Return ``part``, and have it closed at the end."""
        return self._stack.enter_context(closing(part))

    def _make_room(self) -> None:
        """Move a run that ended away; a supervisor that was killed may have left processes behind."""
        if self._claimed.note:
            otherwise = asked_otherwise(self._claimed, self._spec, self._asked_id)
            self._say(f"{going_on(self._claimed, self._came_to)}{otherwise}")
        if self._claimed.ended_run:
            begin_anew(self._claimed, self._spec.recovery.resume, self._say)
        boots = frozenset(self._claimed.boots)
        found, stuck = sweep(boots, patience_s=LEFTOVERS_PATIENCE_S) if boots else (0, ())
        if found:
            self._say(f"ended {found} processes that the previous supervisor left behind")
        if stuck:
            self._say(f"processes {' '.join(map(str, stuck))} of the previous run cannot be killed")

    def _supervisor_env(self, preparer: Preparer, helpers: Helpers, clock: RunClock) -> SupervisorEnv:
        supervision = self._spec.supervision
        others = {signum for signum, answer in supervision.signals if answer is not SignalAnswer.STOP}
        stops = STOP_SOURCES.keys() - others
        return SupervisorEnv(
            environ=self._process.environ,
            boot=self._boot,
            python=self._process.python,
            log_dir=self.log_dir,
            ascend=accelerators_of("npu", self._process.environ) is not None,
            command=preparer.command,
            exits=self._kept(ExitInspector((*supervision.signatures, *ROWS), clock, stops)),
            streams=helpers.streams,
            deadline=helpers.deadman.deadline,
            leave=helpers.deadman.leave,
            fork_server=helpers.fork_server,
        )

    def _standby_state(self) -> StandbyState:
        wish = self._spec.standby
        ranks = tuple(range(min(wish.count, self._spec.slots)))
        return StandbyState(ranks=ranks, asked=wish.asked, doubts=wish.doubts)

    def _catalog(self) -> Catalog:
        roots = absolute(self._spec.recovery.checkpoint_dirs)
        memory, registry = str(self.log_dir / "checkpoints.jsonl"), registry_for(self._spec.recovery)
        catalog = Catalog(roots, memory_path=memory, settle_s=0.0, registry=registry)
        if (plan := self._state.run.plan) is not None:
            catalog.world_size = plan.topology.world_size
        return catalog

    def _finder(self, catalog: Catalog, clock: RunClock, saves: SaveWatch) -> CheckpointFinder:
        meter = meter_for(self._row, self.log_dir)
        apart, several = tells_apart(self._spec, self._claimed, self._boot), self._spec.agreement is not None
        neighbours = OtherRuns(catalog.roots, self._spec.run_id, apart=apart, several=several)
        return CheckpointFinder(self._spec, catalog, clock, meter, neighbours, saves)

    def _slot_watch(
        self, reactor: Reactor, world: LocalExecutor, catalog: Catalog, finder: CheckpointFinder
    ) -> "tuple[CapacityWatch, ...]":
        if (elastic := self._spec.elastic) is None:
            return ()
        from faultrun.supervisor.platform.capacity import CapacityWatch

        tasks, looks = (world.readings, world.checks), (catalog.listed, finder.read_back)
        environ, devices = self._process.environ, self._spec.devices
        return (self._kept(CapacityWatch(elastic, reactor, tasks, looks, environ, devices)),)

    def _nodes(self, helpers: Helpers, clock: RunClock) -> "NodesAgreement | None":
        """The member process, where there are several nodes; forked last, it forks nothing itself."""
        if (asked := self._spec.agreement) is None:
            return None
        from faultrun.cli.nodes.agent_setup import ETCD, etcd_keeping, member_work
        from faultrun.nodes.agent.agreement import LEAVING_S, NodesAgreement
        from faultrun.nodes.agent.served_etcd import ServedEtcd

        if asked.serve_at:
            self._kept(ServedEtcd(etcd_keeping(asked.serve_at, self.log_dir / ETCD)))
        # The node that serves etcd stays until the others have read how the run ended.
        leaving_s = LEAVING_S + (asked.lease_ttl_s if asked.serve_at else 0)
        deadman = helpers.deadman
        work = member_work(self._spec, asked, self.log_dir, self._boot, clock, deadman.deadline)
        return self._kept(NodesAgreement(work, deadman, self._say, leaving_s))

    def _agreement(self, reactor: Reactor, nodes: "NodesAgreement | None", workers: LiveWorkers) -> Agreement:
        if nodes is None:
            return LocalAgreement(rules_of(self._spec), plan_to_go_on_from(self._state), reactor)
        nodes.attach(reactor, workers)
        return nodes

    def _started(self, clock: RunClock, fault_files: "FaultFileWatcher | None") -> RunStarted:
        return RunStarted(
            at_s=clock.now(),
            incarnation=self._state.incarnation,
            node=self._spec.node,
            boot=self._boot,
            pid=os.getpid(),
            notices=fault_files.first() if fault_files is not None else (),
            run_id=self._spec.run_id,
            stop_by_s=clock.of_utc_s(self._spec.supervision.windows.stop_by_utc_s),
            addr=self._spec.rendezvous.master_addr,
            native_scheduler=needs_scheduler(self._spec)
            and self._spec.rendezvous.ms_scheduler is MsScheduler.NATIVE,
            machine=text_of(KERNEL_BOOT).strip(),
            oom_kills=oom_kill_count(memory_group(os.getpid())),
            came_to=self._came_to,
        )

    def _writer(self, control: Control) -> JournalWriter:
        writer = JournalWriter(
            self.journal,
            next_seq=self._next_seq,
            node=self._spec.node,
            boot=self._boot,
            begin_again=partial(self._begin_again, control),
        )
        control.has_place = writer.keep_place
        return self._last.enter_context(closing(writer))

    def _begin_again(self, control: Control) -> None:
        self._claimed = claim_again(self._claimed)
        self._write_record(control)
        self._say(
            f"the log_dir {self.log_dir} was removed or moved away while the run goes on; "
            "it is made again with its journal, without the logs and cards of before"
        )

    def _write_record(self, control: Control) -> None:
        write_record(
            self.log_dir,
            {
                "run_id": self._spec.run_id,
                "boot": self._boot,
                "pid": os.getpid(),
                "node": self._spec.node,
                "host": hostname(),
                "socket": str(control.path),
                "started_at_utc": utc_now(),
                "cwd": str(Path.cwd()),
                "version": __version__,
                "spec": without_logins(encode(without_secrets(self._spec))),
            },
        )
