"""Watches a running incarnation for silence; what it finds goes to ``decide`` as events.

Looks at the progress page a few times a second at most, and at the processes
only when everybody is silent. Never waits: looks that take time happen in a
thread (``inspection``).
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from faultrun.core import hang, quiet
from faultrun.core.hang_limits import Beat, Watch, silence
from faultrun.core.suspects import Blamed
from faultrun.model.actions import Inspect
from faultrun.model.events import Event
from faultrun.model.hang import (
    HangDetected,
    HangDismissed,
    HangPolicy,
    HangSignal,
    HangSuspected,
    HangWarned,
    Patience,
    PauseOver,
    Stance,
    Suspicion,
)
from faultrun.model.progress import WorkPhase
from faultrun.model.wire import Progress
from faultrun.supervisor.background import BackgroundTasks
from faultrun.supervisor.inspection import PATIENCE_S, Inspection, judged
from faultrun.supervisor.progress import phase_of
from faultrun.supervisor.reactor import Reactor
from faultrun.supervisor.worker_group import WorkerGroup
from faultrun.workers.look import snapshots, state_of

_OVERDUE_S = 10 * PATIENCE_S
"""A look that takes longer has a disk that hangs; on a busy machine it may take a while."""

_LOOK_AT_STATE_S = 5.0
_GLANCE_SHARE = 0.5


class HangWatch:
    """One for a supervisor; ``begin`` with each incarnation. Main thread only."""

    def __init__(self, policy: HangPolicy, crew: WorkerGroup, reactor: Reactor, log_dir: Path) -> None:
        self._policy = policy
        self._crew = crew
        self._reactor = reactor
        self._log_dir = log_dir
        self._errands = BackgroundTasks(reactor)
        self._life = 0
        self._beats: dict[int, Beat] = {}
        self._watch = Watch(policy=policy, at_s=0.0)
        self._quiet = quiet.Quiet(policy=policy, at_s=0.0)
        self._inspection: Inspection | None = None
        self._order: tuple[float, HangSuspected] | None = None
        self._glanced = False

    def begin(self, patience: Patience) -> None:
        """The workers of an incarnation have been started. Of earlier ones only ``patience`` is known."""
        self.end()
        page = self._crew.page
        if not self._policy.enabled or page is None:
            return
        now_s = self._reactor.clock.now()
        self._beats = {}
        self._watch = Watch(policy=self._policy, at_s=now_s, run=patience)
        self._quiet = quiet.Quiet(policy=self._policy, at_s=now_s, run=patience)
        self._inspection = Inspection(self._reactor.clock, self._log_dir, page.path.parent)
        self._order, self._glanced = None, False
        self._again(self._life)

    def end(self) -> None:
        """The incarnation is over: its workers are being ended, and silence is no news."""
        self._life += 1

    def settle(self, patience_s: float) -> None:
        """Wait, bounded, for the inspecting thread; called before processes are forked."""
        self._errands.settle(patience_s)

    def raise_bug(self) -> None:
        """As ``Errands.raise_bug``."""
        self._errands.raise_bug()

    def inspect(self, order: Inspect) -> None:
        """Look into the suspicion in a thread of its own."""
        inspection, life = self._inspection, self._life
        if inspection is None:
            return
        workers, beats = self._crew.workers(), dict(self._beats)
        finished = tuple(
            (rank, beat.step)
            for rank, beat in beats.items()
            if beat.stepped and (rank not in workers or beat.phase is WorkPhase.DONE)
        )

        def look() -> Iterable[Event]:
            for event in inspection.inspect(order, workers, beats, finished):
                if life == self._life and self._order is not None:
                    yield self._unless_heard(event, order.suspicion.front, beats)

        suspicion = self._order[1] if self._order is not None else None
        if suspicion is not None:
            self._crew.ask_for_threads()
            self._errands.send(look, lambda: self._unseen(suspicion))

    def _unless_heard(
        self,
        event: HangDetected | HangWarned | HangDismissed,
        front: tuple[int, ...],
        beats: Mapping[int, Beat],
    ) -> Event:
        """A rank that speaks while it is looked at does not hang, unless it was us who woke it."""
        if not isinstance(event, HangDismissed) and event.stance is not Stance.STOPPED:
            for rank, beat in self._words().items():
                if rank in front and beat != beats.get(rank):
                    why = f"rank {rank} spoke while it was looked at"
                    return HangDismissed(at_s=event.at_s, incarnation=event.incarnation, why=why)
        return event

    def told(self, event: Event) -> None:
        """What became of a suspicion."""
        if self._order is None or event.incarnation != self._crew.incarnation:
            return
        suspicion = self._order[1].suspicion
        match event:
            case HangDismissed(excused_s=excused_s):
                self._order = None  # what it saw is the next one's glance
                self._watch = hang.dismissed(self._watch, suspicion, excused_s)
                self._quiet = quiet.dismissed(self._quiet, suspicion)
            case HangWarned():
                self._order = None
                self._watch = hang.warned(self._watch, event)
                self._quiet = quiet.warned(self._quiet, event)
            case _:
                pass

    def _again(self, life: int) -> None:
        interval_s = self._interval_s()
        self._reactor.call_at(self._reactor.clock.now() + interval_s, lambda: self._look(life, interval_s))

    def _interval_s(self) -> float:
        spoken = any(beat.begun for beat in self._beats.values())
        if self._policy.signal is HangSignal.LOG and not spoken:
            return min(10.0, max(0.25, self._policy.quiet_s / 8))
        return hang.interval(self._watch)

    def _look(self, life: int, interval_s: float) -> Iterable[Event]:
        page = self._crew.page
        workers = self._crew.pids()
        if life != self._life or page is None or not workers:
            return
        now_s = self._reactor.clock.now()
        self._beats = self._words()
        living = [beat for rank, beat in self._beats.items() if rank in workers]
        self._watch = hang.observe(self._watch, living, now_s, interval_s)
        self._again(life)
        if self._order is not None:
            yield from self._overdue(now_s)
        else:
            yield from self._suspect(workers, now_s, interval_s)
        yield from self._went_on(now_s)

    def _went_on(self, now_s: float) -> Iterable[Event]:
        """A pause that is worth a line is over, by either way of seeing it."""
        for watch in (self._watch, self._quiet):
            if watch.over is not None:
                yield PauseOver(
                    at_s=now_s,
                    incarnation=self._crew.incarnation,
                    rank=watch.over.rank,
                    paused_s=watch.over.paused_s,
                    longest_s=watch.run.longest_s,
                    warned=watch.over.warned,
                )
        self._watch, self._quiet = replace(self._watch, over=None), replace(self._quiet, over=None)

    def _words(self) -> dict[int, Beat]:
        page = self._crew.page
        return {rank: self._beat(rank, word) for rank, word in page.words()} if page is not None else {}

    def _beat(self, rank: int, word: Progress | None) -> Beat:
        if word is None:
            return Beat(rank=rank, begun=False)
        return Beat(
            rank=rank,
            begun=True,
            stepped=word.count > 0,
            step=word.step if word.count > 0 else -1,
            phase=phase_of(word.phase),
            spoke_at_s=self._reactor.clock.of_monotonic(word.at_monotonic_s),
        )

    def _suspect(self, workers: Mapping[int, int], now_s: float, interval_s: float) -> Iterable[Event]:
        if self._policy.signal is HangSignal.LOG and not any(beat.begun for beat in self._beats.values()):
            suspicion = self._quiet_suspects(workers, now_s, interval_s)
        else:
            self._glance_in_time()
            suspicion = hang.suspect(self._watch, self._stopped(workers))
        if suspicion is not None:
            event = HangSuspected(at_s=now_s, incarnation=self._crew.incarnation, suspicion=suspicion)
            self._order = (now_s, event)
            yield from self._crew.newest_steps()
            yield event

    def _glance_in_time(self) -> None:
        """When half of the time is over: to know later what everybody did in the other half."""
        half = hang.suspect(self._watch, share=_GLANCE_SHARE) is not None
        if half and not self._glanced and self._inspection is not None:
            inspection, workers = self._inspection, self._crew.workers()
            self._errands.send(lambda: inspection.glance(workers), self._bug)
        self._glanced = half

    def _stopped(self, workers: Mapping[int, int]) -> frozenset[int]:
        """Ranks in state T, of those that have been silent for a while."""
        after_s = 0.0 if self._watch.looks.woken else _LOOK_AT_STATE_S
        silent = [one for one in self._watch.seen if silence(self._watch, one) >= after_s]
        return frozenset(one.beat.rank for one in silent if state_of(workers[one.beat.rank]) == "T")

    def _quiet_suspects(
        self, workers: Mapping[int, int], now_s: float, interval_s: float
    ) -> Suspicion | None:
        logs = self._crew.logs
        if logs is None:
            return None
        found = snapshots(tuple(workers.values()))
        signs = [
            quiet.Sign(
                rank=rank,
                log_bytes=logs.size_bytes(rank),
                cpu_s=found[pid].cpu_s + found[pid].children_cpu_s,
                io_bytes=found[pid].io_bytes,
            )
            for rank, pid in workers.items()
            if pid in found
        ]
        self._quiet = quiet.observe(self._quiet, signs, now_s, interval_s)
        stopped = frozenset(rank for rank, pid in workers.items() if state_of(pid) == "T")
        return quiet.suspect(self._quiet, stopped) if signs else None

    def _overdue(self, now_s: float) -> Iterable[Event]:
        """An inspection that never ends (its disk hangs) must not keep a hang from being acted on."""
        assert self._order is not None
        asked_s, suspected = self._order
        if now_s - asked_s >= _OVERDUE_S:
            self._order = (float("inf"), suspected)
            yield self._unseen(suspected)

    def _unseen(self, suspected: HangSuspected) -> Event:
        suspicion = suspected.suspicion
        rank = min(suspicion.behind)
        verdict = Blamed(rank=rank, stance=Stance.UNKNOWN, why="could not be looked at")
        return judged(
            suspicion,
            verdict,
            self._beats.get(rank),
            at_s=self._reactor.clock.now(),
            incarnation=suspected.incarnation,
        )

    def _bug(self) -> Event:
        """A glance that fails is a bug of ours; ``raise_bug`` says so."""
        return HangDismissed(
            at_s=self._reactor.clock.now(), incarnation=self._crew.incarnation, why="a bug in faultrun"
        )
