"""What is left below a leader that has ended: in its session, and in sessions of its own.

``bash train.sh`` dies of the SIGTERM that its program never hears of; a wrapper starts the program in another
session and exits; a script hands its state to a process that saves it, and leaves. The rank lives as long as
one of them does that is awaited (``workers/rank_processes.py``), until it is killed with the rest.
"""

import os
import signal
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from faultrun.core.phases.one_stop import STOP_SIGNUMS
from faultrun.model.actions import RequestGasp
from faultrun.model.events import Event
from faultrun.model.exits import ExitStatus, Signaled
from faultrun.model.spec.run_spec import SignalAnswer
from faultrun.model.spec.windows import Deadline
from faultrun.model.stop import SAME_STOP_S, StopSource
from faultrun.supervisor.reactor import BackgroundTasks, Reactor, Ready
from faultrun.workers.proc_reader import answers, catches, hears, is_shell
from faultrun.workers.process import Process, undisturbed
from faultrun.workers.rank_processes import Below
from faultrun.workers.shared_deadline import boottime
from faultrun.workers.sweep import pidfd_of

_SENT_TO_ALL: dict[StopSource | None, int] = {
    StopSource.SIGHUP: 1,
    StopSource.SIGUSR1: 10,
    StopSource.SIGUSR2: 12,
}
"""Signals that mean a stop, and may come to every process of a job."""

Answers = tuple[tuple[int, SignalAnswer], ...]
_LAST_WORD_S = 5.0
LookBelow = Callable[[int, int], Below]
"""What is below a rank, by rank and leader; called from the helper thread."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """Since when ranks have time to save. ``signum``: the signal that means the stop came to them, too.

    ``interrupted``: the stop is a Ctrl-C, which came to faultrun alone.
    """

    at_s: float
    stop: bool
    signum: int
    interrupted: bool = False

    def word_for(self, pid: int) -> int:
        """SIGTERM; Ctrl-C's own signal for a program that takes it and not SIGTERM, as any Python does.

        Other launchers pass on what came. A shell takes it, too, and tells none.
        """
        passed_on = self.interrupted and catches(pid, signal.SIGINT) and not hears(pid, signal.SIGTERM)
        return signal.SIGINT if passed_on and not is_shell(pid) else signal.SIGTERM


class SessionLeftovers:
    """Asks the ranks of one incarnation to save, and awaits programs that outlive the leader of their rank.

    All but ``look`` belongs to the loop's thread.
    """

    def __init__(
        self, reactor: Reactor, tasks: BackgroundTasks, look: LookBelow, answers: Answers = ()
    ) -> None:
        """``answers``: a signal that is not to stop the run ends no rank of which a program lives on."""
        self.reactor, self._tasks, self._look = reactor, tasks, look
        self._lived_through = {signum for signum, answer in answers if answer is not SignalAnswer.STOP}
        self._asked: dict[int, _Asked] = {}
        self._left: dict[int, _Left] = {}
        self._given_up: set[int] = set()
        """Their time is over: whatever lives below their leaders is swept, and not waited for."""
        self.writers_only = False

    def ask_to_save(self, order: RequestGasp, workers: Mapping[int, Process]) -> float:
        """Send SIGTERM to the leaders, and SIGCONT in case one was stopped; the moment when the last had it.

        A leader that answers the very signal of this stop, or was sent SIGINT for a Ctrl-C, has the window
        for that: SIGTERM comes shortly before its end. A leader that has not left after a third of the window
        may have told no other: whatever leads a session below it is asked, too.
        """
        asked = _Asked(
            at_s=boottime(),
            stop=order.stop is not None,
            signum=_SENT_TO_ALL.get(order.stop, 0),
            interrupted=order.stop is StopSource.SIGINT,
        )
        leaders = [workers[rank] for rank in sorted(order.ranks) if rank in workers]
        busy = [worker for worker in leaders if asked.signum and answers(worker.pid, asked.signum)]
        with undisturbed():
            for worker in leaders:
                if worker not in busy:
                    worker.signal_leader(word := asked.word_for(worker.pid))
                    busy += [worker] if word != signal.SIGTERM else []
                worker.signal_leader(signal.SIGCONT)
            done_s = self.reactor.now()
        self._promise(order.ranks, asked)
        left_s = order.deadline.left_s(done_s)
        late_s = order.deadline.at_s - min(_LAST_WORD_S, left_s / 6)
        self.reactor.call_at(late_s, partial(_ask_late, busy))
        self.reactor.call_at(done_s + left_s / 3, partial(self._ask_below, dict(workers)))
        return done_s

    def promise(self, ranks: frozenset[int], *, stop: bool) -> None:
        """These have been asked to save, and have until they are killed."""
        self._promise(ranks, _Asked(at_s=boottime(), stop=stop, signum=0))

    def _promise(self, ranks: frozenset[int], asked: _Asked) -> None:
        self._asked |= dict.fromkeys(ranks, asked)
        for rank in ranks & self._left.keys():
            self._left[rank].ask(asked)

    def outlive(self, rank: int, leader: int, ended: ExitStatus, over: Ready) -> bool:
        """Whether ``rank`` may live on now that ``leader`` has ended; ``over`` is called once it does not.

        ``leader`` must not have been reaped: its number is that of the session. One that was ended by what
        may be the first sign of a stop waits a moment for it.
        """
        stopped = isinstance(ended, Signaled) and ended.signum in STOP_SIGNUMS
        asked = self._asked.get(rank)
        if (asked is None and not stopped) or rank in self._given_up:
            return False
        left = _Left(self, rank, leader, over, wrapper=stopped or is_shell(leader))
        self._left[rank] = left
        left.alone = isinstance(ended, Signaled) and ended.signum in self._lived_through
        if asked is None and left.alone:
            left.look()
        elif asked is None:
            at_s = self.reactor.now() + SAME_STOP_S
            self.reactor.call_at(at_s, lambda: () if rank in self._asked else self._give_up((rank,)))
            left.look()
        else:
            left.ask(asked)
        return True

    def instead(self, rank: int) -> ExitStatus | None:
        """How the last program ended of a rank that went on without its leader; None for any other."""
        left = self._left.get(rank)
        return left.last if left is not None and left.alone else None

    def kill(self, ranks: frozenset[int], writers_until: Deadline) -> None:
        """These are being killed: until then only those are awaited that have a checkpoint open."""
        if writers_until.is_over(self.reactor.now()):
            self.reactor.call(partial(self._give_up, ranks))
            return
        self.writers_only = True
        for left in self._left.values():
            left.look()
        self.reactor.call_at(writers_until.at_s, partial(self._give_up, ranks))

    def _give_up(self, ranks: Iterable[int]) -> Iterable[Event]:
        for rank in ranks:
            self._given_up.add(rank)
            if (left := self._left.pop(rank, None)) is not None:
                yield from left.finish()

    def _ask_below(self, workers: Mapping[int, Process]) -> Iterable[Event]:
        for rank, worker in workers.items():
            if rank in self._asked and rank not in self._left and worker.pidfd >= 0:
                left = _Left(self, rank, worker.pid, tuple, wrapper=False)
                self.look(rank, worker.pid, partial(left.tell, self._asked[rank]))
        return ()

    def look(self, rank: int, leader: int, seen: Callable[[Below], Iterable[Event]]) -> None:
        """Have ``seen`` called with what is below ``rank``."""
        self._tasks.send(lambda: self._tell(seen, self._look(rank, leader)))

    def _tell(self, seen: Callable[[Below], Iterable[Event]], below: Below) -> Iterable[Event]:
        self.reactor.call(lambda: seen(below))
        return ()


def _ask_late(busy: Iterable[Process]) -> Iterable[Event]:
    for worker in busy:
        worker.signal_leader(signal.SIGTERM)
    return ()


class _Left:
    """What is left of one rank. ``wrapper``: its leader was no more than the way to its programs."""

    def __init__(
        self, of_all: SessionLeftovers, rank: int, leader: int, over: Ready, *, wrapper: bool
    ) -> None:
        self._of_all, self._rank, self._leader, self._over = of_all, rank, leader, over
        self._wrapper = wrapper
        self.alone, self.last = False, None  # type: bool, ExitStatus | None
        self._asked: _Asked | None = None
        self._told: set[int] = set()
        self._pidfds: dict[int, int] = {}
        self._finished = False

    def ask(self, asked: _Asked) -> None:
        """From now on who hears is asked to save."""
        self._asked = asked
        self.look()

    def look(self) -> None:
        """Look for processes that are left; what a process has started may outlive it in turn."""
        self._of_all.look(self._rank, self._leader, self._seen)

    def finish(self) -> Iterable[Event]:
        """Wait no longer."""
        finished, self._finished = self._finished, True
        for pid in tuple(self._pidfds):
            self._forget(pid)
        return () if finished else self._over()

    def _seen(self, below: Below) -> Iterable[Event]:
        if self._finished:
            return ()
        since_s = 0.0 if self._asked is None else self._asked.at_s
        every = self._wrapper or (self._asked is not None and self._asked.stop)
        awaited = below.awaited(all_programs=every, since_s=since_s)
        if self._of_all.writers_only:
            awaited = below.writing
        for pid in self._pidfds.keys() - awaited:
            self._forget(pid)
        for pid in awaited - self._pidfds.keys():
            with suppress(OSError):
                self._pidfds[pid] = os.pidfd_open(pid)
                self._of_all.reactor.watch(self._pidfds[pid], partial(self._ended, pid))
        if self._asked is not None:
            self.tell(self._asked, below)
        return () if self._pidfds else self.finish()

    def tell(self, asked: _Asked, below: Below) -> Iterable[Event]:
        """The word to those whom none above them has told, once."""
        for pid in set(below.to_ask(all_programs=self._wrapper)) - self._told:
            self._told.add(pid)
            with suppress(OSError), pidfd_of(pid) as pidfd:
                # No other process with the number of one that has ended.
                same = os.getsid(pid) == below.found[pid].session
                if same and not (asked.signum and answers(pid, asked.signum)):
                    signal.pidfd_send_signal(pidfd, asked.word_for(pid))
                    signal.pidfd_send_signal(pidfd, signal.SIGCONT)
        return ()

    def _ended(self, pid: int) -> Iterable[Event]:
        with suppress(OSError):  # it is ours to ask since its parent has ended
            self.last = Process(pid, self._pidfds[pid]).ended_as()
        self._forget(pid)
        self.look()
        return ()

    def _forget(self, pid: int) -> None:
        pidfd = self._pidfds.pop(pid)
        self._of_all.reactor.forget(pidfd)
        os.close(pidfd)
