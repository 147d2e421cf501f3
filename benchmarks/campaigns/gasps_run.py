"""One training under faultrun of which one rank kills itself, or that is told to stop, judged."""

import os
import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.campaigns.engine import TooLate
from benchmarks.campaigns.gasps_evidence import (
    Evidence,
    Life,
    Reference,
    State,
    broken,
    disturbed_bits,
    resumed_well,
    states,
)
from benchmarks.campaigns.gasps_job import RUN_S, Training, left_over
from benchmarks.campaigns.gasps_plan import Fault, Stop
from benchmarks.harness import journal
from benchmarks.harness.launched import Launched, said_at_the_end
from benchmarks.harness.notes import Note, select


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """A run that was judged; times in seconds, None where the moment never came.

    ``drained_s`` is from the first death to the last exit of that life,
    ``pause_s`` from the kill to the first step after it.
    """

    broken: tuple[str, ...]
    where: str
    newest: int
    resumed: int
    lost: int
    saved: int
    drained_s: float | None
    pause_s: float | None


def run(training: Training, fault: Fault, folder: Path, seed: int, reference: Reference) -> Outcome:
    """Train, die, recover, end; judge. TooLate when nobody died."""
    with Launched(training.command(seed, fault.option), folder, {}) as launched:
        try:
            code = launched.wait_for_the_end(within_s=RUN_S)
        finally:
            launched.save_notes(folder / "notes.txt")
        lines = journal.read(folder)
        left = left_over(launched, lines)
        notes = tuple(launched.notes)
    dying = select(notes, "dying")
    if not dying and code == 0:
        raise TooLate
    evidence = Evidence(
        exit_code=code,
        workers=training.workers,
        lives=(life(notes, lines, 0), life(notes, lines, 1)),
        lines=lines,
        files=training.read_back(folder, lines),
        orphans=left,
    )
    found = broken(fault, evidence, reference)
    return _outcome(evidence, found, dying)


def life(notes: Sequence[Note], lines: Sequence[Mapping[str, Any]], number: int) -> Life:
    """What belongs to one life of the worker group."""
    return Life(
        notes=tuple(note for note in notes if note.life == number),
        lines=tuple(line for line in lines if line["incarnation"] == number),
    )


def _outcome(evidence: Evidence, found: Sequence[str], dying: Sequence[Note]) -> Outcome:
    first, second = evidence.lives
    exits = [line["run_s"] for line in first.lines if line["event"] == "WorkerExit"]
    again = [note.at_s for note in second.notes if note.what in ("step", "final")]
    return Outcome(
        broken=tuple(found),
        where=dying[0].value if dying else "nobody died",
        newest=first.newest,
        resumed=second.resumed,
        lost=evidence.lost,
        saved=sum(line["event"] == "GaspSaved" for line in first.lines),
        drained_s=exits[-1] - exits[0] if exits else None,
        pause_s=min(again) - dying[0].at_s if again and dying else None,
    )


_STOPPED = 143
_START_S = 180.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopped:
    """What the first start left; ``last_line`` is the supervisor's, ``took_s`` is from SIGTERM to its end."""

    exit_code: int
    life: Life
    files: tuple[State, ...]
    orphans: int
    last_line: str
    took_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StopOutcome:
    """A stop that was judged."""

    broken: tuple[str, ...]
    newest: int
    resumed: int
    saved: int
    ended_s: float

    @property
    def lost(self) -> int:
        """Steps to be done again."""
        return max(0, self.newest - self.resumed) if self.resumed >= 0 else -1


def run_stop(training: Training, stop: Stop, folder: Path, seed: int, reference: Reference) -> StopOutcome:
    """Train, stop, start again, end; judge. TooLate when the training was over before the signal."""
    stopped = _stop(training, stop, folder, seed)
    code, life, left = _go_on(training, folder, seed)
    found = [
        *restarted(life),
        *broken_stop(stopped, life.resumed),
        *disturbed_bits(stopped.life, stopped.files, reference),
        *resumed_well(life, training.workers, reference),
        *([f"the next start ended with {code}"] if code else []),
        *([f"{left} orphans of the next start"] if left else []),
    ]
    return StopOutcome(
        broken=tuple(found),
        newest=stopped.life.newest,
        resumed=life.resumed,
        saved=len(stopped.files),
        ended_s=stopped.took_s,
    )


def broken_stop(stopped: Stopped, resumed: int) -> list[str]:
    """Exit code 143, nobody left, the next start exactly where this one was, and a last line that says so."""
    newest, found = stopped.life.newest, []
    if stopped.exit_code != _STOPPED:
        found.append(f"exit code {stopped.exit_code}")
    if stopped.orphans:
        found.append(f"{stopped.orphans} orphans")
    if resumed < newest:
        found.append(f"{newest - resumed} steps lost: step {newest} was finished, resumed at {resumed}")
    said = f"saved step {resumed};" if resumed else "no save was reported"
    if said not in stopped.last_line:
        found.append(f"the last line does not say {said!r}: {stopped.last_line}")
    return found


def restarted(life: Life) -> list[str]:
    """The next start is not disturbed: who failed first, if it needed more than one life all the same."""
    lives = sum(line["event"] == "IncarnationStarted" for line in life.lines)
    if lives == 1:
        return []
    exits = [line for line in life.lines if line["event"] == "WorkerExit"]
    first = f"; rank {exits[0]['rank']} ended first: {exits[0]['status']}" if exits else ""
    return [f"the next start needed {lives} lives{first}"]


def _stop(training: Training, stop: Stop, folder: Path, seed: int) -> Stopped:
    with Launched(training.command(seed), folder, {}) as launched:
        if stop.step:
            launched.wait_for(
                lambda: any(one.step >= stop.step for one in states(launched.notes, "step")),
                within_s=_START_S,
                what=f"step {stop.step}",
            )
        launched.stay(stop.after_s)
        told_s = time.monotonic()
        os.kill(launched.pid, signal.SIGTERM)
        code = launched.wait_for_the_end(within_s=RUN_S)
        launched.save_notes(folder / "notes-first.txt")
        lines = journal.read(folder)
        if code == 0 and states(launched.notes, "final"):
            raise TooLate
        return Stopped(
            exit_code=code,
            life=Life(notes=launched.notes, lines=lines),
            files=training.read_back(folder, lines),
            orphans=left_over(launched, lines),
            last_line=said_at_the_end(launched.console),
            took_s=launched.ends[launched.pid] - told_s,
        )


def _go_on(training: Training, folder: Path, seed: int) -> tuple[int, Life, int]:
    """The same command in the same folder: its exit code, what it told, and who outlived it."""
    before = len(journal.read(folder))
    with Launched(training.command(seed), folder, {}) as launched:
        code = launched.wait_for_the_end(within_s=RUN_S)
        launched.save_notes(folder / "notes-second.txt")
        lines = journal.read(folder)
        return code, Life(notes=launched.notes, lines=lines[before:]), left_over(launched, lines)
