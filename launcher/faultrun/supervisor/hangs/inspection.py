"""Looks at the processes of a job that stands still: who works, who is stuck where, and all stacks.

Runs in a thread of its own and is bounded: neither a slow debugger nor a hung
disk keeps the loop from acting on what is known.
"""

import signal
import threading
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from faultrun.core.hangs.attribution import Blamed, Working, acts, judge, judged
from faultrun.core.hangs.limits import Beat
from faultrun.core.hangs.process_activity import ProcessSample, has_left, main_thread
from faultrun.files import bytes_from
from faultrun.model.actions import Inspect
from faultrun.model.events import Event
from faultrun.model.observed.hang import (
    Activity,
    HangDetected,
    HangDismissed,
    HangElsewhere,
    HangWarned,
    Suspicion,
)
from faultrun.model.observed.progress import WorkPhase
from faultrun.model.wire import STACKS_FILE, THREADS_FILE
from faultrun.supervisor.reactor import BackgroundTasks, Reactor
from faultrun.supervisor.workers.worker_group import WorkerGroup
from faultrun.workers.proc_reader import Snapshot, kernel_view, snapshots, waiting_in
from faultrun.workers.process import Process
from faultrun.workers.stack_dump import MOST_DUMPED_BYTES, StackDump, read_from_outside

_PATIENCE_S = 3.0
"""All that collecting stacks may take, in seconds."""

_OVERDUE_S = 10 * _PATIENCE_S
"""A look that takes longer has a disk that hangs; on a busy machine it may take a while."""

_WINDOW_S = 0.04
_SAMPLES = 4
_COMPUTED_SHARE = 0.1
_MOST_STARVED = 0.9
"""Who never gets a processor is excused for so much of the time, and so not for ever."""
_WAKES_S = 1.0
"""Wakes are counted as if over a second at least: one or two in a moment are nothing."""
_ANSWER_S, _THREADS_S, _WRITE_S = 0.25, 0.05, 1.0
_STILL = frozenset({"T", "t"})
_KEPT = 20
"""How many warnings keep their stacks in each life: the newest."""

_Moment = tuple[float, Mapping[int, Snapshot]]
"""When it was, in monotonic seconds, and how each rank was then."""


class Inspector:
    """Performs ``Inspect``. Only ``inspect`` and ``glance`` belong to the loop's thread."""

    def __init__(self, group: WorkerGroup, reactor: Reactor, log_dir: Path) -> None:
        self.tasks = BackgroundTasks(reactor)
        self._group, self._reactor, self._log_dir = group, reactor, log_dir
        self._of = -1
        self._dump_dir = log_dir
        self._glance: _Moment | None = None
        self._held: dict[int, tuple[float, int]] = {}
        self._warnings = 0
        self._beats: Mapping[int, Beat] = {}
        self._awaited: Inspect | None = None

    def glance(self) -> None:
        """Note what each rank has consumed by now, so that later it is known who works."""
        self._begin()
        workers = self._group.workers()

        def note() -> Iterable[Event]:
            moment = self._glance = _moment(workers)
            self._note_held(*moment)
            return ()

        self.tasks.send(note)

    def suspected(self, beats: Mapping[int, Beat]) -> None:
        """A suspicion has come up; ``beats`` are the last words of all ranks by then."""
        self._beats = dict(beats)

    def inspect(self, order: Inspect) -> None:
        """Judge the suspects and say so; the stacks are in the incident's folder by then, if the disk let us.

        One that never ends (its disk hangs) must not keep a hang from being acted on.
        """
        self._begin()
        self._awaited = order
        workers, beats = self._group.workers(), self._beats
        self._group.ask_for_threads()
        self.tasks.send(lambda: self._judge(order, workers, beats))
        overdue_s = self._reactor.now() + _OVERDUE_S
        self._reactor.call_at(overdue_s, lambda: self._answer(order, self._unseen(order)))

    def _begin(self) -> None:
        """Forget what was seen of the incarnation before, if another one has begun."""
        now = self._group.live
        if now.incarnation != self._of and now.page is not None:
            self._of, self._dump_dir = now.incarnation, now.page.path.parent
            self._glance, self._held, self._warnings = None, {}, 0

    def _answer(self, order: Inspect, event: Event) -> Iterable[Event]:
        """Once, and only while the workers are those that were meant and were not asked to leave."""
        if self._awaited is order and order.incarnation == self._group.live.incarnation:
            self._awaited = None
            if not self._group.leaving:
                yield event

    def _judge(
        self, order: Inspect, workers: Mapping[int, Process], beats: Mapping[int, Beat]
    ) -> Iterable[Event]:
        finished = tuple(
            (rank, beat.step)
            for rank, beat in beats.items()
            if beat.stepped and (rank not in workers or beat.phase is WorkPhase.DONE)
        )
        views = {rank: kernel_view(worker.pid) for rank, worker in workers.items()}
        looks, dumps = self._looked(workers, order.suspicion)
        verdict = judge(order.suspicion, looks, finished, self._group.elsewhere)
        if isinstance(verdict, Working):
            yield from self._answer(order, self._dismissed(verdict.why, verdict.excused_s))
            return
        if verdict.look is not None and not verdict.look.frames:  # they were read after it was passed
            frames = main_thread(dumps.get(verdict.rank, ""))
            verdict = replace(verdict, look=replace(verdict.look, frames=frames))
        self._await_threads(dumps)
        folder = self._folder(order, verdict)
        kept = self._keep(folder, dumps, views)
        event = judged(
            order.suspicion,
            verdict,
            beats.get(verdict.rank),
            at_s=self._reactor.now(),
            incarnation=order.incarnation,
            folder=str(folder.relative_to(self._log_dir)) if kept else "",
            stacks=tuple(sorted(dumps)),
        )
        yield from self._answer(order, self._unless_heard(event, order.suspicion.front, beats))

    def _unless_heard(
        self,
        event: HangDetected | HangElsewhere | HangWarned,
        front: tuple[int, ...],
        beats: Mapping[int, Beat],
    ) -> Event:
        """A rank that speaks while it is looked at does not hang, unless it was us who woke it."""
        page = self._group.live.page
        if event.stance is not Activity.STOPPED and page is not None:
            for rank, beat in page.beats(self._reactor.clock).items():
                if rank in front and beat.begun and beat != beats.get(rank):
                    return self._dismissed(f"rank {rank} spoke while it was looked at")
        return event

    def _dismissed(self, why: str, excused_s: float = 0.0) -> HangDismissed:
        return HangDismissed(at_s=self._reactor.now(), incarnation=self._of, why=why, excused_s=excused_s)

    def _unseen(self, order: Inspect) -> Event:
        rank = min(order.suspicion.behind)
        verdict = Blamed(rank=rank, stance=Activity.UNKNOWN, why="could not be looked at")
        beat, now_s = self._beats.get(rank), self._reactor.now()
        return judged(order.suspicion, verdict, beat, at_s=now_s, incarnation=order.incarnation)

    def _folder(self, order: Inspect, verdict: Blamed) -> Path:
        """Where the stacks belong: to the incident, or to a warning, of which only the newest are kept."""
        if acts(verdict, order.suspicion):
            return self._log_dir / f"incident_{order.number}"
        self._warnings += 1
        _remove(self._dump_dir / f"warning_{self._warnings - _KEPT}")
        return self._dump_dir / f"warning_{self._warnings}"

    def _looked(
        self, workers: Mapping[int, Process], suspicion: Suspicion
    ) -> tuple[tuple[ProcessSample, ...], dict[int, str]]:
        """Each rank's look, and the dumps of all who could be asked or read."""
        front = frozenset(suspicion.front)
        until_s = time.monotonic() + _PATIENCE_S
        files = {rank: self._dump_dir / STACKS_FILE.format(rank=rank) for rank in workers}
        first = StackDump(workers, files)
        early = _moment(workers)
        before = self._glance or early
        still = frozenset(rank for rank, one in early[1].items() if one.state in _STILL)
        dumps = first.collect(frozenset(workers) - still, _ANSWER_S)
        moved: frozenset[int] = frozenset()
        if not still & front:
            busy = {rank: workers[rank] for rank in dumps if _computed(before, early, rank)}
            moved = _moving(busy, files, dumps)
        now = self._glance = _moment(workers)  # for the next one, too, if this is no hang
        self._note_held(*now)
        held = self._held  # the loop's thread may begin anew at any time
        looks = tuple(
            replace(
                _sample(rank, worker.pid, (before, early, now), dumps.get(rank, "")),
                moved=rank in moved,
                held_s=now[0] - held[rank][0] if rank in held else 0.0,
            )
            for rank, worker in workers.items()
            if rank in now[1]
        )
        if suspicion.woken:
            # And stopped again: its dump is on its way, and the request to save would wake it, too.
            for rank in still & first.asked & front:
                workers[rank].signal_leader(signal.SIGCONT)
            dumps |= first.collect(still & front, _ANSWER_S)
        mute = {rank: worker.pid for rank, worker in workers.items() if rank not in dumps}
        dumps |= read_from_outside(mute, until_s - time.monotonic())
        return looks, dumps

    def _note_held(self, at_s: float, now: Mapping[int, Snapshot]) -> None:
        """Since when a rank was not seen out of state D: it got no processor between two looks."""
        self._held = {
            rank: (
                self._held[rank][0] if self._held.get(rank, (0, -1))[1] == one.main_wakes else at_s,
                one.main_wakes,
            )
            for rank, one in now.items()
            if one.state == "D"
        }

    def _await_threads(self, ranks: Iterable[int]) -> None:
        """A moment for the helper threads, which were asked when this look began."""
        awaited = {self._dump_dir / THREADS_FILE.format(rank=rank) for rank in ranks}
        until_s = time.monotonic() + _THREADS_S
        while time.monotonic() < until_s and not all(path.exists() for path in awaited):
            time.sleep(_THREADS_S / 10)

    def _keep(self, folder: Path, dumps: Mapping[int, str], views: Mapping[int, str]) -> bool:
        """Write the stacks; a disk that hangs is waited for no longer than a moment."""
        done: list[bool] = []

        def write() -> None:
            with suppress(OSError):
                folder.mkdir(parents=True, exist_ok=True)
                for rank, view in sorted(views.items()):
                    text = dumps.get(rank) or "no stack: neither the SDK nor py-spy could read it\n"
                    others = bytes_from(self._dump_dir / THREADS_FILE.format(rank=rank), 0, MOST_DUMPED_BYTES)
                    whole = f"{text}\n{others.decode(errors='replace')}{view}"
                    (folder / f"rank_{rank}.txt").write_text(whole, errors="backslashreplace")
                done.append(True)

        writer = threading.Thread(target=write, name="faultrun-stacks", daemon=True)
        with suppress(RuntimeError):  # there are as many processes as there may be
            writer.start()
            writer.join(_WRITE_S)
        return bool(done)


def _remove(folder: Path) -> None:
    with suppress(OSError):
        for file in tuple(folder.iterdir()):
            file.unlink()
        folder.rmdir()


def _moment(workers: Mapping[int, Process]) -> _Moment:
    at_s, pids = time.monotonic(), {worker.pid: rank for rank, worker in workers.items()}
    return at_s, {pids[pid]: one for pid, one in snapshots(tuple(pids)).items()}


def _sample(rank: int, pid: int, moments: tuple[_Moment, _Moment, _Moment], dump: str) -> ProcessSample:
    """``moments`` are the glance, the first dump, the second look; a dump wakes its writer."""
    (before_s, then), (early_s, soon), (now_s, at_last) = moments
    now, early = at_last[rank], soon.get(rank, at_last[rank])
    before = then.get(rank, early)
    window_s = max(now_s - before_s, 1e-3)
    wchan, syscall = waiting_in(pid)
    main_share = (now.main_cpu_s - before.main_cpu_s) / window_s
    starved_share = (now.main_starved_s - before.main_starved_s) / window_s
    if now.state == early.state == "R":  # the kernel adds a wait to its count when it is over
        starved_share = max(starved_share, 1.0 - main_share)
    return ProcessSample(
        rank=rank,
        # A disk is waited for in state D too, for a moment.
        state="S" if now.state == "D" and before.state != "D" else now.state,
        main_share=main_share,
        starved_share=starved_share,
        starved_s=round(min(starved_share, _MOST_STARVED) * window_s, 3),
        wakes_per_s=(early.main_wakes - before.main_wakes) / max(early_s - before_s, _WAKES_S),
        children_share=(now.children_cpu_s - before.children_cpu_s) / window_s,
        io_bytes=max(0, early.io_bytes - before.io_bytes),  # writing dumps is I/O too
        wchan=wchan,
        syscall=syscall,
        frames=main_thread(dump),
        leaving=has_left(dump),
    )


def _computed(before: _Moment, early: _Moment, rank: int) -> bool:
    """Whether the main thread had a processor for a while; unknown counts as yes."""
    window_s, then, now = early[0] - before[0], before[1].get(rank), early[1].get(rank)
    if then is None or now is None or window_s < _WINDOW_S:
        return True
    return now.main_cpu_s - then.main_cpu_s >= _COMPUTED_SHARE * window_s


def _moving(
    workers: Mapping[int, Process], files: Mapping[int, Path], dumps: Mapping[int, str]
) -> frozenset[int]:
    """Ranks whose stack changes within some more dumps: work is seen in one place twice, not five times."""
    still = dict(workers)
    for _ in range(_SAMPLES):
        if still:
            time.sleep(_WINDOW_S)  # in the inspecting thread
            again = StackDump(still, files).collect(frozenset(still), _ANSWER_S)
            still = {
                rank: worker
                for rank, worker in still.items()
                if rank not in again or _places(again[rank]) == _places(dumps[rank])
            }
    return frozenset(workers) - frozenset(still)


def _places(dump: str) -> list[tuple[str, str, int]]:
    """Without the innermost line: a loop that turns in one place has several."""
    frames = main_thread(dump)
    return [(frame.file, frame.function, frame.line if depth else 0) for depth, frame in enumerate(frames)]
