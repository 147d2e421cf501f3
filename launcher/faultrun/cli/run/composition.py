"""The only place that constructs: the real world is put together around one ``RunSpec`` here."""

import os
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

from faultrun import __version__
from faultrun.checkpoints.catalog import Catalog
from faultrun.cli.resolve.context import ProcessContext
from faultrun.cli.run.composition_view import line_start, meter_for, narrator_for, sidecars, without_secrets
from faultrun.cli.run.ready_notifier import ReadyNotifier
from faultrun.cli.run.taking_up import ORIGINALS, answered_again, at_end, begin_anew
from faultrun.core.agree import Rules
from faultrun.core.begin import plan_to_go_on_from
from faultrun.core.secrets import without_logins
from faultrun.core.signature_rows import ROWS
from faultrun.core.standby import StandbyState
from faultrun.journal.append import JournalWriter, utc_now
from faultrun.journal.codec import encode
from faultrun.journal.logdir import claim, mark_ended, write_record
from faultrun.model.events import Event, RunStarted
from faultrun.model.run import RunState
from faultrun.model.spec import RunSpec, SignalAnswer, Stream
from faultrun.model.stop import StopRequested, StopSource
from faultrun.model.topology import BootId, RunId
from faultrun.platforms.cgroup import spendable_bytes
from faultrun.platforms.local import accelerators_of
from faultrun.supervisor.agreement import LocalAgreement
from faultrun.supervisor.checkpoint_finder import LocalCheckpoints
from faultrun.supervisor.control import Control
from faultrun.supervisor.exit_inspector import ExitInspector
from faultrun.supervisor.fault_file_watcher import FaultFileWatcher, fault_file_watcher_for
from faultrun.supervisor.hang_watch import HangWatch
from faultrun.supervisor.inspection import Inspector
from faultrun.supervisor.last_window import let_save
from faultrun.supervisor.log_watch import LogWatch
from faultrun.supervisor.loop import supervise
from faultrun.supervisor.neighbours import Neighbours
from faultrun.supervisor.prepare import DeviceAssignment, LocalPreparer
from faultrun.supervisor.progress import write_heartbeats
from faultrun.supervisor.reactor import Reactor, RunClock
from faultrun.supervisor.recovery_timer import RecoveryTimer
from faultrun.supervisor.resume_check import ResumeCheck
from faultrun.supervisor.save_watch import SaveWatch
from faultrun.supervisor.standbys import Standbys, Terms
from faultrun.supervisor.worker_group import SupervisorEnv, WorkerGroup
from faultrun.supervisor.world import LocalWorld
from faultrun.workers.follow import Follower, Streams
from faultrun.workers.forked import guard
from faultrun.workers.process import become_subreaper
from faultrun.workers.rotate import Rotator
from faultrun.workers.signals import SignalPipe
from faultrun.workers.sweep import sweep

_LEFTOVERS_PATIENCE_S = 10.0
_STOPS = {
    1: StopSource.SIGHUP,
    2: StopSource.SIGINT,
    10: StopSource.SIGUSR1,
    12: StopSource.SIGUSR2,
    15: StopSource.SIGTERM,
}


class Supervisor:
    """One supervisor process: ``run`` returns the exit code and the last line, ``close`` leaves nothing.

    ``stopped``: it was told to end.
    """

    def __init__(
        self, spec: RunSpec, around: ProcessContext, say: Callable[[str], None], ready: Callable[[], None]
    ) -> None:
        self._around = around
        self._say = say
        self._ready = ready
        self._boot = BootId(os.urandom(8).hex())
        self.log_dir = Path(spec.logs.log_dir).absolute()
        start = RunState(node=spec.node, topology=spec.topology, windows=spec.supervision.windows)
        self._claimed = claim(self.log_dir, start, spec.run_id)
        self._spec = replace(spec, run_id=RunId(self._claimed.run_id))
        self._state = self._claimed.past.state if self._claimed.past is not None else start
        self._cleanup: list[Callable[[], object]] = []
        self.stopped = False

    @property
    def journal(self) -> Path:
        """Path of the journal."""
        return self._claimed.journal

    def run(self) -> tuple[int, str]:
        """Supervise until the run is over."""
        if self._claimed.untold is not None:
            return answered_again(self._claimed, self._spec, self._say)
        if self._claimed.note:
            self._say(self._claimed.note)
        if self._claimed.ended_run:
            begin_anew(self._claimed, self._spec.recovery.resume, self._say)
        self._sweep_leftovers()
        follower = self._follower()
        rotator = self._rotator()
        fault_files = self._fault_file_watcher()
        self._sidecars()
        self._cleanup.append(lambda: sweep(frozenset({self._boot}), patience_s=_LEFTOVERS_PATIENCE_S))
        guard(lambda: sweep(frozenset({self._boot}), patience_s=_LEFTOVERS_PATIENCE_S))
        become_subreaper()
        past = self._claimed.past
        clock = RunClock(past.run_s_at(datetime.now(timezone.utc)) if past is not None else 0.0)
        reactor = Reactor(clock)
        control = Control(self.log_dir, reactor, self._spec.supervision.windows.stop_grace_s)
        self._cleanup.append(control.close)
        self._write_record(control)
        journal = JournalWriter(
            self.journal, next_seq=past.next_seq if past else 0, node=self._spec.node, boot=self._boot
        )
        self._cleanup.append(journal.close)
        devices = DeviceAssignment(self._spec, self._around.environ, self._say)
        preparer = LocalPreparer(
            self._spec, self._around.environ, self.log_dir / ORIGINALS, clock, self._say, devices
        )
        standbys = self._standbys(reactor)
        streams = Streams(self._spec.logs, self.log_dir, follower, rotator)
        env = self._supervisor_env(preparer, streams, clock)
        group = WorkerGroup(self._spec, env, reactor, control, standbys)
        inspector = Inspector(group, reactor, self.log_dir)
        narrator = narrator_for(self._spec, self.log_dir, self._say)
        catalog = self._catalog()
        world = LocalWorld(
            group,
            inspector,
            self._agreement(reactor),
            LocalCheckpoints(
                self._spec,
                catalog,
                clock,
                meter_for(self._spec, self.log_dir),
                Neighbours(catalog.roots, self._spec.run_id),
            ),
            preparer,
            reactor,
        )
        self._cleanup += [world.settle, devices.abandon]
        self._listen_to_signals(reactor, group, control)
        started = RunStarted(
            at_s=clock.now(),
            incarnation=self._state.incarnation,
            node=self._spec.node,
            boot=self._boot,
            pid=os.getpid(),
            notices=fault_files.first() if fault_files is not None else (),
            run_id=self._spec.run_id,
            stop_by_s=clock.of_utc_s(self._spec.supervision.windows.stop_by_utc_s),
            addr=self._spec.rendezvous.master_addr,
        )
        reactor.post(started)
        if fault_files is not None:
            fault_files.attach(reactor, group.incarnation)
        write_heartbeats(reactor, group.incarnation)
        listeners = (
            narrator,
            ResumeCheck(reactor, self._spec.recovery),
            RecoveryTimer(reactor),
            LogWatch(reactor, group.incarnation),
            HangWatch(self._spec.supervision.hang, group.incarnation, inspector, reactor),
            SaveWatch(reactor, world.readings, catalog.listed),
            ReadyNotifier(self._ready, journal, self._say),
        )
        # Nobody lives any more when the loop ends as it should.
        self._cleanup.append(
            lambda: let_save(
                group,
                control,
                clock,
                window_s=self._spec.supervision.windows.grace_s,
                world_size=self._spec.topology.world_size,
                say=self._say,
            )
        )
        wish, ranks = self._spec.standby, tuple(self._spec.topology.ranks_of(self._spec.node))
        standby_state = StandbyState(ranks=ranks[: wish.count], asked=wish.asked, doubts=wish.doubts)
        end = supervise(self._state, world, journal, listeners, standby_state)
        self.stopped = end.stop is not None
        at_end(self._spec, self.log_dir, end, self._say)
        line = narrator.outcome.line if narrator.outcome is not None else ""
        code = 1 if end.exit_code is None else end.exit_code
        control.tell_end(line, code)
        return code, line

    def mark_end(self, exit_code: int) -> None:
        """Note that nothing is left to do but to return ``exit_code``."""
        past = self._claimed.past
        boot = past.boots[-1] if past is not None and self._claimed.untold is not None else self._boot
        mark_ended(self.log_dir, boot, exit_code)

    def close(self) -> None:
        """Leave no process and no open file; in reverse order of what was begun."""
        while self._cleanup:
            self._cleanup.pop()()

    def _sweep_leftovers(self) -> None:
        """A supervisor that was killed may have left processes that nobody could end."""
        past = self._claimed.past
        if past is None:
            return
        found, stuck = sweep(frozenset(past.boots), patience_s=_LEFTOVERS_PATIENCE_S)
        if found:
            self._say(f"ended {found} processes that the supervisor before left behind")
        if stuck:
            self._say(f"processes {' '.join(map(str, stuck))} of the run before cannot be killed")

    def _follower(self) -> Follower | None:
        """Only where somebody wants to see workers' output; forked before there are threads."""
        ranks = enumerate(self._spec.topology.ranks_of(self._spec.node))
        if all(self._spec.logs.console(rank, local) is Stream.NONE for local, rank in ranks):
            return None
        follower = Follower(line_start(self._spec))
        self._cleanup.append(follower.close)
        return follower

    def _sidecars(self) -> None:
        """Forked before there are threads; they end with us, or a moment later."""
        past = self._claimed.past
        for sidecar in sidecars(self._spec, self.log_dir, past.next_seq if past is not None else 0):
            self._cleanup.append(sidecar.close)

    def _rotator(self) -> Rotator | None:
        """Forked before there are threads, too."""
        if not self._spec.logs.max_bytes:
            return None
        rotator = Rotator(self._spec.logs.max_bytes)
        self._cleanup.append(rotator.close)
        return rotator

    def _fault_file_watcher(self) -> FaultFileWatcher | None:
        """Only where a platform's files are to be watched; forked before there are threads."""
        fault_files = fault_file_watcher_for(self._spec)
        if fault_files is not None:
            self._cleanup.append(fault_files.close)
        return fault_files

    def _supervisor_env(self, preparer: LocalPreparer, streams: Streams, clock: RunClock) -> SupervisorEnv:
        exits = ExitInspector((*self._spec.supervision.signatures, *ROWS), clock)
        self._cleanup.append(exits.close)
        return SupervisorEnv(
            environ=self._around.environ,
            boot=self._boot,
            python=self._around.python,
            log_dir=self.log_dir,
            ascend=accelerators_of("npu", self._around.environ) is not None,
            command=preparer.command,
            exits=exits,
            streams=streams,
        )

    def _standbys(self, reactor: Reactor) -> Standbys:
        terms = Terms(wish=self._spec.standby, log_dir=self.log_dir, free_bytes=spendable_bytes)
        standbys = Standbys(terms, reactor)
        self._cleanup.append(standbys.close)
        return standbys

    def _catalog(self) -> Catalog:
        return Catalog(
            tuple(str(Path(root).absolute()) for root in self._spec.recovery.checkpoint_dirs),
            memory_path=str(self.log_dir / "checkpoints.jsonl"),
            settle_s=0.0,
        )

    def _agreement(self, reactor: Reactor) -> LocalAgreement:
        rules = Rules(
            topology=self._spec.topology,
            policy=self._spec.supervision.policy,
            exit_code_on_stop=self._spec.supervision.exit_code_on_stop,
            resume_args=self._spec.recovery.resume_args,
        )
        return LocalAgreement(rules, plan_to_go_on_from(self._state), reactor)

    def _write_record(self, control: Control) -> None:
        write_record(
            self.log_dir,
            {
                "run_id": self._spec.run_id,
                "boot": self._boot,
                "pid": os.getpid(),
                "node": self._spec.node,
                "socket": str(control.path),
                "started_at_utc": utc_now(),
                "cwd": str(Path.cwd()),
                "version": __version__,
                "spec": without_logins(encode(without_secrets(self._spec))),
            },
        )

    def _listen_to_signals(self, reactor: Reactor, group: WorkerGroup, control: Control) -> None:
        pipe = SignalPipe()
        self._cleanup.append(pipe.close)

        answers = dict(self._spec.supervision.signals)

        def drain() -> list[Event]:
            events: list[Event] = []
            for signum in pipe.drain():
                source = _STOPS.get(signum)
                if source is None:
                    events.extend(group.reap_strangers())
                    continue
                match answers.get(signum, SignalAnswer.STOP):
                    case SignalAnswer.STOP:
                        now_s = reactor.clock.now()
                        number = group.incarnation.number
                        events.append(StopRequested(at_s=now_s, incarnation=number, source=source))
                    case SignalAnswer.SAVE:
                        asked = control.request_save(self._spec.supervision.windows.stop_grace_s)
                        self._say(f"{source.value}: {asked} workers asked to save and go on")
                    case SignalAnswer.IGNORE:
                        self._say(f"{source.value} ignored (--signals)")
            return events

        reactor.watch(pipe.fd, drain)
