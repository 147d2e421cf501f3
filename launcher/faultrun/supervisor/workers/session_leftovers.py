"""What is left in the session of a leader that was asked to save, and has ended.

``bash train.sh`` dies of the SIGTERM that its program never hears of; a shell with a trap passes it on and
does not wait. The rank lives as long as a program of it does, until it is killed with the rest.
"""

import os
import signal
from collections.abc import Iterable
from contextlib import suppress
from functools import partial

from faultrun.model.events import Event
from faultrun.model.exits import ExitStatus, Signaled
from faultrun.supervisor.reactor import Reactor, Ready
from faultrun.workers.proc_reader import is_shell, members, to_ask
from faultrun.workers.sweep import pidfd_of

_DIED_OF_THE_REQUEST = Signaled(signum=signal.SIGTERM)


class SessionLeftovers:
    """Those of all ranks of one incarnation. ``give_up`` and ``outlive`` belong to the loop's thread."""

    def __init__(self, reactor: Reactor) -> None:
        self._reactor = reactor
        self._promised: frozenset[int] = frozenset()
        self._sessions: dict[int, _Session] = {}

    def promise(self, ranks: frozenset[int]) -> None:
        """These have been asked to save, and have until they are killed."""
        self._promised |= ranks

    def outlive(self, rank: int, leader: int, ended: ExitStatus, over: Ready) -> bool:
        """Whether a program of ``rank`` is left now that ``leader`` has ended; it is asked to save, too.

        ``leader`` must not have been reaped: its number is that of the session.
        ``over`` is called once none is left. A leader that is no shell and answered the
        request has done what it could: what it leaves behind serves nobody.
        """
        ask = ended == _DIED_OF_THE_REQUEST
        if rank not in self._promised or not (ask or is_shell(leader)):
            return False
        session = _Session(self._reactor, leader, over, ask=ask)
        self._sessions[rank] = session
        return session.look()

    def give_up(self, rank: int) -> Iterable[Event]:
        """``rank`` is being killed: wait no longer."""
        session = self._sessions.pop(rank, None)
        return session.give_up() if session is not None else ()


class _Session:
    def __init__(self, reactor: Reactor, leader: int, over: Ready, *, ask: bool) -> None:
        self._reactor, self._leader, self._over = reactor, leader, over
        self._ask = ask
        self._asked: set[int] = set()
        self._pidfds: dict[int, int] = {}

    def give_up(self) -> Iterable[Event]:
        over = self._over if self._pidfds else tuple
        for pid in tuple(self._pidfds):
            self._forget(pid)
        return over()

    def look(self) -> bool:
        """Watch every program that lives; whether there is one."""
        found = members(self._leader)
        for pid, member in found.items():
            if member.program and pid not in self._pidfds:
                with suppress(OSError):
                    self._pidfds[pid] = os.pidfd_open(pid)
                    self._reactor.watch(self._pidfds[pid], partial(self._ended, pid))
        if self._ask:
            for pid in to_ask(found):
                self._ask_to_save(pid)
        return bool(self._pidfds)

    def _ask_to_save(self, pid: int) -> None:
        if pid in self._asked:
            return
        self._asked.add(pid)
        with suppress(OSError), pidfd_of(pid) as pidfd:
            if os.getsid(pid) == self._leader:  # no stranger with the number of one that has ended
                signal.pidfd_send_signal(pidfd, signal.SIGTERM)
                signal.pidfd_send_signal(pidfd, signal.SIGCONT)

    def _ended(self, pid: int) -> Iterable[Event]:
        """Whatever it started itself may outlive it in turn."""
        self._forget(pid)
        return () if self.look() else self._over()

    def _forget(self, pid: int) -> None:
        pidfd = self._pidfds.pop(pid)
        self._reactor.forget(pidfd)
        os.close(pidfd)
