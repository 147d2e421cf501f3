"""One training under faultrun with one kill, and the undisturbed training that it must equal."""

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.campaigns.engine import TooLate
from benchmarks.campaigns.evidence import Evidence, broken
from benchmarks.campaigns.gasps_job import left_over
from benchmarks.campaigns.kill_plan import SAVE_EVERY, STEPS, WORKERS, Kill, Way, When
from benchmarks.harness import journal
from benchmarks.harness.benchmark import NotMeasured
from benchmarks.harness.launched import ROOT, Launched
from benchmarks.harness.launchers import BARE, FAULTRUN, Job
from benchmarks.harness.notes import select

_SCRIPT = str(ROOT / "benchmarks" / "jobs" / "ddp.py")
_OPTIONS = (f"--steps={STEPS}", f"--save_every={SAVE_EVERY}", "--step_s=0.01")
_CONFIG = "# a training's configuration\npre_trained: ''  # where to go on\n"
_START_S = 120.0
_RUN_S = 240.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """A run that was judged. ``pause_s`` is from the kill to the first step after it, None if none came."""

    broken: tuple[str, ...]
    resumed: int
    lost: int
    pause_s: float | None


def undisturbed(folder: Path, seed: int) -> str:
    """The digest of weights and momentum after a training that no launcher watched and nobody disturbed."""
    job = Job(workers=WORKERS, program=(_SCRIPT, *_OPTIONS, f"--seed={seed}"))
    with Launched(BARE.command(job), folder, {}) as run:
        code = run.wait_for_the_end(within_s=_RUN_S)
        digests = {note.value for note in select(run.notes, "final")}
        if code != 0 or len(digests) != 1:
            raise NotMeasured(f"the undisturbed training ended with {code} and {len(digests)} results")
    return digests.pop()


def run(kill: Kill, folder: Path, seed: int, expected: str) -> Outcome:
    """Train, kill, wait for the end, judge. TooLate when the kill from outside missed."""
    (folder / "config.yaml").write_text(_CONFIG, encoding="utf-8")
    with Launched(FAULTRUN.command(_job(kill, seed)), folder, {}) as launched:
        try:
            killed_s = _kill(launched, kill)
            code = launched.wait_for_the_end(within_s=_RUN_S)
        finally:
            launched.save_notes(folder / "notes.txt")
        lines = journal.read(folder)
        orphans = left_over(launched, lines)
        evidence = Evidence(exit_code=code, notes=tuple(launched.notes), lines=lines, orphans=orphans)
    again = [note.at_s for note in evidence.notes if note.life == 1 and note.what in ("step", "final")]
    return Outcome(
        broken=tuple(broken(kill, evidence, expected)),
        resumed=evidence.resumed,
        lost=evidence.lost,
        pause_s=min(again) - killed_s if again else None,
    )


def _job(kill: Kill, seed: int) -> Job:
    looked_through = "--checkpoint_dir=checkpoints"
    script = (_SCRIPT, *_OPTIONS, f"--seed={seed}", kill.option)
    if kill.way is Way.REWRITE:
        recovery = (looked_through, "--rewrite=config.yaml:pre_trained")
        return Job(workers=WORKERS, program=(*script, "--config=config.yaml"), recovery=recovery)
    recovery = (looked_through, "--resume_arg=--pre_trained={checkpoint}")
    return Job(workers=WORKERS, program=script, recovery=recovery)


def _kill(launched: Launched, kill: Kill) -> float:
    """See the victim dead; the moment, in CLOCK_MONOTONIC seconds."""
    what = f"rank {kill.rank} at step {kill.step}"
    if kill.when is not When.OUTSIDE:
        launched.wait_for(lambda: bool(select(launched.notes, "dying")), within_s=_START_S, what=what)
        return select(launched.notes, "dying")[0].at_s

    def there() -> bool:
        return any(note.number >= kill.step for note in select(launched.notes, "step", rank=kill.rank))

    launched.wait_for(there, within_s=_START_S, what=what)
    launched.stay(kill.after_s)
    if select(launched.notes, "final"):
        raise TooLate
    killed_s = time.monotonic()
    try:
        os.kill(select(launched.notes, "step", rank=kill.rank)[0].pid, signal.SIGKILL)
    except ProcessLookupError:
        raise TooLate from None
    return killed_s
