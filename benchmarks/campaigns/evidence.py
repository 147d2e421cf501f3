"""What a run left behind, and which promises it broke. Pure: notes, journal lines, counts in; words out."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.campaigns.kill_plan import SAVE_EVERY, STEPS, WORKERS, Kill
from benchmarks.harness import journal
from benchmarks.harness.notes import Note, select


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """``lines`` are the journal's, ``orphans`` the workers' processes that outlived the supervisor."""

    exit_code: int
    notes: Sequence[Note]
    lines: list[dict[str, Any]]
    orphans: int

    def steps(self, life: int, rank: int) -> list[int]:
        """The optimizer updates of one rank in one life, in the order in which it did them."""
        return [int(note.number) for note in select(self.notes, "step", life=life, rank=rank)]

    @property
    def resumed(self) -> int:
        """The step at which the second life began; -1 when it did not."""
        told = select(self.notes, "resumed", life=1)
        return int(told[0].number) if told else -1

    @property
    def lost(self) -> int:
        """Steps that any rank had done in the first life and that had to be done again."""
        done = max((step for rank in range(WORKERS) for step in self.steps(0, rank)), default=0)
        return done - self.resumed


def broken(kill: Kill, evidence: Evidence, expected: str) -> list[str]:
    """Say every promise that the run broke; ``expected`` is the digest of an undisturbed training."""
    return [
        *_ended(evidence),
        *_blamed(kill, evidence),
        *_counted_once(evidence),
        *_resumed_well(evidence),
        *_same_bits(evidence, expected),
    ]


def _ended(evidence: Evidence) -> list[str]:
    started = [line["incarnation"] for line in journal.of(evidence.lines, "IncarnationStarted")]
    found = []
    if evidence.exit_code != 0:
        found.append(f"exit code {evidence.exit_code}")
    if started != [0, 1]:
        found.append(f"not recovered at the first restart: incarnations {started} were started")
    if evidence.orphans:
        found.append(f"{evidence.orphans} orphans")
    return found


def _blamed(kill: Kill, evidence: Evidence) -> list[str]:
    exits = [line for line in journal.of(evidence.lines, "WorkerExit") if line["incarnation"] == 0]
    failed = [line for line in exits if line["status"] != {"is": "Exited", "code": 0}]
    if not failed:
        return ["nobody failed"]
    first = failed[0]
    if first["rank"] != kill.rank or first["status"] != {"is": "Signaled", "signum": 9}:
        return [f"rank {first['rank']} is blamed ({first['status']}), rank {kill.rank} was killed"]
    return []


def _counted_once(evidence: Evidence) -> list[str]:
    """What is in the weights at the end: the first life up to the checkpoint, the second life after it."""
    found = []
    for rank in range(WORKERS):
        first, second = evidence.steps(0, rank), evidence.steps(1, rank)
        if first != list(range(1, len(first) + 1)):
            found.append(f"rank {rank} counted steps {first} before the kill")
        if second != list(range(evidence.resumed + 1, STEPS + 1)):
            found.append(f"rank {rank} resumed at {evidence.resumed} and counted steps {second}")
    return found


def _resumed_well(evidence: Evidence) -> list[str]:
    where = {int(note.number) for note in select(evidence.notes, "resumed", life=1)}
    if len(where) != 1:
        return [f"the ranks resumed at {sorted(where)}"]
    saved = max((int(note.number) for note in select(evidence.notes, "saved", life=0)), default=0)
    found = []
    if evidence.resumed < saved:
        found.append(f"resumed at {evidence.resumed} although {saved} was saved")
    if not 0 <= evidence.lost <= SAVE_EVERY:
        found.append(f"{evidence.lost} steps lost, the interval is {SAVE_EVERY}")
    return found


def _same_bits(evidence: Evidence, expected: str) -> list[str]:
    last = {note.rank: note.value for note in select(evidence.notes, "final", life=1)}
    wrong = [rank for rank in range(WORKERS) if last.get(rank) != expected]
    return [f"rank {rank} ends with other weights than an undisturbed training" for rank in wrong]
