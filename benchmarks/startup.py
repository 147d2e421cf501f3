"""A signal that comes while the launcher is still starting: whether it is heeded, and who is left behind."""

import os
import signal
import time
from collections.abc import Mapping
from pathlib import Path

from benchmarks.harness import procfs
from benchmarks.harness.benchmark import OURS, Attempt, Benchmark, Metric, NotMeasured, Promise, Unit, Verdict
from benchmarks.harness.launched import ROOT, Launched, Overdue
from benchmarks.harness.launchers import Job, launcher, missing
from benchmarks.harness.series import Readings

DELAYS_MS = (1, 5, 20, 50, 100, 400)
LIMIT_S = 0.100
_PROGRAM = ("python", "-S", str(ROOT / "benchmarks" / "jobs" / "idle.py"))
_LOOK_AGAIN_S = 0.001
_HEEDED_WITHIN_S = 30.0
_ENDED_WITHIN_S = 60.0
_TOLD_TO_STOP = {143, -signal.SIGTERM}
"""A process that SIGTERM ended by default is 143 to every shell and container runtime."""


def measure(attempt: Attempt) -> Mapping[str, list[float]]:
    """One start that is only watched, then one for each delay with a SIGTERM after it."""
    measured = {"ready": [_ready_s(attempt)]}
    for delay_ms in DELAYS_MS:
        for metric, value in _interrupted(attempt, delay_ms).items():
            measured.setdefault(metric, []).append(value)
    return measured


def _start(attempt: Attempt, name: str) -> Launched:
    contender = launcher(attempt.contender)
    folder = Path(attempt.folder, name)
    folder.mkdir()
    job = Job(workers=int(attempt.case.split()[0]), program=_PROGRAM)
    return Launched(contender.command(job), folder, contender.environ)


def _ready_s(attempt: Attempt) -> float:
    """Seconds from the start until SIGTERM is caught, or held back, by the launcher."""
    with _start(attempt, "watched") as run:
        while not procfs.heeds(run.pid, signal.SIGTERM):
            run.stay(_LOOK_AGAIN_S)
            if time.monotonic() - run.began_s > _HEEDED_WITHIN_S:
                raise NotMeasured(f"SIGTERM is not heeded {_HEEDED_WITHIN_S:g} s after the start")
        return time.monotonic() - run.began_s


def _interrupted(attempt: Attempt, delay_ms: int) -> dict[str, float]:
    with _start(attempt, f"after-{delay_ms}") as run:
        run.stay(run.began_s + delay_ms / 1e3 - time.monotonic())
        os.kill(run.pid, signal.SIGTERM)
        try:
            code = run.wait_for_the_end(within_s=_ENDED_WITHIN_S)
        except Overdue as late:
            raise NotMeasured(f"SIGTERM after {delay_ms} ms: {late}") from late
        ended_s = time.monotonic()
        left = run.wait_until_gone(within_s=2.0)
        took_s = ended_s - run.began_s - delay_ms / 1e3
    return {"clean": float(code in _TOLD_TO_STOP), "nobody_left": float(not left), "end": took_s}


def judge_ready(readings: Readings) -> Verdict:
    """The slowest start."""
    words, kept = [], []
    for case in BENCHMARK.cases:
        series = readings.of(case, OURS, "ready")
        if series.values:
            words.append(f"{case}: at most {series.most * 1e3:.0f} ms of {len(series)}")
            kept.append(series.most < LIMIT_S)
    return Verdict.of_all(kept, words)


def judge_clean(readings: Readings) -> Verdict:
    """Every SIGTERM ended in 143 with no process left."""
    codes = readings.of(BENCHMARK.cases[0], OURS, "clean").values
    gone = readings.of(BENCHMARK.cases[0], OURS, "nobody_left").values
    failed = sum(failure.contender == OURS for failure in readings.failures)
    if not codes:
        return Verdict(kept=False if failed else None, measured=f"{failed} attempts failed")
    words = f"{sum(codes):.0f} of {len(codes)} with 143, {sum(gone):.0f} of {len(gone)} with nobody left"
    return Verdict(kept=all(codes) and all(gone) and not failed, measured=words)


BENCHMARK = Benchmark(
    name="startup",
    title="SIGTERM while the launcher starts",
    method=(
        f"SIGTERM {', '.join(map(str, DELAYS_MS))} ms after the command was started, not as PID 1. Wanted:"
        " exit code 143 (or the end by SIGTERM itself, before the launcher runs code of its own), and no"
        " worker left. *heeded* is the first moment at which the kernel shows SIGTERM as caught or held"
        " back, looked at each millisecond: before that, PID 1 of a container would not even notice it."
    ),
    contenders=(OURS, "torchrun"),
    cases=("2 workers",),
    metrics=(
        Metric(key="ready", label="command → SIGTERM heeded", unit=Unit.MILLISECONDS),
        Metric(key="end", label="SIGTERM → end", unit=Unit.MILLISECONDS),
        Metric(key="clean", label="ended as told", unit=Unit.SUCCESSES),
        Metric(key="nobody_left", label="nobody left behind", unit=Unit.SUCCESSES),
    ),
    promises=(
        Promise(text="PID 1 ready to take signals < 100 ms after exec", judge=judge_ready),
        Promise(
            text="SIGTERM at any moment of the start: exit 143, no worker left behind", judge=judge_clean
        ),
    ),
    rounds=3,
    measure=measure,
    missing=missing,
)
