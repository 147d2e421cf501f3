"""How exactly the grace window ends: workers that do not hear SIGTERM, and SIGKILL at the deadline."""

import os
import random
import signal
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.harness import journal
from benchmarks.harness.launched import ROOT, Launched
from benchmarks.harness.launchers import FAULTRUN, Job
from benchmarks.harness.notes import select

EXACT_S = 0.050
_WORKERS = 4
_A_LAUNCH = 10
_GRACE_S = (0.2, 1.0)
_START_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Deadline:
    """Seconds after the deadline: when the timer came, and when the first and the last survivor had ended."""

    timer_s: float
    first_exit_s: float
    last_exit_s: float

    @property
    def exact(self) -> bool:
        """Nobody before, nobody later than promised."""
        return self.first_exit_s >= 0 and self.last_exit_s <= EXACT_S


def measure(windows: int, seed: int) -> list[Deadline]:
    """Let ``windows`` grace windows run to their end, each launch with a length of its own."""
    rng = random.Random(f"deadlines {seed}")
    found: list[Deadline] = []
    while len(found) < windows:
        with tempfile.TemporaryDirectory(prefix="deadline-") as folder:
            lives = min(_A_LAUNCH, windows - len(found))
            found += _launch(Path(folder), rng, lives)
    return found


def deadlines(lines: Sequence[Mapping[str, Any]]) -> list[Deadline]:
    """From the journal: each window that its timer closed, and the exits by SIGKILL that followed."""
    found = []
    for asked in (line for line in lines if line["event"] == "GaspRequested"):
        own = [line for line in lines if line["incarnation"] == asked["incarnation"]]
        fired = [line["run_s"] for line in own if line["event"] == "TimerFired" and line["timer"] == "grace"]
        exits = [
            line["run_s"]
            for line in own
            if line["event"] == "WorkerExit"
            and line["rank"] in asked["ranks"]
            and line["status"] == {"is": "Signaled", "signum": signal.SIGKILL}
        ]
        if fired and exits:
            timer_s, *late_s = (at_s - asked["deadline_s"] for at_s in (fired[0], *exits))
            found.append(Deadline(timer_s=timer_s, first_exit_s=min(late_s), last_exit_s=max(late_s)))
    return found


def _launch(folder: Path, rng: random.Random, lives: int) -> list[Deadline]:
    grace = f"--grace={rng.uniform(*_GRACE_S):.3f}s"
    script = str(ROOT / "benchmarks" / "jobs" / "gasp_deaf.py")
    job = Job(
        workers=_WORKERS,
        program=("python", "-S", script),
        restarts=lives,
        recovery=(grace, "--framework=plain", "--backoff=0s..0s"),
    )
    with Launched(FAULTRUN.command(job), folder, {}) as run:
        for number in range(lives):
            run.wait_for(
                lambda life=number: len(select(run.notes, "running", life=life)) == _WORKERS,  # type: ignore[misc]
                within_s=_START_S,
                what=f"life {number}",
            )
            victim = rng.choice(select(run.notes, "running", life=number))
            os.kill(victim.pid, signal.SIGKILL)
        run.wait_for(
            lambda: bool(select(run.notes, "running", life=lives)), within_s=_START_S, what="the last restart"
        )
        run.kill_all()
        return deadlines(journal.read(folder))
