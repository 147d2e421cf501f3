"""The workers of this node, and MindSpore's scheduler: started, signalled, reaped."""

import contextlib
import os
import signal
import time
from collections.abc import Iterable
from dataclasses import replace
from functools import partial

from faultrun.core.phases import grace_window
from faultrun.frameworks.environment import WorkerLaunchSpec
from faultrun.frameworks.mindspore import needs_scheduler
from faultrun.model.actions import (
    ExamineDeaths,
    Kill,
    RequestGasp,
    RestoreScheduling,
    Spawn,
    Sweep,
    SweepRanks,
)
from faultrun.model.events import Drained, Event, IncarnationStarted, SpawnFailed, WorkerExit, WorkerStarted
from faultrun.model.exits import Signaled, ended_well
from faultrun.model.observed.agreement import MembershipLost
from faultrun.model.observed.dying_gasp import GaspRequested
from faultrun.model.observed.evidence import DeathNote
from faultrun.model.observed.rejoin import DeathsExamined
from faultrun.model.spec.run_spec import RunSpec
from faultrun.supervisor.control import Control
from faultrun.supervisor.launch.environment import SupervisorEnv
from faultrun.supervisor.launch.launch import Launches
from faultrun.supervisor.launch.progress_page import LiveWorkers, ProgressPage
from faultrun.supervisor.reactor import BackgroundTasks, Reactor
from faultrun.supervisor.snapshots.to_files import HeldStates
from faultrun.supervisor.standby.pool import Standbys
from faultrun.supervisor.stay.newcomers import Newcomers
from faultrun.supervisor.workers.schedulers import Schedulers, head_start, listens_first
from faultrun.supervisor.workers.session_leftovers import SessionLeftovers
from faultrun.workers.launch import Launch
from faultrun.workers.logs.log_files import LogFiles
from faultrun.workers.priority import as_usual, without_preempting
from faultrun.workers.process import Process, reap_orphans, start, undisturbed, why_not_started
from faultrun.workers.rank_processes import Below, below, let_write, sweep_session
from faultrun.workers.shared_deadline import boottime
from faultrun.workers.sweep import LeftRunning, Strangers, left_running, sweep, sweep_ranks

_SWEEP_PATIENCE_S = 10.0
_OVERDUE = "etcd, or this supervisor, did not answer in time"


class WorkerGroup:
    """Owns every process of one node. Only the main thread starts any (PDEATHSIG).

    ``examine``, ``sweep_ranks``, ``sweep`` and ``look_around`` run in the executor's thread of chores,
    ``below`` in that of ``looks``. ``request`` is what the workers were asked to do before they leave;
    ``leaving``: they were, or killed.
    """

    def __init__(
        self, spec: RunSpec, env: SupervisorEnv, reactor: Reactor, control: Control, standbys: Standbys
    ) -> None:
        self.live = LiveWorkers(reactor.clock)
        self.standbys = standbys
        self.leaving = False
        self.request: RequestGasp | None = None
        self._spec, self._env, self._reactor, self._control = spec, env, reactor, control
        self.looks = BackgroundTasks(reactor)
        answers = spec.supervision.signals
        self._leftovers_of_now = partial(SessionLeftovers, reactor, self.looks, self.below, answers)
        self._leftovers = self._leftovers_of_now()
        self._began_s = boottime()
        self._workers: dict[int, Process] = {}
        self._roots = tuple(os.path.realpath(root) for root in spec.recovery.checkpoint_dirs)
        self._schedulers = Schedulers(spec, env.environ, env.python, reactor)
        self._strangers = Strangers()
        self._launches = Launches(spec, env, control.path)
        self.newcomers = Newcomers(spec, env, reactor, control, standbys, self._launches)

    def spawn(self, order: Spawn) -> None:
        """Start the scheduler if there is one, then every rank; post what became of each."""
        number, kept = order.plan.incarnation, order.plan.kept
        self._began_s = boottime()
        self.leaving, self.request = False, None
        self._leftovers = self._leftovers_of_now()
        self._strangers = Strangers()
        self.standbys.begin(number)
        files = self._env.streams.files(order.plan.started)
        anew = not (kept and self.live.is_of(files, self._launches.seats(order.plan)))
        if anew:
            self._env.exits.begin()
        self.live.incarnation, self.live.logs = number, files
        started = 0
        try:
            page = self._begin_logs(order, files, anew=anew)
            shared = self._launches.shared(order, files, page)
            if kept:
                self.newcomers.meet(order, files, page)
            elif needs_scheduler(self._spec) and self._launches.begin_here(order.plan):
                self._schedulers.provide(shared, files)
            with undisturbed():  # the first want the processors before the last are started
                for started, rank in enumerate(order.ranks):
                    warm = self._start_worker(order, shared, files, rank, anew=anew)
                    if started == 0 and not warm and not kept:
                        head_start(self._spec, order, self._workers[rank])
        except OSError as error:
            # Those behind the first that cannot be started would only be killed again.
            self._post_failures(order.ranks[started:], error)
            return
        self._reactor.post(
            IncarnationStarted(
                at_s=self._reactor.now(),
                incarnation=number,
                ranks=tuple(one for one in self._launches.seats(order.plan) if one not in order.plan.missing),
                master_port=order.master_port,
            )
        )

    def foresee(self, rank: int) -> None:
        """Where no worker of ``rank`` was ever started, say as far as possible how one would be."""
        if not self.standbys.knows(rank) and (launch := self._launches.foreseen(rank)):
            self.standbys.remember(rank, launch)

    def examine(self, order: ExamineDeaths) -> DeathsExamined:
        """Read what the dead said last, while the others live; called from the helper thread."""
        logs, page = self.live.logs, self.live.page
        notes: tuple[DeathNote, ...] = ()
        if logs is not None and page is not None:
            notes = self._env.exits.notes(order.dead, logs, page.words())
        now_s = self._reactor.now()
        return DeathsExamined(at_s=now_s, incarnation=order.incarnation, dead=order.dead, notes=notes)

    def sweep_ranks(self, order: SweepRanks) -> Iterable[Event]:
        """Kill what escaped from the sessions of the dead; in the thread of chores. Nothing to tell."""
        ours = self.standbys.pids() | frozenset(worker.pid for worker in self._workers.values())
        sweep_ranks(self._env.boot, order.ranks, order.incarnation, spare=ours)
        return ()

    def request_gasp(self, order: RequestGasp) -> None:
        """By socket, then SIGTERM to each leader, and SIGCONT in case it was stopped.

        The signal says neither how long nor why: the woken process finds the line that does.
        """
        self.leaving, self.request = True, order
        began = time.monotonic()
        self._control.request_gasp(order.ranks, order.deadline, peers_lost=order.peers_lost)
        done_s = self._leftovers.ask_to_save(order, self._workers)
        self._reactor.post(
            GaspRequested(
                at_s=done_s,
                incarnation=self.live.incarnation,
                ranks=tuple(sorted(order.ranks)),
                deadline=order.deadline,
                took_s=time.monotonic() - began,
            )
        )

    def request_save(self, window_s: float) -> None:
        """Ask every worker that listens to save and go on."""
        self._control.request_save(window_s)

    def ask_for_threads(self) -> None:
        """Have every worker write what its threads do, beside the main one; nothing of before is left."""
        if self.live.logs is not None:
            self.live.logs.drop_threads()
            self._control.request_threads(frozenset(self._workers))

    def wake(self, ranks: frozenset[int]) -> None:
        """SIGCONT to the whole process group of each rank: its children may have been stopped with it."""
        for rank in sorted(ranks & self._workers.keys()):
            self._workers[rank].wake_group()

    def kill(self, order: Kill) -> None:
        """SIGKILL to each rank, and to what is left of it; one that hung may be the only one that leaves."""
        self.leaving |= order.ranks >= self._workers.keys()
        ranks = order.ranks & self._workers.keys()
        for rank in sorted(ranks):
            self._workers[rank].signal_leader(signal.SIGKILL)
        self._leftovers.kill(ranks, order.writers_until)

    def below(self, rank: int, leader: int) -> Below:
        """What lives below a rank; called from the helper thread."""
        others = {worker.pid for worker in self.workers().values()} - {leader}
        spared = self.standbys.pids() | self._schedulers.pids() | self._env.fork_server.pids | others
        return below(rank, leader, self._env.boot, (spared, self._strangers), self._roots)

    def restore_scheduling(self, order: RestoreScheduling) -> None:
        """Schedule the workers as any process, if they are still those that were meant."""
        if order.incarnation == self.live.incarnation:
            for worker in self._workers.values():
                as_usual(worker.pid)

    def dismiss_helpers(self) -> None:
        """End the scheduler, and the file over which workers met: whom they served is gone."""
        self._schedulers.dismiss()
        self.newcomers.drop_store()

    def reap_orphans(self) -> Iterable[Event]:
        """SIGCHLD: adopted orphans are taken out of the process table."""
        ours = self._env.fork_server.pids.union(process.pid for process in self._workers.values())
        reap_orphans(ours | self._schedulers.pids() | self.standbys.pids())
        return ()

    def look_around(self) -> Iterable[Event]:
        """While workers run: who is here that ``sweep`` may pass by; called from the helper thread."""
        self._strangers.look(frozenset({self._env.boot}))
        return ()

    def held_states(self) -> HeldStates:
        """The states of this node's ranks that are in memory which outlives them."""
        page = self.live.page
        ranks = frozenset(() if page is None else page.ranks)
        memory = self._control.held_memory()
        return HeldStates(run_id=self._spec.run_id, ranks=ranks, alone=self.elsewhere == 0, memory=memory)

    def sweep(self, order: Sweep, held: HeldStates) -> Iterable[Event]:
        """End what escaped, write what is ``held``, read the last words of the dead; in the helper thread."""
        logs, page = self.live.logs, self.live.page
        boots, spare, rules = frozenset({self._env.boot}), self.standbys.pids(), self._spec.supervision
        left = left_running(self._env.boot, rules.leave_running_s, spare) if order.finished else LeftRunning()
        if left.lives_on:
            self._env.leave()
            spare |= left.pids
        may_s = grace_window.to_write_on(order, self.request, rules.windows, self._reactor.now())
        let_write(boots, self._roots, spare, may_s)
        swept, stragglers = sweep(boots, patience_s=_SWEEP_PATIENCE_S, spare=spare, strangers=self._strangers)
        now_s = self._reactor.now()
        yield from held.write(order, grace_window.after_fault(rules.windows, now_s), now_s)
        notes: tuple[DeathNote, ...] = ()
        if logs is not None and page is not None:
            with contextlib.suppress(OSError):
                logs.drop_unused()
            notes = self._env.exits.notes(order.dead, logs, page.words())
        at_s, incarnation = self._reactor.now(), order.incarnation
        drained = Drained(at_s=at_s, incarnation=incarnation, stragglers=stragglers, swept=swept, notes=notes)
        yield replace(drained, left=left.words)

    @property
    def elsewhere(self) -> int:
        """How many ranks of the run other nodes have."""
        return self._spec.topology.world_size - self._spec.slots

    def workers(self) -> dict[int, Process]:
        """Rank to process of the living workers, as they are now."""
        return dict(self._workers)

    def _begin_logs(self, order: Spawn, files: LogFiles, *, anew: bool) -> ProgressPage:
        """Survivors write on where they have written; ``anew``: there are none of this node."""
        if anew:
            self._env.streams.open(files, order.ranks)
            self.newcomers.drop_store()
            page = self.live.new_page(files, order.ranks)
        else:
            page = self.live.same_page((*order.ranks, *order.plan.missing))
        self._control.begin(order.plan.incarnation, page, order.plan.kept, order.plan.missing)
        self._control.next_node.begin(order.plan)
        return page

    def _start_worker(
        self, order: Spawn, shared: WorkerLaunchSpec, files: LogFiles, rank: int, *, anew: bool
    ) -> bool:
        """True when a standby became this worker."""
        local_rank = self._launches.seats(order.plan).index(rank)
        launch = self._launches.launch(shared, files, rank)
        self._launches.make_folder(order.plan, rank)
        listener = None if order.plan.kept else listens_first(self._spec, order, local_rank)
        standby = self.standbys.take(rank, launch, listener) if rank in order.standbys else None
        self.standbys.remember(rank, launch)
        self._employ(rank, standby or start(launch, self._env.fork_server), standby=standby is not None)
        meets_others = shared.builtin_scheduler and order.plan.topology.world_size > 1
        if meets_others and self._launches.begin_here(order.plan):
            # Only where our scheduler is it is known when they are through init().
            without_preempting(self._workers[rank].pid)
        if anew:
            self.newcomers.are_like(shared, files)
            self._env.streams.show(files, rank, local_rank)
        return standby is not None

    def _employ(self, rank: int, worker: Process, *, standby: bool) -> None:
        """From now on this process is the worker of ``rank``."""
        self._workers[rank] = worker
        self.live.pids[rank] = worker.pid
        self._reactor.watch(worker.pidfd, lambda: self._worker_ended(rank))
        self._reactor.post(
            WorkerStarted(
                at_s=self._reactor.now(),
                incarnation=self.live.incarnation,
                node=self._spec.node,
                rank=rank,
                pid=worker.pid,
                standby=standby,
            )
        )

    def _worker_ended(self, rank: int) -> Iterable[Event]:
        """Its main process ended, and the rank with it, unless a program of it still may save."""
        worker = self._workers[rank]
        self._reactor.forget(worker.pidfd)
        ended = worker.ended_as()
        gone = partial(self._worker_gone, rank)
        return () if ended and self._leftovers.outlive(rank, worker.pid, ended, gone) else gone()

    def _worker_gone(self, rank: int) -> Iterable[Event]:
        worker = self._workers[rank]
        page = self.live.page  # what a clean end leaves behind is swept last
        ended, done = self._leftovers.instead(rank), page is not None and page.done(rank)
        ended = ended or worker.ended_as()
        if ended and not ended_well(ended, done=done):
            self._env.exits.saw(rank, worker.pid, ended)
            self.looks.send(lambda: sweep_session(worker.pid, self._env.boot, self._roots))
        worker.reap()
        assert ended is not None, "a readable pidfd is a process that ended"
        del self._workers[rank], self.live.pids[rank]
        if (instead := self.standbys.unanswered(rank, restart=not self.leaving)) is not None:
            self._start_instead(rank, instead)
            return
        yield from self.live.newest_steps()
        if ended == Signaled(signum=signal.SIGKILL) and self._env.deadline.killed_at_s >= self._began_s:
            # There may be more time by now. The member process tells the same in its own time.
            yield MembershipLost(at_s=self._reactor.now(), incarnation=self.live.incarnation, why=_OVERDUE)
        left = WorkerExit(
            at_s=self._reactor.now(),
            incarnation=self.live.incarnation,
            node=self._spec.node,
            rank=rank,
            pid=worker.pid,
            status=ended,
            done=done,
        )
        yield left
        if left.clean:
            yield from self._schedulers.left(rank)

    def _start_instead(self, rank: int, launch: Launch) -> None:
        """Cold, where a standby was lost before it became the worker."""
        try:
            self._employ(rank, start(launch, self._env.fork_server), standby=False)
        except OSError as error:
            self._post_failures((rank,), error)

    def _post_failures(self, ranks: tuple[int, ...], error: OSError) -> None:
        why = why_not_started(error, self._spec.command.prefix[0], self._env.log_dir)
        for rank in ranks:
            self._reactor.post(
                SpawnFailed(
                    at_s=self._reactor.now(),
                    incarnation=self.live.incarnation,
                    rank=rank,
                    errno=error.errno or 0,
                    why=why,
                )
            )
