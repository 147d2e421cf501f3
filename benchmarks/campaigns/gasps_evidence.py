"""What a run with a dying gasp left behind, and which promises it broke. Pure: notes, lines in; words out."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.campaigns.gasps_plan import STEPS, Fault
from benchmarks.harness import journal
from benchmarks.harness.notes import Note, select

Bits = tuple[str, str]
"""Digests of what all ranks share, and of everything that one rank has."""

_LOST_AT_MOST = 1
_SHOWN = 3


@dataclass(frozen=True, slots=True)
class State:
    """The training state of one rank after ``step``, as it noted it or as a file holds it."""

    rank: int
    step: int
    bits: Bits


@dataclass(frozen=True, slots=True)
class Reference:
    """An undisturbed training: the bits of every rank after every step, the beginning included."""

    bits: Mapping[tuple[int, int], Bits]

    @classmethod
    def of(cls, notes: Sequence[Note]) -> "Reference":
        """From the notes of a training that nobody disturbed."""
        found = [*states(notes, "resumed"), *states(notes, "step")]
        return cls({(one.rank, one.step): one.bits for one in found})

    def shares(self, one: State) -> bool:
        """Whether what all ranks share is equal."""
        return self.bits.get((one.rank, one.step), ("", ""))[0] == one.bits[0]

    def equals(self, one: State) -> bool:
        """Whether every bit of this very rank is equal."""
        return self.bits.get((one.rank, one.step)) == one.bits

    def was_somewhere(self, one: State) -> bool:
        """Whether some rank had exactly this state after that step."""
        return any(bits == one.bits for (_, step), bits in self.bits.items() if step == one.step)


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """What one life of the worker group told. ``lines`` are those of the journal with its number."""

    notes: Sequence[Note]
    lines: Sequence[Mapping[str, Any]]

    @property
    def newest(self) -> int:
        """The newest step that any rank finished, by its own note or by its slot of the progress page."""
        noted = [one.step for one in states(self.notes, "step")]
        beats = (line["steps"] for line in self.lines if line["event"] == "Heartbeat")
        return max([*noted, *(step["step"] for steps in beats for step in steps)], default=0)

    @property
    def resumed(self) -> int:
        """The step at which it began; -1 when nobody said so."""
        return max((one.step for one in states(self.notes, "resumed")), default=-1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """``files`` are the gasps that were reported, read again; ``orphans`` outlived the supervisor."""

    exit_code: int
    workers: int
    lives: tuple[Life, Life]
    lines: list[dict[str, Any]]
    files: tuple[State, ...]
    orphans: int

    @property
    def lost(self) -> int:
        """Steps that some rank had finished and that had to be done again."""
        return max(0, self.lives[0].newest - self.lives[1].resumed)


def states(notes: Iterable[Note], what: str, rank: int | None = None) -> list[State]:
    """The notes that have a step and digests: "<step> <shared> <whole>"."""
    found = []
    for note in select(notes, what, rank=rank):
        step, shared, whole = note.value.split()
        found.append(State(note.rank, int(step), (shared, whole)))
    return found


def broken(fault: Fault, evidence: Evidence, reference: Reference) -> list[str]:
    """Say every promise that a run with a death broke."""
    return [
        *_ended(evidence),
        *_blamed(fault, evidence),
        *disturbed_bits(evidence.lives[0], evidence.files, reference),
        *resumed_well(evidence.lives[1], evidence.workers, reference),
        *_lost_little(evidence),
    ]


def _ended(evidence: Evidence) -> list[str]:
    started = [line["incarnation"] for line in journal.of(evidence.lines, "IncarnationStarted")]
    found = []
    if evidence.exit_code != 0:
        found.append(f"exit code {evidence.exit_code}")
    if started != [0, 1]:
        found.append(f"not one restart: incarnations {started} were started")
    if evidence.orphans:
        found.append(f"{evidence.orphans} orphans")
    return found


def _blamed(fault: Fault, evidence: Evidence) -> list[str]:
    exits = [line for line in journal.of(evidence.lines, "WorkerExit") if line["incarnation"] == 0]
    failed = [line for line in exits if line["status"] != {"is": "Exited", "code": 0}]
    first = failed[0] if failed else {"rank": None, "status": None}
    if first["rank"] != fault.rank or first["status"] != {"is": "Signaled", "signum": 9}:
        return [f"rank {first['rank']} is blamed ({first['status']}), rank {fault.rank} killed itself"]
    return []


def _lost_little(evidence: Evidence) -> list[str]:
    if evidence.lost <= _LOST_AT_MOST:
        return []
    newest, resumed = evidence.lives[0].newest, evidence.lives[1].resumed
    return [f"{evidence.lost} steps lost: step {newest} was finished, resumed at {resumed}"]


def disturbed_bits(life: Life, files: Sequence[State], reference: Reference) -> list[str]:
    """What was computed before the death, and every gasp, used or not: never a torn state."""
    wrong = [one for one in states(life.notes, "step") if not reference.equals(one)]
    torn = [one for one in files if not reference.equals(one)]
    return [*_said(wrong, "trained otherwise before the fault"), *_said(torn, "saved another state")]


def resumed_well(life: Life, workers: int, reference: Reference) -> list[str]:
    """All ranks went on from one step, with the bits that it had, and came to the right end, step by step."""
    resumed = states(life.notes, "resumed")
    if len(resumed) != workers or len({one.step for one in resumed}) != 1:
        return [f"the ranks resumed at {sorted((one.rank, one.step) for one in resumed)}"]
    found = _said([one for one in resumed if not reference.was_somewhere(one)], "resumed another state")
    steps = states(life.notes, "step")
    found += _said([one for one in steps if not reference.shares(one)], "trained otherwise afterwards")
    for rank in range(workers):
        done = [one.step for one in steps if one.rank == rank]
        if done != list(range(life.resumed + 1, STEPS + 1)):
            found.append(f"rank {rank} resumed at {life.resumed} and counted steps {done}")
    last = states(life.notes, "final")
    if len(last) != workers or any(one.step != STEPS for one in last):
        found.append(f"the end was reached by {sorted((one.rank, one.step) for one in last)}")
    return found + _said([one for one in last if not reference.shares(one)], "ended with other weights")


def _said(wrong: Sequence[State], what: str) -> list[str]:
    shown = ", ".join(f"rank {one.rank} at step {one.step}" for one in wrong[:_SHOWN])
    more = f" and {len(wrong) - _SHOWN} more" if len(wrong) > _SHOWN else ""
    return [f"{what}: {shown}{more}"] if wrong else []
