"""How far each rank of this node has come: readable even after it was killed."""

import errno
import os
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from faultrun.core.hangs.limits import Beat
from faultrun.model.events import Event, Heartbeat, WorkersLost
from faultrun.model.observed.progress import RankStep, WorkPhase, phase_of
from faultrun.model.run import Phase, RunState
from faultrun.model.spec.output import Logs
from faultrun.model.wire import SIGNALS_FILE, SLOT_BYTES, Progress, unpack_word
from faultrun.supervisor.reactor import Reactor, RunClock
from faultrun.workers.logs.last_steps import last_steps
from faultrun.workers.logs.log_files import LogFiles, files_of

_SOONEST_S, _LATEST_S = 60.0, 600.0
_SHARE = 0.01


class ProgressPage:
    """One file of slots (``model.wire``), made anew for each incarnation; zeros where it was cut."""

    def __init__(self, path: Path, ranks: tuple[int, ...]) -> None:
        self.path, self.ranks = path, ranks
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
        try:
            os.write(self._fd, bytes(SLOT_BYTES * len(ranks)))  # where there is no room it is said now
        except OSError:
            os.close(self._fd)
            raise

    def words(self) -> dict[int, Progress | None]:
        """The raw slot of every rank, from its first word on; None for one that is mute."""
        data = os.pread(self._fd, SLOT_BYTES * len(self.ranks), 0)
        at = range(0, SLOT_BYTES * len(self.ranks), SLOT_BYTES)
        return {
            rank: unpack_word(data[begin : begin + SLOT_BYTES])
            for rank, begin in zip(self.ranks, at, strict=True)
        }

    def steps(self) -> tuple[RankStep, ...]:
        """The newest step of every rank that has reported one."""
        return tuple(
            RankStep(
                rank=rank,
                step=word.step,
                epoch=word.epoch if word.epoch >= 0 else None,
                phase=phase_of(word.phase),
            )
            for rank, word in self.words().items()
            if word is not None and word.count > 0
        )

    def reporting(self) -> frozenset[int]:
        """The ranks that use the page, whether they have finished a step or not."""
        return frozenset(rank for rank, word in self.words().items() if word is not None)

    def beats(self, clock: RunClock) -> dict[int, Beat]:
        """The words on the run's clock."""
        return {rank: _beat(rank, word, clock) for rank, word in self.words().items()}

    def done(self, rank: int) -> bool:
        """Whether ``rank`` has said that nothing is left to do, and nothing since."""
        word = self.words().get(rank)
        return word is not None and phase_of(word.phase) is WorkPhase.DONE

    def forget(self, ranks: Collection[int]) -> None:
        """Have these ranks be mute again: others take their places. OSError: the disk."""
        for rank in ranks:
            os.pwrite(self._fd, bytes(SLOT_BYTES), SLOT_BYTES * self.ranks.index(rank))
            self.path.with_name(SIGNALS_FILE.format(rank=rank)).unlink(missing_ok=True)

    def close(self) -> None:
        """Let go of the page; the file stays for other readers."""
        os.close(self._fd)


def _beat(rank: int, word: Progress | None, clock: RunClock) -> Beat:
    if word is None:
        return Beat(rank=rank, begun=False)
    return Beat(
        rank=rank,
        begun=True,
        stepped=word.count > 0,
        step=word.step if word.count > 0 else -1,
        phase=phase_of(word.phase),
        spoke_at_s=clock.of_monotonic(word.at_monotonic_s),
    )


@dataclass(slots=True)
class LiveWorkers:
    """What can be seen of this node's living workers. The worker group alone writes it.

    ``incarnation`` is -1, and there are neither page nor logs, before the first. ``pids`` are by rank.
    """

    clock: RunClock
    incarnation: int = -1
    page: ProgressPage | None = None
    logs: LogFiles | None = None
    pids: dict[int, int] = field(default_factory=dict)

    def is_of(self, files: LogFiles, ranks: tuple[int, ...]) -> bool:
        """Whether these ranks write, or wrote last, in these files."""
        return self.page is not None and self.logs == files and self.page.ranks == ranks

    def new_page(self, files: LogFiles, ranks: tuple[int, ...]) -> ProgressPage:
        """Where workers that all begin write how far they are. OSError: the disk."""
        if self.page is not None:
            self.page.close()
            self.page = None  # on a full disk there may be no other
        page = self.page = ProgressPage(files.progress, ranks)
        return page

    def same_page(self, newcomers: Collection[int]) -> ProgressPage:
        """The page that survivors write on, mute for those whose places are taken. OSError: the disk."""
        if self.page is None:
            raise OSError(errno.ENOENT, "there is no progress page that survivors write")
        self.page.forget(newcomers)
        return self.page

    def newest_steps(self) -> Iterable[Event]:
        """How far each rank is, read before a death is judged."""
        steps = self.page.steps() if self.page is not None else ()
        if steps:
            yield Heartbeat(at_s=self.clock.now(), incarnation=self.incarnation, steps=steps)


def lost_workers(past: RunState, logs: Logs, log_dir: Path, clock: RunClock) -> Iterable[WorkersLost]:
    """How far the workers were that a killed supervisor took along; ``past`` is its journal's end."""
    if past.plan is None or past.phase.without_workers or past.done:
        return
    files = files_of(logs, log_dir, past.plan.started)
    left = last_steps(files, past.plan.topology.ranks_of(past.node))
    alive_s = None if left.changed_utc_ns is None else clock.of_utc_ns(left.changed_utc_ns)
    yield WorkersLost(
        at_s=clock.now(),
        incarnation=past.incarnation,
        steps=left.steps,
        by_log=left.by_log,
        alive_s=alive_s if past.phase is Phase.RUNNING else None,
    )


def period_s(watched_s: float) -> float:
    """What a lost supervisor may cost the account: a minute, 1 % of what it has watched, or ten minutes."""
    return min(_LATEST_S, max(_SOONEST_S, _SHARE * watched_s))


def write_heartbeats(
    reactor: Reactor, workers: LiveWorkers, period_s: Callable[[float], float] = period_s
) -> None:
    """Have a line come now and then while workers run: the journal of a killed one tells how long they did.

    All else that is worth a line is a change, and a training that goes well has none for days. A line has
    some 400 bytes, and a supervisor that goes on with the run needs 70 microseconds to replay it, so they
    become rarer: a day of training has 380 of them, a month 4,600.
    """
    clock = reactor.clock

    def again() -> None:
        reactor.call_at(clock.now() + period_s(clock.now() - clock.start_s), beat)

    def beat() -> Iterable[Event]:
        again()
        if workers.pids:
            steps = _ends(workers.page.steps() if workers.page is not None else ())
            yield Heartbeat(at_s=clock.now(), incarnation=workers.incarnation, steps=steps)

    again()


def _ends(steps: Collection[RankStep]) -> tuple[RankStep, ...]:
    """The rank furthest behind and the one furthest ahead: a line must not grow with the ranks."""
    order = sorted(steps, key=lambda one: one.step)
    return (order[0], order[-1]) if len(order) > 1 else tuple(order)
