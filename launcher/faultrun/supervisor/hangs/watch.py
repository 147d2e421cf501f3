"""Watches a running incarnation for silence; what it finds goes to ``decide`` as events.

Looks at the progress page a few times a second at most, and has the processes
looked at (``inspection``) only when all ranks are silent. Never waits.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Protocol

from faultrun.core.hangs import detector
from faultrun.core.hangs.limits import LOGGED, Beat, Pause, Sign, Watch, silence
from faultrun.core.hangs.standstill import AWAKE_S, Tally, of_late, worked
from faultrun.model.events import Event, IncarnationStarted
from faultrun.model.observed.hang import (
    HangDismissed,
    HangElsewhere,
    HangPolicy,
    HangSignal,
    HangSuspected,
    HangWarned,
    NodeSpoke,
    PauseHistory,
    PauseOver,
    Suspicion,
)
from faultrun.model.run import Phase, Step
from faultrun.supervisor.hangs.log_watch import NOT_GLOBAL, LogWatch
from faultrun.supervisor.launch.progress_page import LiveWorkers
from faultrun.supervisor.reactor import Reactor
from faultrun.workers.proc_reader import processor_s, snapshots, state_of

_LOOK_AT_STATE_S = 5.0
_GLANCE_SHARE = 0.5
_STOOD_S = 5.0
"""A supervisor that is so late has been stopped; no busy machine keeps it waiting that long."""


class Glances(Protocol):
    """What the watch may ask of the inspection, which acts and is not to be imported here."""

    def glance(self) -> None:
        """Note what each rank has consumed by now."""

    def suspected(self, beats: Mapping[int, Beat]) -> None:
        """Note what each rank had said when a suspicion came up."""


def _by_logs(watch: Watch) -> Watch:
    """The user's limits are for ranks that speak; until steps have a usual length nothing is unusual."""
    policy = replace(watch.policy, step=LOGGED, compile_s=LOGGED.high_s, given=frozenset())
    return replace(watch, policy=policy, by_log=True)


class HangWatch:
    """Implements ``interfaces.EventListener``: it hears when workers run, and what became of its suspicions.

    All ways of seeing are kept, for a rank may begin to speak: ``_watch`` by the SDK's words, ``_quiet`` by
    logs and consumption, ``_logged`` by the steps that logs tell, for which no rank is ended.
    """

    def __init__(
        self, policy: HangPolicy, workers: LiveWorkers, glances: Glances, reactor: Reactor, logs: LogWatch
    ) -> None:
        self._policy, self._workers, self._glances = policy, workers, glances
        self._reactor, self._logs = reactor, logs
        self._life = 0
        self._beats: dict[int, Beat] = {}
        self._watch = self._quiet = Watch(policy=policy, at_s=0.0)
        self._logged = _by_logs(self._watch)
        self._suspicion: Suspicion | None = None
        self._glanced = False
        self._tallies: tuple[Tally, ...] = ()

    def tell(self, event: Event, step: Step) -> None:
        """Watch for silence from the start of an incarnation until its workers are being ended."""
        ours, suspicion = event.incarnation == self._workers.incarnation, self._suspicion
        if step.state.phase is not Phase.RUNNING:
            self._life += 1
            self._suspicion = None
            return
        match event:
            case IncarnationStarted() if self._policy.enabled:
                self._begin(step.state.run.patience)
            case HangDismissed() if ours and suspicion is not None:
                self._suspicion = None  # what was seen is the next one's glance
                self._watch = detector.dismissed(self._watch, suspicion, event.excused_s)
                self._quiet = detector.dismissed(self._quiet, suspicion)
                self._logged = detector.dismissed(self._logged, suspicion, event.excused_s)
            case HangWarned() if ours:
                self._suspicion = None
                self._each(lambda watch: detector.warned(watch, event))
            case NodeSpoke(works="") if ours and suspicion is None:
                life = self._life
                self._reactor.call_at(self._reactor.now(), lambda: self._asked(life))
            case NodeSpoke() | HangElsewhere() if ours and suspicion is not None:
                if step.state.life.standstill.suspicion is None:  # a rank of another node is at work
                    self._suspicion = None
                    self._each(lambda watch: detector.dismissed(watch, suspicion))

    def _each(self, change: Callable[[Watch], Watch]) -> None:
        self._watch, self._quiet, self._logged = map(change, (self._watch, self._quiet, self._logged))

    def _begin(self, patience: PauseHistory) -> None:
        """Begin to watch an incarnation; of earlier ones only ``patience`` is known."""
        now_s = self._reactor.now()
        self._life += 1
        self._beats, self._suspicion, self._glanced, self._tallies = {}, None, False, ()
        self._watch = self._quiet = Watch(policy=self._policy, at_s=now_s, run=patience)
        self._logged = _by_logs(self._watch)
        self._again(self._life)

    def _again(self, life: int) -> None:
        interval_s = self._interval_s()
        self._reactor.call_at(self._reactor.now() + interval_s, lambda: self._look(life, interval_s))

    def _interval_s(self) -> float:
        if self._by_log():
            return min(10.0, max(0.25, self._policy.quiet_s / 8))
        return detector.interval(self._watch)

    def _by_log(self) -> bool:
        """No rank reports, so that what is printed must do."""
        return self._policy.signal is HangSignal.LOG and not any(one.begun for one in self._beats.values())

    def _look(self, life: int, interval_s: float) -> Iterable[Event]:
        page, pids = self._workers.page, dict(self._workers.pids)
        if life != self._life or page is None or not pids:
            return
        now_s = self._reactor.now()
        self._beats = page.beats(self._reactor.clock)
        living = [beat for rank, beat in self._beats.items() if rank in pids]
        stood_s, tally = now_s - self._watch.at_s - interval_s, self._tally(pids, now_s)
        if stood_s > max(_STOOD_S, 2 * (self._watch.usual_s or self._logged.usual_s or 0.0)):
            if not worked(self._tallies, tally, stood_s):
                yield from self._all_stood(pids, now_s, stood_s)
            self._tallies = ()
        self._tallies = of_late(self._tallies, tally)
        self._watch = detector.observe(self._watch, living, now_s, interval_s)
        self._again(life)
        if self._suspicion is None:
            self._suspicion = self._suspect(pids, now_s, interval_s)
            yield from self._suspected(now_s)
        over, (self._watch, self._quiet, self._logged) = detector.told_once(
            (self._watch, self._quiet, self._logged)
        )
        if over is not None:
            yield self._pause(now_s, over)

    def _pause(self, now_s: float, over: Pause, *, all_stood: bool = False) -> PauseOver:
        return PauseOver(
            at_s=now_s,
            incarnation=self._workers.incarnation,
            rank=over.rank,
            paused_s=over.paused_s,
            longest_s=max(one.run.longest_s for one in (self._watch, self._quiet, self._logged)),
            warned=over.warned,
            all_stood=all_stood,
        )

    def _tally(self, pids: Mapping[int, int], now_s: float) -> Tally:
        """The steps of each rank, what it has printed, and its processor time."""
        logs, beats = self._workers.logs, self._beats
        return Tally(
            at_s=now_s,
            done={
                rank: (
                    beats[rank].step if rank in beats else -1,
                    logs.size_bytes(rank) if logs is not None else 0,
                    processor_s(pid),
                )
                for rank, pid in pids.items()
            },
        )

    def _all_stood(self, pids: Mapping[int, int], now_s: float, stood_s: float) -> Iterable[Event]:
        """We were late by that much: so was every rank, unless one spoke or printed meanwhile."""
        logs, clock = self._workers.logs, self._reactor.clock
        said_s = [beat.spoke_at_s for rank, beat in self._beats.items() if beat.begun and rank in pids]
        parts = [part for rank in pids for part in logs.parts(rank)] if logs is not None else []
        said_s += [clock.of_utc_ns(part.stat().st_mtime_ns) for part in parts if part.exists()]
        if not any(now_s - stood_s + AWAKE_S < at_s < now_s - AWAKE_S for at_s in said_s):
            yield self._pause(
                now_s, Pause(rank=min(pids), paused_s=round(stood_s, 3), warned=False), all_stood=True
            )

    def _asked(self, life: int) -> Iterable[Event]:
        """Another node waits for a rank: ours are looked at, although no limit of theirs may be over."""
        if life == self._life and self._suspicion is None:
            by_log = self._by_log()
            watch = self._quiet if by_log else self._watch
            self._suspicion = (detector.suspect_quiet if by_log else detector.suspect)(watch, share=0.0)
            yield from self._suspected(self._reactor.now())

    def _suspected(self, now_s: float) -> Iterable[Event]:
        if self._suspicion is not None:
            self._glances.suspected(self._beats)
            yield from self._workers.newest_steps()
            yield HangSuspected(at_s=now_s, incarnation=self._workers.incarnation, suspicion=self._suspicion)

    def _suspect(self, pids: Mapping[int, int], now_s: float, interval_s: float) -> Suspicion | None:
        logged = self._logged_suspects(pids, now_s, interval_s)
        if self._by_log():
            return self._quiet_suspects(pids, now_s, interval_s) or logged
        if logged is not None:
            return logged
        half = detector.suspect(self._watch, share=_GLANCE_SHARE) is not None
        if half and not self._glanced:
            # When half of the time is over: to know later what each rank did in the other half.
            self._glances.glance()
        self._glanced = half
        return detector.suspect(self._watch, self._stopped(self._watch, pids))

    def _logged_suspects(self, pids: Mapping[int, int], now_s: float, interval_s: float) -> Suspicion | None:
        """By the steps that logs tell, while no rank reports and the logs can be read."""
        told = {beat.rank: beat for beat in self._logs.beats() if beat.rank in pids}
        if not told or any(one.begun for one in self._beats.values()):
            self._logged = replace(self._logged, at_s=now_s)
            return None
        self._logged = detector.observe(self._logged, told.values(), now_s, interval_s)
        found = detector.suspect_logged(self._logged, frozenset(pids), self._stopped(self._logged, pids))
        if found is not None:  # whether it speaks is asked of the page
            self._beats |= {
                rank: replace(beat, begun=False, stepped=beat.step < NOT_GLOBAL)
                for rank, beat in told.items()
            }
        return found

    def _stopped(self, watch: Watch, pids: Mapping[int, int]) -> frozenset[int]:
        """Ranks in state T, of those that have been silent for a while."""
        after_s = 0.0 if watch.looks.woken else _LOOK_AT_STATE_S
        silent = [one for one in watch.seen if silence(watch, one) >= after_s]
        return frozenset(one.beat.rank for one in silent if state_of(pids[one.beat.rank]) == "T")

    def _quiet_suspects(self, pids: Mapping[int, int], now_s: float, interval_s: float) -> Suspicion | None:
        if (logs := self._workers.logs) is None:
            return None
        found = snapshots(tuple(pids.values()))
        signs = [
            Sign(
                rank=rank,
                log_bytes=logs.size_bytes(rank),
                cpu_s=found[pid].cpu_s + found[pid].children_cpu_s,
                io_bytes=found[pid].io_bytes,
            )
            for rank, pid in pids.items()
            if pid in found
        ]
        self._quiet = detector.observe_logs(self._quiet, signs, now_s, interval_s)
        stopped = frozenset(rank for rank, pid in pids.items() if pid in found and found[pid].state == "T")
        return detector.suspect_quiet(self._quiet, stopped) if signs else None
