"""Looks at the processes of a job that stands still: who works, who is stuck where, and all stacks.

Runs in a thread of its own and is bounded: neither a slow debugger nor a hung
disk keeps the loop from acting on what is known.
"""

import shutil
import signal
import threading
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from faultrun.core.hang_limits import Beat
from faultrun.core.stacks import Frame, has_left, main_thread
from faultrun.core.stance import Look
from faultrun.core.suspects import Blamed, Working, acts, explain, judge, proved
from faultrun.model.actions import Inspect
from faultrun.model.hang import HangDetected, HangDismissed, HangWarned, Suspicion
from faultrun.model.progress import WorkPhase
from faultrun.model.wire import STACKS_FILE, THREADS_FILE
from faultrun.supervisor.reactor import RunClock
from faultrun.workers.look import Snapshot, kernel_view, snapshots, waiting_in
from faultrun.workers.process import Process
from faultrun.workers.stack_dump import MOST_DUMPED_BYTES, StackDump, read_from_outside

PATIENCE_S = 3.0
"""All that collecting stacks may take, in seconds."""

_WINDOW_S = 0.04
_SAMPLES = 4
_COMPUTED_SHARE = 0.1
_MOST_STARVED = 0.9
"""Who never gets a processor is excused for so much of the time, and so not for ever."""
_WAKES_S = 1.0
"""Wakes are counted as if over a second at least: one or two in a moment are nothing."""
_ANSWER_S = 0.25
_THREADS_S = 0.05
_WRITE_S = 1.0
_STILL = frozenset({"T", "t"})
_KEPT = 20
"""Of so many warnings the stacks are kept in each life."""


class Inspection:
    """One silence, from the first glance to the verdict. All methods run in the inspecting thread."""

    def __init__(self, clock: RunClock, log_dir: Path, dump_dir: Path) -> None:
        self._clock = clock
        self._log_dir = log_dir
        self._dump_dir = dump_dir
        self._glance: tuple[float, dict[int, Snapshot]] | None = None
        self._held: dict[int, tuple[float, int]] = {}
        self._warnings = 0

    def glance(self, workers: Mapping[int, Process]) -> Iterable[HangDetected]:
        """Note what everybody has consumed by now, so that later it is known who works."""
        self._glance = (time.monotonic(), _snapshots(workers))
        self._note_held(*self._glance)
        return ()

    def inspect(
        self,
        order: Inspect,
        workers: Mapping[int, Process],
        beats: Mapping[int, Beat],
        finished: tuple[tuple[int, int], ...],
    ) -> Iterable[HangDetected | HangWarned | HangDismissed]:
        """Judge the suspects and say so; the stacks are in the incident's folder by then, if the disk let us.

        ``beats`` are the last words of the living ranks, ``finished`` those that have ended well or are done.
        """
        views = {rank: kernel_view(worker.pid) for rank, worker in workers.items()}
        looks, dumps = self._looked(workers, order.suspicion)
        verdict = judge(order.suspicion, looks, finished)
        if isinstance(verdict, Working):
            yield HangDismissed(
                at_s=self._clock.now(),
                incarnation=order.incarnation,
                why=verdict.why,
                excused_s=verdict.excused_s,
            )
            return
        if verdict.look is not None and not verdict.look.frames:
            verdict = _at(verdict, dumps.get(verdict.rank, ""))
        self._await_threads(dumps)
        folder = self._folder(order, verdict)
        kept = self._keep(folder, dumps, views)
        beat = beats.get(verdict.rank)
        yield judged(
            order.suspicion,
            verdict,
            beat,
            at_s=self._clock.now(),
            incarnation=order.incarnation,
            folder=str(folder.relative_to(self._log_dir)) if kept else "",
            stacks=tuple(sorted(dumps)),
        )

    def _folder(self, order: Inspect, verdict: Blamed) -> Path:
        """Where the stacks belong: to the incident, or to a warning, of which only the newest are kept."""
        if acts(verdict, order.suspicion):
            return self._log_dir / f"incident_{order.number}"
        self._warnings += 1
        shutil.rmtree(self._warning(self._warnings - _KEPT), ignore_errors=True)
        return self._warning(self._warnings)

    def _warning(self, number: int) -> Path:
        return self._dump_dir / f"warning_{number}"

    def _looked(
        self, workers: Mapping[int, Process], suspicion: Suspicion
    ) -> tuple[tuple[Look, ...], dict[int, str]]:
        """Everybody's look, and the dumps of all who could be asked or read."""
        front = frozenset(suspicion.front)
        until_s = time.monotonic() + PATIENCE_S
        files = _dump_files(self._dump_dir, workers)
        first = StackDump(workers, files)
        early_s, early = time.monotonic(), _snapshots(workers)
        before_s, before = self._glance or (early_s, early)
        still = frozenset(rank for rank, one in early.items() if one.state in _STILL)
        dumps = first.collect(frozenset(workers) - still, _ANSWER_S)
        moved: frozenset[int] = frozenset()
        if not still & front:
            busy = {
                rank for rank in dumps if _computed(before.get(rank), early.get(rank), early_s - before_s)
            }
            moved = _moving({rank: workers[rank] for rank in busy}, files, dumps)
        now_s, now = time.monotonic(), _snapshots(workers)
        self._glance = now_s, now  # for the next one, if this is no hang
        self._note_held(now_s, now)
        seen = _Seen(
            window_s=now_s - before_s,
            asleep_s=early_s - before_s,
            before=before,
            early=early,
            now=now,
            dumps=dict(dumps),
            moved=moved,
            held={rank: now_s - since_s for rank, (since_s, _) in self._held.items()},
        )
        looks = tuple(seen.look(rank, worker.pid) for rank, worker in workers.items() if rank in now)
        if (
            suspicion.woken
        ):  # and stopped again: its dump is on its way, and the request to save would wake it, too
            for rank in still & first.asked & front:
                workers[rank].signal_leader(signal.SIGCONT)
            dumps |= first.collect(still & front, _ANSWER_S)
        mute = {rank: worker.pid for rank, worker in workers.items() if rank not in dumps}
        dumps |= read_from_outside(mute, until_s - time.monotonic())
        return looks, dumps

    def _note_held(self, at_s: float, now: Mapping[int, Snapshot]) -> None:
        """Since when nobody has seen a rank out of state D: it got no processor between two looks."""
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
                    whole = f"{text}\n{_other_threads(self._dump_dir, rank)}{view}"
                    (folder / f"rank_{rank}.txt").write_text(whole, errors="backslashreplace")
                done.append(True)

        writer = threading.Thread(target=write, name="faultrun-stacks", daemon=True)
        writer.start()
        writer.join(_WRITE_S)
        return bool(done)


def judged(
    suspicion: Suspicion,
    verdict: Blamed,
    beat: Beat | None,
    *,
    at_s: float,
    incarnation: int,
    folder: str = "",
    stacks: tuple[int, ...] = (),
) -> HangDetected | HangWarned:
    """The event that says what was judged. ``beat`` is the rank's last word, if it had one."""
    doing = _doing(beat)
    warning = HangWarned(
        at_s=at_s,
        incarnation=incarnation,
        rank=verdict.rank,
        step=beat.step if beat is not None and beat.stepped else None,
        doing=doing,
        stance=verdict.stance,
        silent_s=round(suspicion.silent_s, 3),
        acts_s=suspicion.acts_s,
        why=explain(verdict, suspicion, doing),
        where=_where(verdict.look.frames if verdict.look is not None else ()),
        folder=folder,
        stacks=stacks,
    )
    if not acts(verdict, suspicion):
        return warning
    return HangDetected(
        at_s=at_s,
        incarnation=incarnation,
        rank=warning.rank,
        step=warning.step,
        doing=doing,
        stance=warning.stance,
        silent_s=warning.silent_s,
        limit_s=round(suspicion.limit_s, 3),
        why=warning.why,
        where=warning.where,
        folder=folder,
        stacks=stacks,
        proved=proved(verdict, suspicion),
    )


def _snapshots(workers: Mapping[int, Process]) -> dict[int, Snapshot]:
    pids = {worker.pid: rank for rank, worker in workers.items()}
    return {pids[pid]: one for pid, one in snapshots(tuple(pids)).items()}


def _other_threads(dump_dir: Path, rank: int) -> str:
    """What its helper thread has written since it was asked."""
    with suppress(OSError), (dump_dir / THREADS_FILE.format(rank=rank)).open("rb") as file:
        return file.read(MOST_DUMPED_BYTES).decode(errors="replace")
    return ""


def _dump_files(dump_dir: Path, workers: Mapping[int, Process]) -> dict[int, Path]:
    return {rank: dump_dir / STACKS_FILE.format(rank=rank) for rank in workers}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    """Everything by rank, at three moments: the glance, the first dump, the second look.

    ``asleep_s`` is from the first to the second: a dump wakes whoever writes it.
    """

    window_s: float
    asleep_s: float
    before: Mapping[int, Snapshot]
    early: Mapping[int, Snapshot]
    now: Mapping[int, Snapshot]
    dumps: Mapping[int, str]
    moved: frozenset[int]
    held: Mapping[int, float]

    def look(self, rank: int, pid: int) -> Look:
        now, early = self.now[rank], self.early.get(rank, self.now[rank])
        before = self.before.get(rank, early)
        window_s = max(self.window_s, 1e-3)
        wchan, syscall = waiting_in(pid)
        main_share = (now.main_cpu_s - before.main_cpu_s) / window_s
        starved_share = (now.main_starved_s - before.main_starved_s) / window_s
        if now.state == early.state == "R":  # the kernel adds a wait to its count when it is over
            starved_share = max(starved_share, 1.0 - main_share)
        return Look(
            rank=rank,
            # A disk is waited for in state D too, for a moment.
            state="S" if now.state == "D" and before.state != "D" else now.state,
            main_share=main_share,
            starved_share=starved_share,
            starved_s=round(min(starved_share, _MOST_STARVED) * window_s, 3),
            wakes_per_s=(early.main_wakes - before.main_wakes) / max(self.asleep_s, _WAKES_S),
            children_share=(now.children_cpu_s - before.children_cpu_s) / window_s,
            io_bytes=max(0, early.io_bytes - before.io_bytes),  # writing dumps is I/O too
            wchan=wchan,
            syscall=syscall,
            frames=main_thread(self.dumps.get(rank, "")),
            moved=rank in self.moved,
            leaving=has_left(self.dumps.get(rank, "")),
            held_s=self.held.get(rank, 0.0),
        )


def _at(verdict: Blamed, dump: str) -> Blamed:
    """The verdict with the frames that were read after it was passed."""
    assert verdict.look is not None
    return replace(verdict, look=replace(verdict.look, frames=main_thread(dump)))


def _computed(before: Snapshot | None, early: Snapshot | None, window_s: float) -> bool:
    """Whether the main thread had a processor for a while; unknown counts as yes."""
    if before is None or early is None or window_s < _WINDOW_S:
        return True
    return early.main_cpu_s - before.main_cpu_s >= _COMPUTED_SHARE * window_s


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


def _where(frames: tuple[Frame, ...]) -> str:
    """The innermost frame and, where that is in a library, the script's own that led there."""
    if not frames:
        return ""
    own = next((frame for frame in frames if not _is_library(frame)), None)
    if own is None or own is frames[0]:
        return frames[0].shown
    return f"{frames[0].shown}, called from {own.shown}"


def _is_library(frame: Frame) -> bool:
    return "-packages/" in frame.file or "/lib/python" in frame.file or frame.file.startswith("<")


def _doing(beat: Beat | None) -> WorkPhase:
    return beat.phase if beat is not None and beat.begun else WorkPhase.UNKNOWN
