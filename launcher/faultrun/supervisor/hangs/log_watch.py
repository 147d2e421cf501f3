"""Reads the workers' new logs, where ranks do not report their steps: the first one, and how far they are.

A log is read from its beginning until one tells a step, then its newest lines. Where ranks have stayed, only
what those that came print is read: their logs go on where the dead ones' ended. Files are read by a thread;
a disk that hangs holds up nothing, and ``beats`` says nothing while it does.
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from faultrun.core.hangs.limits import Beat
from faultrun.core.logged_steps import LoggedStep, StepsSeen, first_step, last_step, read, unread
from faultrun.files import bytes_from
from faultrun.model.events import Event, IncarnationStarted
from faultrun.model.observed.progress import WorkPhase
from faultrun.model.observed.recovery import FirstStepLogged
from faultrun.model.run import Phase, Step
from faultrun.supervisor.launch.progress_page import LiveWorkers
from faultrun.supervisor.reactor import BackgroundTasks, Reactor

_MOST_BYTES, _NEWEST_BYTES, _LOOKED_BACK_BYTES = 1 << 20, 1 << 10, 1 << 14
_SOONEST_S, _LATEST_S, _RANK_S, _RANK_SOON_S = 0.1, 5.0, 0.25, 0.02
_SHARE = 0.05
_FRESH = 3
_MOST_LOGS = 8

NOT_GLOBAL = 10**9
"""The step of a beat is no global one from here on, but goes up with training as well."""


@dataclass(slots=True)
class _Stream:
    """One file of a log. ``begin`` is what it held before, ``rest`` is being written."""

    path: Path
    begin: int = 0
    at: int = 0
    rest: str = ""

    def lines(self, *, newest: bool) -> list[str] | None:
        """The whole lines that came; None if nothing did. Of many only the ``newest``, or behind a limit."""
        size = 0
        with suppress(OSError):
            size = self.path.stat().st_size
        if size < max(self.at, self.begin):  # it was cut: all that it holds is new
            self.at = self.begin = 0
            self.rest = ""
        self.at = max(self.at, self.begin)
        if size == self.at:
            return None
        newest |= self.at - self.begin >= _MOST_BYTES
        if newest and size - self.at > _NEWEST_BYTES:
            self.at, self.rest = size - _NEWEST_BYTES, ""
        data = bytes_from(self.path, self.at, _MOST_BYTES)
        self.at += len(data)
        *lines, self.rest = (self.rest + data.decode("utf-8", "replace")).replace("\r", "\n").split("\n")
        return lines if data else None


@dataclass(slots=True)
class _Log:
    """What one rank prints, and what was learnt of it. ``grew_s``: when it was seen to grow last."""

    streams: tuple[_Stream, ...]
    seen: StepsSeen
    grew_s: float = 0.0

    def look(self, now_s: float, *, newest: bool) -> None:
        """Read on."""
        for stream in self.streams:
            if (lines := stream.lines(newest=newest)) is not None:
                self.seen, self.grew_s = read(self.seen, lines), now_s

    def beat(self, rank: int) -> Beat | None:
        """The rank's word by its log; None while that tells no step. Behind the last anything may come."""
        told = self.seen.last(ended=False)
        if told is None or (told.step is None and told.in_epoch is None):
            return None
        within = ((told.epoch or 0) + 1) * NOT_GLOBAL + (told.in_epoch or 0)
        phase = WorkPhase.UNKNOWN if self.seen.at_end else WorkPhase.COMPUTING
        step = within if told.step is None else told.step
        return Beat(rank=rank, begun=True, stepped=True, step=step, phase=phase, spoke_at_s=self.grew_s)


@dataclass(slots=True)
class _Life:
    """One incarnation's logs. ``beats`` and ``read_s`` are of the last look."""

    incarnation: int
    began_s: float
    logs: Mapping[int, _Log]
    told: bool = False
    beats: tuple[Beat, ...] = ()
    read_s: float = field(default=float("-inf"))


@dataclass(frozen=True, slots=True)
class LogPlace:
    """A moment of a training: the newest ``step`` that was reported, else how far logs were written."""

    step: int | None
    sizes: tuple[tuple[_Log, Path, int], ...] = ()


class LogWatch:
    """Implements ``interfaces.EventListener``. A life's logs are looked at until its workers are ended."""

    def __init__(self, reactor: Reactor, workers: LiveWorkers) -> None:
        self._reactor, self._workers = reactor, workers
        self._tasks = BackgroundTasks(reactor)
        self._life: _Life | None = None
        self._last: _Life | None = None
        self._answer: tuple[Path, int, LoggedStep] | None = None

    def tell(self, event: Event, step: Step) -> None:
        """Begin to read the logs of ranks as they start, and stop as they are ended."""
        files, life, running = self._workers.logs, self._life, step.state.phase is Phase.RUNNING
        self._last = None if life is None and running else self._last  # of a life that begins none is known
        if life is not None and not running:
            self._life = None  # a life that was short may have said more than was read
            if not life.told:
                self._tasks.send(lambda: self._read(life, ended=True))
        if not isinstance(event, IncarnationStarted) or not running or files is None:
            return
        plan = step.state.plan
        stayed = frozenset[int]() if plan is None else plan.kept
        logs = {}
        for rank in event.ranks:
            if rank not in stayed:
                paths = (files.worker(rank), files.worker_errors(rank))
                began = [path.stat().st_size if stayed and path.exists() else 0 for path in paths]
                streams = tuple(_Stream(path, size) for path, size in zip(paths, began, strict=True))
                logs[rank] = _Log(streams, unread(files.step_pattern))
        self._life = self._last = _Life(event.incarnation, self._reactor.now(), logs)
        self._again(self._life)

    def place(self) -> LogPlace:
        """Where training is at this moment, or was at its end, to be asked of ``step_at`` later; quick."""
        page, life = self._workers.page, self._last
        told = max((one.step for one in page.steps()), default=None) if page is not None else None
        logs = () if told is not None or life is None else tuple(life.logs.values())[:_MOST_LOGS]
        sizes = ((log, one) for log in logs for one in log.streams if one.path.exists())
        return LogPlace(told, tuple((log, one.path, one.path.stat().st_size) for log, one in sizes))

    def step_at(self, place: LogPlace) -> int | None:
        """The newest step of training at ``place``, as ranks reported it or their logs told it by then.

        None where one that told no step yet came to an earlier one afterwards: it had still to begin.
        """
        if place.step is not None:
            return place.step
        sizes = place.sizes or self.place().sizes  # noted before its logs were known: as of now
        told = [(one, self._told_in(*one).step) for one in sizes]
        newest = max((step for _, step in told if step is not None), default=None)
        began = {id(log) for (log, _, _), step in told if step is not None}
        later = (_first_behind(*one) for one, _ in told if newest is not None and id(one[0]) not in began)
        return None if any(step is not None and step <= (newest or 0) for step in later) else newest

    def had_begun(self, place: LogPlace) -> bool:
        """Whether logs told by ``place`` of steps that count anew in epochs, whose length is unknown."""
        told = [self._told_in(*one) for one in place.sizes or self.place().sizes]
        return all(one.step is None for one in told) and any(one.in_epoch is not None for one in told)

    def _told_in(self, log: _Log, path: Path, size: int) -> LoggedStep:
        """What the log told when it had ``size`` bytes; many ask for the same moment."""
        if (known := self._answer) is not None and known[:2] == (path, size):
            return known[2]
        told = None
        for most in (_NEWEST_BYTES, _LOOKED_BACK_BYTES) if size > _NEWEST_BYTES else (_NEWEST_BYTES,):
            begin = max(0, size - most)
            lines = bytes_from(path, begin, size - begin).decode("utf-8", "replace").splitlines()
            told = log.seen.at(lines)
            if told is None and log.seen.last(ended=False) is None:
                told = last_step(lines, "" if (given := log.seen.pattern) is None else given.pattern)
            if told is not None:
                break
        self._answer = (path, size, told or LoggedStep())
        return self._answer[2]

    def beats(self) -> tuple[Beat, ...]:
        """How far those ranks are whose logs tell; empty while the logs are not read any more."""
        life = self._life
        if life is None or self._reactor.now() - life.read_s > _FRESH * self._interval_s(life):
            return ()
        return life.beats

    def _interval_s(self, life: _Life) -> float:
        latest_s = max(_LATEST_S, _RANK_S * len(life.logs))
        soon_s = max(_SOONEST_S, _RANK_SOON_S * len(life.logs), _SHARE * (self._reactor.now() - life.began_s))
        return latest_s if life.told else min(latest_s, soon_s)

    def _again(self, life: _Life) -> None:
        known = life.incarnation  # of a life that is over by then no logs are kept
        self._reactor.call_at(self._reactor.now() + self._interval_s(life), lambda: self._look(known))

    def _look(self, incarnation: int) -> Iterable[Event]:
        page, life = self._workers.page, self._life
        by_log = page is not None and not page.reporting()
        if life is not None and life.incarnation == incarnation and by_log:
            self._tasks.offer(lambda: self._read(life, ended=False))
            self._again(life)
        return ()

    def _read(self, life: _Life, *, ended: bool) -> Iterable[Event]:
        """In the thread."""
        now_s = self._reactor.now()
        for log in life.logs.values():
            log.look(now_s, newest=life.told)
        life.beats = tuple(beat for rank, log in life.logs.items() if (beat := log.beat(rank)) is not None)
        life.read_s = now_s
        for rank, log in life.logs.items() if not life.told else ():
            if (found := log.seen.first(ended=ended)) is not None:
                life.told = True
                where = {"step": found.step, "epoch": found.epoch, "in_epoch": found.in_epoch}
                yield FirstStepLogged(at_s=now_s, incarnation=life.incarnation, rank=rank, **where)
                return


def _first_behind(log: _Log, path: Path, size: int) -> int | None:
    """The first step that a log tells of soon after it had ``size`` bytes; None where it tells of none."""
    lines = bytes_from(path, size, _LOOKED_BACK_BYTES).decode("utf-8", "replace").splitlines()
    found = first_step(lines, "" if (given := log.seen.pattern) is None else given.pattern)
    return None if found is None else found.step
