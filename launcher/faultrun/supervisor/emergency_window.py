"""The grace window of workers whose supervisor cannot go on, because of a bug of its own."""

import signal
from collections.abc import Callable, Iterable
from functools import partial

from faultrun.core.phases import grace_window
from faultrun.model.actions import RequestGasp
from faultrun.model.events import Event, Timer, TimerFired
from faultrun.model.spec.windows import Windows
from faultrun.supervisor.control import Control
from faultrun.supervisor.reactor import BackgroundTasks, Reactor, RunClock
from faultrun.supervisor.workers.session_leftovers import LookBelow, SessionLeftovers
from faultrun.supervisor.workers.worker_group import WorkerGroup
from faultrun.workers.process import Process


def let_save(
    group: WorkerGroup,
    control: Control,
    clock: RunClock,
    *,
    windows: Windows,
    world_size: int,
    say: Callable[[str], None],
) -> None:
    """Ask the living workers to save if not yet asked, and wait until they have left or the window is over.

    Needs neither the loop nor its reactor: either may be what is broken.
    """
    deadline = grace_window.after_fault(windows, clock.now())
    asked = group.request or RequestGasp(ranks=frozenset(), deadline=deadline)
    living = frozenset(rank for rank, worker in group.workers().items() if worker.ended_as() is None)
    promised = living | asked.ranks & group.workers().keys()
    if not promised:
        return
    left_s = asked.deadline.left_s(clock.now())
    control.request_gasp(living - asked.ranks, asked.deadline, peers_lost=len(living) < world_size)
    for rank in sorted(living - asked.ranks):
        group.workers()[rank].signal_leader(signal.SIGTERM)
        group.workers()[rank].signal_leader(signal.SIGCONT)
    say(f"{len(promised)} worker{'s' * (len(promised) != 1)} may still save; SIGKILL in {left_s:.0f} s")
    _wait({rank: group.workers()[rank] for rank in promised}, clock, asked, group.below)


def _wait(workers: dict[int, Process], clock: RunClock, asked: RequestGasp, below: LookBelow) -> None:
    reactor, deadline = Reactor(clock), asked.deadline
    leftovers = SessionLeftovers(reactor, BackgroundTasks(reactor), below)
    leftovers.promise(frozenset(workers), stop=asked.stop is not None)

    def gone(rank: int) -> Iterable[Event]:
        del workers[rank]
        yield TimerFired(at_s=clock.now(), incarnation=-1, timer=Timer.GRACE)

    def ended(rank: int) -> Iterable[Event]:
        worker, over = workers[rank], partial(gone, rank)
        reactor.forget(worker.pidfd)
        status = worker.ended_as()
        return () if status and leftovers.outlive(rank, worker.pid, status, over) else over()

    for rank, worker in workers.items():
        reactor.watch(worker.pidfd, partial(ended, rank))
    reactor.start_timer(Timer.GRACE, deadline.at_s, -1)
    while workers and not deadline.is_over(clock.now()):
        reactor.wait()
    reactor.close()
