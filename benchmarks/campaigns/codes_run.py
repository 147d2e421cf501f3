"""One cell: start the training, do the harm, start it again where that belongs to it; what was seen."""

import os
import re
import signal
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.campaigns.codes_lives import Lives, began_anew, twice
from benchmarks.campaigns.codes_plan import OUTPUT, WORKERS, Cell, Fault
from benchmarks.harness import journal
from benchmarks.harness.launched import Launched, Overdue
from benchmarks.harness.launchers import LOG_DIR
from benchmarks.harness.procfs import environment, parent

_TRAINS_S = 120.0
_ENDS_S = 90.0
_LOOK_S = 0.005
_WRITER, _OTHER = 0, 1
"""Rank 0 writes where one rank writes for all, so a save is cut by its death; else the other one dies."""

_ERROR = re.compile(r"^[\w. ]*\b\w*(?:Error|Exception|Exit)\b: .+")
_RANK = re.compile(r"^\[\w+\]: ?")
_PEER_IS_GONE = re.compile(r"gloo|connection|DistNetwork|DistStore|broken pipe|store", re.IGNORECASE)
_WHY_CHARACTERS = 160


@dataclass(slots=True, kw_only=True)
class Seen:
    """What a cell came to. ``codes``: exit code of each start, negative for a signal; None: had to be ended.

    ``twice`` counts steps that were made again, ``after_s`` is the time from
    the kill to the first step after it, ``harm`` says what exactly was done,
    ``late`` that the save was over before, ``overdue`` what did not come.
    """

    codes: list[int | None] = field(default_factory=list)
    final: str = ""
    twice: int = 0
    anew: bool = False
    after_s: float | None = None
    harm: str = ""
    late: bool = False
    why: str = ""
    overdue: str = ""


def run(cell: Cell, folder: Path) -> Seen:
    """Carry the cell out in an empty folder."""
    training = _Training(cell, folder)
    try:
        training.through()
    except Overdue as overdue:
        training.seen.overdue = str(overdue)
    return training.told()


class _Training:
    """The starts of one cell, and what they printed."""

    def __init__(self, cell: Cell, folder: Path) -> None:
        self._cell, self._folder = cell, folder
        self._size = cell.contender.size
        self._lives = Lives(folder, cell.contender.lives)
        self.seen = Seen()
        for name in (OUTPUT, "tmp"):
            (folder / name).mkdir()

    def through(self) -> None:
        match self._cell.fault:
            case Fault.NONE:
                self._to_the_end()
            case Fault.KILL:
                self._to_the_end(self._kill_between_saves)
            case Fault.SAVE:
                self._to_the_end(self._kill_in_a_save)
            case Fault.TORN:
                self._to_the_end(self._cut_off_and_tear)
                self._to_the_end()
            case Fault.STOP:
                self._to_the_end(self._stop)
                self._to_the_end()

    def told(self) -> Seen:
        """Everything, once nothing runs any more."""
        self._lives.look()
        begun = self._lives.begun
        self.seen.twice = twice(begun)
        self.seen.anew = began_anew(begun)
        self.seen.final = begun[-1].final if begun else ""
        if not self.seen.codes or self.seen.codes[-1] != 0:
            self.seen.why = _last_error(self._folder)
        return self.seen

    def _to_the_end(self, harm: Callable[[Launched], None] | None = None) -> None:
        """One start, harmed on its way."""
        environ = {
            "TMPDIR": str(self._folder / "tmp"),
            "HF_HUB_OFFLINE": "1",
            **self._cell.contender.environ,
            **self._cell.code.environ,
        }
        command = self._cell.contender.command(self._cell.code)
        with Launched(command, self._folder, environ) as launched:
            try:
                if harm is not None:
                    harm(launched)
                self._wait(launched, lambda: launched.pid in launched.ends, _ENDS_S, "the end")
            finally:
                self.seen.codes.append(launched.returncode)

    def _kill_between_saves(self, launched: Launched) -> None:
        self._reach(launched, 2 * self._size.save_every + self._size.save_every // 2)
        before = len(self._lives.begun)
        killed_s = self._kill(launched, _OTHER)
        self.seen.harm = f"rank {_OTHER} at step {self._lives.step}"
        self._wait_for_a_new_life(launched, before, killed_s)

    def _kill_in_a_save(self, launched: Launched) -> None:
        """Once half of the names are there that the save before has made, temporary ones included."""
        self._reach(launched, 2 * self._size.save_every - 1)
        output = self._folder / OUTPUT
        before, known = len(self._lives.begun), self._names()
        earlier = newest(output, self._cell.code.checkpoints)
        names, whole = 1 + sum(1 for _ in earlier.rglob("*")), _size_bytes(_files(earlier))
        pid = self._pid_of(launched, _WRITER)
        deadline_s = time.monotonic() + _TRAINS_S
        while len(new := self._names() - known) < max(1, names // 2):  # no pause: it may be over in a moment
            if time.monotonic() > deadline_s or launched.returncode is not None:
                raise Overdue("no save was seen")
        killed_s = time.monotonic()
        os.kill(pid, signal.SIGKILL)
        there = self._names() - known | new
        written = _size_bytes(Path(path) for path in there)
        self.seen.late = written >= whole and len(there) >= names
        self.seen.harm = (
            f"rank {_WRITER} with {len(there)} of {names} names and {written / 1000:.1f} of"
            f" {whole / 1000:.1f} kB there"
        )
        self._wait_for_a_new_life(launched, before, killed_s)

    def _cut_off_and_tear(self, launched: Launched) -> None:
        """As in a power cut: everything is killed at once, and the newest checkpoint is half there."""
        self._reach(launched, 2 * self._size.save_every + self._size.save_every // 2)
        launched.kill_all()
        torn = tear(self._folder / OUTPUT, self._cell.code.checkpoints)
        self.seen.harm = str(torn.relative_to(self._folder))

    def _stop(self, launched: Launched) -> None:
        self._reach(launched, 2 * self._size.save_every + self._size.save_every // 2)
        self.seen.harm = f"at step {self._lives.step}"
        os.kill(launched.pid, signal.SIGTERM)

    def _reach(self, launched: Launched, least: int) -> None:
        """Wait for a step from ``least`` on, as far from a save, with the standbys ready if there are any."""
        every = self._size.save_every

        def reached() -> bool:
            return (
                self._lives.step >= least
                and self._lives.step % every == least % every
                and (not self._cell.contender.standbys or self._standbys_are_ready())
            )

        self._wait(launched, reached, _TRAINS_S, f"step {least}")

    def _wait(self, launched: Launched, reached: Callable[[], bool], within_s: float, what: str) -> None:
        def looked() -> bool:
            self._lives.look()
            return reached()

        launched.wait_for(looked, within_s=within_s, what=what, look_every_s=_LOOK_S)

    def _wait_for_a_new_life(self, launched: Launched, before: int, killed_s: float) -> None:
        """Until it makes a step, or the launcher ends without."""
        self._wait(
            launched,
            lambda: len(self._lives.begun) > before or launched.pid in launched.ends,
            _ENDS_S,
            "a step after the kill",
        )
        if len(self._lives.begun) > before:
            self.seen.after_s = self._lives.begun[before].seen_at_s[0] - killed_s

    def _standbys_are_ready(self) -> bool:
        said = journal.of(journal.read(self._folder), "StandbyChanged")
        return len({line["rank"] for line in said if line["state"] == "ready"}) == WORKERS

    def _kill(self, launched: Launched, rank: int) -> float:
        pid = self._pid_of(launched, rank)
        now_s = time.monotonic()
        os.kill(pid, signal.SIGKILL)
        return now_s

    def _pid_of(self, launched: Launched, rank: int) -> int:
        """From the journal where there is one; else who has the rank and is no child of another that has."""
        if self._cell.contender.ours:
            started = journal.of(journal.read(self._folder), "WorkerStarted")
            return int([line for line in started if line["rank"] == rank][-1]["pid"])
        ranked = {pid for pid in launched.processes() if environment(pid).get("RANK") == str(rank)}
        tops = sorted(pid for pid in ranked if parent(pid) not in ranked)
        if not tops:
            raise Overdue(f"rank {rank} has no process")
        return tops[0]

    def _names(self) -> set[str]:
        return {
            os.path.join(root, name)  # noqa: PTH118  asked two thousand times a second
            for top in (self._folder / OUTPUT, self._folder / "tmp")
            for root, folders, files in os.walk(top)
            for name in (*folders, *files)
        }


def tear(output: Path, pattern: str) -> Path:
    """Cut the largest file of the newest checkpoint in the middle; return it. Overdue when there is none."""
    files = _files(newest(output, pattern))
    if not files:
        raise Overdue("the newest checkpoint is empty")
    largest = max(files, key=lambda path: (path.stat().st_size, path.name))
    os.truncate(largest, largest.stat().st_size // 2)
    return largest


def newest(output: Path, pattern: str) -> Path:
    """The checkpoint that was written last. Overdue when there is none."""
    found = list(output.glob(pattern))
    if not found:
        raise Overdue(f"no checkpoint is called {pattern}")
    return max(found, key=lambda path: max((file.stat().st_mtime_ns for file in _files(path)), default=0))


def _files(checkpoint: Path) -> list[Path]:
    if checkpoint.is_file():
        return [checkpoint]
    return [path for path in checkpoint.rglob("*") if path.is_file()]


def _size_bytes(paths: Iterable[Path]) -> int:
    """Of those that are files; a name may be gone again."""
    total = 0
    for path in paths:
        with suppress(OSError):
            total += path.stat().st_size if path.is_file() else 0
    return total


def _last_error(folder: Path) -> str:
    """What a worker said last before the run was given up; that its peer is gone only if there is no more."""
    logs = [path for path in (folder / LOG_DIR).rglob("*.log") if not path.is_symlink()]
    logs.sort(key=lambda path: path.stat().st_mtime_ns)
    lines = [line for path in logs for line in path.read_text("utf-8", errors="replace").splitlines()]
    errors = [found[0] for line in lines if (found := _ERROR.search(_RANK.sub("", line)))]
    causes = [error for error in errors if not _PEER_IS_GONE.search(error)]
    last = (causes or errors or [""])[-1]
    return last.replace(f"{folder}/", "").replace("`", "'")[:_WHY_CHARACTERS]
