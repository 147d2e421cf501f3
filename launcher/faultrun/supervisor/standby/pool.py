"""Keeps the standbys: does what ``core.standby.policy`` decided, gives ranks to those that are ready.

Every method runs in the loop's thread (PDEATHSIG is per thread), none blocks.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from faultrun.core.diagnosis.diagnose import describe
from faultrun.core.standby.headroom import short_of_memory
from faultrun.core.standby.policy import HANDOVER_S
from faultrun.errors import assert_never
from faultrun.model.actions import (
    DismissStandbys,
    GiveUpHandover,
    ParkStandby,
    RaiseStandbys,
    SeatStandbys,
    StandbyAction,
    StartStandby,
)
from faultrun.model.events import Event, Timer
from faultrun.model.exits import Exited, ExitStatus, Signaled
from faultrun.model.observed.standby import EVERY_RANK, StandbyChanged, StandbyPhase, StandbyWish
from faultrun.supervisor.reactor import Reactor
from faultrun.workers.fork_server import ForkServer
from faultrun.workers.launch import Launch
from faultrun.workers.priority import may_rise_again
from faultrun.workers.process import Process
from faultrun.workers.standby import PROBED, Listener, Standby, probe

_CLOSE_S = 2.0


@dataclass(slots=True, kw_only=True)
class _Handover:
    standby: Standby
    launch: Launch
    refusal: str = ""


class Standbys:
    """The standbys of all ranks of this node. ``free_bytes``: memory that may be used up, None where unknown.

    One that is to take over answers within ``handover_s`` or is ended.
    """

    def __init__(
        self,
        wish: StandbyWish,
        log_dir: Path,
        free_bytes: Callable[[], int | None],
        reactor: Reactor,
        handover_s: float = HANDOVER_S,
    ) -> None:
        self._wish, self._handover_s, self._log_dir = wish, handover_s, log_dir
        self._free_bytes, self._reactor = free_bytes, reactor
        self._may_rise = may_rise_again() if wish.count else False
        self._launches: dict[int, Launch] = {}
        self._standbys: dict[int, Standby] = {}
        self._handovers: dict[int, _Handover] = {}
        self._ending: dict[int, Process] = {}
        self._since_s: dict[int, float] = {}
        self._heaviest_bytes = wish.estimate_bytes
        self._ready: set[int] = set()
        self._parked: set[int] = set()
        self._proved_hook = self._probing = False
        self._incarnation = -1

    def perform(self, action: StandbyAction) -> None:
        """Do one thing; what comes of it is posted as ``StandbyChanged``."""
        match action:
            case StartStandby(rank=rank, incarnation=incarnation):
                self._incarnation = incarnation
                self._start(rank)
            case DismissStandbys(ranks=ranks, incarnation=incarnation):
                self._incarnation = incarnation
                for rank in ranks:
                    self._dismiss(rank)
                    self._post(rank, action.state, action.why)
            case SeatStandbys(ranks=ranks):
                self._seat(dict(ranks))
            case RaiseStandbys(ranks=ranks):
                for rank in ranks & self._standbys.keys():
                    self._standbys[rank].look_alive()
            case GiveUpHandover():
                for handover in self._handovers.values():
                    handover.refusal = handover.refusal or f"no answer within {self._handover_s:g} s"
                    handover.standby.process.kill_group()
            case other:
                assert_never(other)

    def begin(self, incarnation: int) -> None:
        """From now on it is about this incarnation."""
        self._incarnation = incarnation

    def park(self, order: ParkStandby, launch: Launch, forks: ForkServer | None = None) -> None:
        """Have a standby become ``launch``, and remain a standby; without room for that it stays as it is.

        Where its place is empty there is room; then ``forks`` starts it if none is there.
        """
        rank, standby = order.rank, self._standbys.get(order.rank)
        if order.heals and standby is None:
            self._start_parked(rank, launch, forks)
        if standby is None or rank not in self._ready:
            return
        if not order.heals and (short := order.short or self._short_of_memory(1, order.needs_bytes)):
            self._post(rank, StandbyPhase.READY, f"kept ready: {short}", memory=standby.memory_bytes())
            return
        if standby.hand_over(launch, launch.argv[self._wish.arguments_at :], None, quietly=True):
            self._parked.add(rank)
            self._ready.discard(rank)
        else:
            self._dismiss(rank)
            self._post(rank, StandbyPhase.LOST, "it cannot be given its rank")

    def _start_parked(self, rank: int, launch: Launch, forks: ForkServer | None) -> None:
        """Start the program as it is; from then on it is a standby like any that is parked."""
        try:
            self._keep(rank, Standby(launch, None, launch.stdout, may_rise=may_rise_again(), forks=forks))
        except OSError as error:
            self._post(rank, StandbyPhase.LOST, f"it could not be started: {error.strerror or error}")
            return
        self._parked.add(rank)
        self._post(rank, StandbyPhase.PARKING)

    def is_parked(self, rank: int) -> bool:
        """Whether its standby has run the program to its first step, or is about to."""
        return rank in self._parked

    def remember(self, rank: int, launch: Launch) -> None:
        """``launch`` is how the worker of ``rank`` is started at present; its standby will be like it."""
        hidden = self._wish.hidden
        env = {name: value for name, value in launch.env.items() if not name.startswith(hidden)}
        self._launches[rank] = replace(launch, env=env if hidden else launch.env)

    def knows(self, rank: int) -> bool:
        """Whether a standby of ``rank`` could be started."""
        return rank in self._launches

    def take(self, rank: int, launch: Launch, listener: Listener | None) -> Process | None:
        """Give ``rank`` to its standby and return the process; None: start it cold.

        The process answers within ``handover_s`` or is ended. ``listener``: where
        rank 0 will listen, None where it need not be waited for.
        """
        if rank not in self._standbys:
            return None
        parked, standby = rank in self._parked, self._no_more(rank)
        if parked:
            standby.look_alive()
            self._close(standby)
            self._post(rank, StandbyPhase.TAKEN)
            return standby.process
        if not standby.hand_over(launch, launch.argv[self._wish.arguments_at :], listener):
            self._end(standby)
            self._post(rank, StandbyPhase.LOST, "it cannot be given its rank; a cold start takes its place")
            return None
        now_s = self._reactor.now()
        self._handovers[rank] = _Handover(standby=standby, launch=launch)
        self._reactor.start_timer(Timer.HANDOVER, now_s + self._handover_s, self._incarnation)
        return standby.process

    def unanswered(self, rank: int, *, restart: bool) -> Launch | None:
        """The worker of ``rank`` has ended: what to start in its place if it never was one, else None.

        ``restart``: it was not asked to leave. Its answer may still lie in the channel.
        """
        if (handover := self._handovers.get(rank)) is None:
            return None
        self._heard(rank, handover.standby)
        if self._handovers.pop(rank, None) is None:
            return None
        self._close(handover.standby)
        why = handover.refusal or "it ended in the hand-over"
        self._post(rank, StandbyPhase.LOST, f"{why}; a cold start takes its place" if restart else why)
        return handover.launch if restart else None

    def pids(self) -> frozenset[int]:
        """Living processes that are no worker yet."""
        waiting = {standby.process.pid for standby in self._standbys.values()}
        return frozenset(waiting | self._ending.keys())

    def close(self) -> None:
        """End them all, bounded; called once the loop has ended."""
        for handover in self._handovers.values():
            handover.standby.close()
        for standby in self._standbys.values():
            standby.process.kill_group()
            standby.close()
        for process in (*(standby.process for standby in self._standbys.values()), *self._ending.values()):
            process.wait(_CLOSE_S)
            process.reap()

    def _start(self, rank: int) -> None:
        """Asked twice before the answer is known, or while the probe runs: once is enough."""
        launch = self._launches.get(rank)
        if launch is None or rank in self._standbys or self._probing:
            return
        missing = self._wish.count - len(self._ready)
        if short := self._short_of_memory(missing, self._heaviest_bytes):
            self._post(EVERY_RANK, StandbyPhase.OFF, short)
            return
        try:
            if not self._proved_hook:
                self._probe(rank, launch)
            else:
                self._start_proved(rank, launch)
        except OSError as error:
            self._post(rank, StandbyPhase.LOST, f"it could not be started: {error.strerror or error}")

    def _probe(self, rank: int, launch: Launch) -> None:
        """Once a run: a Python that passed our hook by would run the program a second time."""
        asked = probe(launch, self.log(rank), self._wish.program_at)
        self._probing = True

        def ended(status: ExitStatus | None) -> None:
            self._probing = False
            self._proved_hook = status == Exited(code=PROBED)
            if self._proved_hook:
                self._reactor.start_timer(Timer.STANDBY, self._reactor.now(), self._incarnation)
            else:
                self._post(EVERY_RANK, StandbyPhase.OFF, f"{launch.argv[0]} does not read PYTHONPATH")

        self._reap(asked, ended)

    def _start_proved(self, rank: int, launch: Launch) -> None:
        launch, wish = self._nobodys(launch)
        self._keep(rank, Standby(launch, wish, self.log(rank), may_rise=self._may_rise))
        self._post(rank, StandbyPhase.STARTING)

    def _keep(self, rank: int, standby: Standby) -> None:
        self._standbys[rank] = standby
        self._since_s[rank] = self._reactor.now()
        # Its rank is looked up when it matters: a node that waits may be given others.
        self._reactor.watch(standby.process.pidfd, lambda: self._ended(self._rank_of(standby)))
        self._reactor.watch(standby.fd, lambda: self._heard(self._rank_of(standby), standby))

    def _nobodys(self, launch: Launch) -> tuple[Launch, StandbyWish]:
        """With fewer than one a rank: what differs from rank to rank comes with the rank.

        Imports that read any of it are left to the program, as those that read what it sets itself.
        """
        envs = [one.env for one in self._launches.values()]
        if self._wish.count >= len(envs):
            return launch, self._wish
        differ = sorted(name for name in set[str]().union(*envs) if len({env.get(name) for env in envs}) > 1)
        env = {name: value for name, value in launch.env.items() if name not in differ}
        return replace(launch, env=env), replace(self._wish, sets=(*self._wish.sets, *differ))

    def _heard(self, rank: int, standby: Standby) -> Iterable[Event]:
        if (messages := standby.messages()) is None:
            self._reactor.forget(standby.fd)
            return ()
        for message in messages:
            match message["kind"], self._handovers.get(rank):
                case "ready", None:
                    self._is_ready(rank, standby, message)
                case "refuse", None:
                    self._post(EVERY_RANK, StandbyPhase.OFF, message["why"])
                case "refuse", _Handover() as handover:
                    handover.refusal = message["why"]
                case "taken", _Handover(refusal=""):
                    del self._handovers[rank]
                    self._close(standby)
                    self._post(rank, StandbyPhase.TAKEN)
                    return ()
        return ()

    def _is_ready(self, rank: int, standby: Standby, message: Mapping[str, Any]) -> None:
        memory_bytes, plain = standby.memory_bytes(), message.get("plain", "")
        self._heaviest_bytes = max(self._heaviest_bytes, memory_bytes)
        if rank in self._standbys:
            self._ready.add(rank)
        why = "; ".join(part for part in (plain, message["note"]) if part)
        imported = tuple(message.get("imported", ()))
        self._post(rank, StandbyPhase.READY, why, memory_bytes, imported)
        if plain:  # the next would find out the same, after seconds of imports
            self._wish = replace(self._wish, imports=())

    def _rank_of(self, standby: Standby) -> int:
        handed = {rank: one.standby for rank, one in self._handovers.items()}
        return next(rank for rank, one in (*self._standbys.items(), *handed.items()) if one is standby)

    def _seat(self, now_of: Mapping[int, int]) -> None:
        """What was kept for one rank serves another. How a rank is started is known as it is started."""
        self._standbys = {now_of.get(rank, rank): one for rank, one in self._standbys.items()}
        self._since_s = {now_of.get(rank, rank): one for rank, one in self._since_s.items()}
        self._ready = {now_of.get(rank, rank) for rank in self._ready}
        self._parked = {now_of.get(rank, rank) for rank in self._parked}

    def _no_more(self, rank: int) -> Standby:
        """It waits no longer; what it is to be now is the caller's."""
        self._ready.discard(rank)
        self._parked.discard(rank)
        standby = self._standbys.pop(rank)
        self._reactor.forget(standby.process.pidfd)
        return standby

    def _ended(self, rank: int) -> Iterable[Event]:
        """A standby that still waited, or rehearsed, is gone."""
        standby = self._no_more(rank)
        self._heard(rank, standby)
        self._close(standby)
        if (status := standby.process.reap()) is not None:
            was = "was " if isinstance(status, Signaled) else ""
            self._post(rank, StandbyPhase.LOST, f"its process {was}{describe(status)}")
        return ()

    def _dismiss(self, rank: int) -> None:
        if rank in self._standbys:
            self._end(self._no_more(rank))

    def _end(self, standby: Standby) -> None:
        self._close(standby)
        self._reap(standby.process, lambda _: None)
        standby.process.kill_group()

    def _reap(self, process: Process, then: Callable[[ExitStatus | None], None]) -> None:
        """Take its end when the kernel gives it back."""

        def ended() -> Iterable[Event]:
            self._reactor.forget(process.pidfd)
            del self._ending[process.pid]
            then(process.reap())
            return ()

        self._ending[process.pid] = process
        self._reactor.watch(process.pidfd, ended)

    def _close(self, standby: Standby) -> None:
        self._reactor.forget(standby.fd)
        standby.close()

    def _short_of_memory(self, missing: int, each_bytes: int) -> str:
        """Why memory forbids so many; a number that the user gave is not doubted."""
        return "" if self._wish.asked else short_of_memory(missing, each_bytes, self._free_bytes())

    def log(self, rank: int) -> Path:
        """What the standby of ``rank`` prints."""
        return self._log_dir / f"standby_{rank}.log"

    def _post(
        self, rank: int, state: StandbyPhase, why: str = "", memory: int = 0, imported: tuple[str, ...] = ()
    ) -> None:
        now_s = self._reactor.now()
        took_s = now_s - self._since_s.get(rank, now_s)
        self._since_s[rank] = now_s
        told = StandbyChanged(at_s=now_s, incarnation=self._incarnation, rank=rank, state=state, why=why)
        told = replace(told, took_s=round(took_s, 6), memory_bytes=memory, imported=imported)
        self._reactor.post(told)
