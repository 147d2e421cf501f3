"""One training under faultrun of which one rank kills itself, judged."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.campaigns.engine import TooLate
from benchmarks.campaigns.gasps_evidence import Evidence, Life, Reference, broken
from benchmarks.campaigns.gasps_job import RUN_S, Training, left_over
from benchmarks.campaigns.gasps_plan import Fault
from benchmarks.harness import journal
from benchmarks.harness.launched import Launched
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
