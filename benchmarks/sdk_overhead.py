"""What the SDK costs a training that nothing happens to: per step, and in speed."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from functools import partial
from statistics import quantiles
from typing import Any

from benchmarks.harness.benchmark import OURS, Attempt, Benchmark, Metric, NotMeasured, Promise, Unit, Verdict
from benchmarks.harness.launched import ROOT
from benchmarks.harness.series import Readings
from faultrun.model.wire import SLOT_BYTES

TORCH = "torch, 2.7 million parameters"
MINDSPORE = "MindSpore, 0.7 million parameters"

HOOK_LIMIT_S = 50e-6
SPEED_LIMIT = 0.99
COPY_LIMIT = 0.01

_JOBS = {TORCH: ("sdk_torch.py", 250), MINDSPORE: ("sdk_mindspore.py", 12)}
_PATIENCE_S = 300.0


def measure(attempt: Attempt) -> Mapping[str, list[float]]:
    """One process that trains twice, in turn with and without the SDK."""
    name, amount = _JOBS[attempt.case]
    page = attempt.folder / "progress"
    page.write_bytes(bytes(SLOT_BYTES))
    done = subprocess.run(
        [sys.executable, ROOT / "benchmarks" / "jobs" / name, str(amount), attempt.folder],
        env={
            **os.environ,
            "FAULTRUN_PROGRESS": f"{page}:0",
            "RANK": "0",
            "WORLD_SIZE": "2",  # as in a data parallel run: the forward pass has a hook then
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": os.pathsep.join(sys.path),
        },
        capture_output=True,
        timeout=_PATIENCE_S,
        check=False,
    )
    if done.returncode != 0:
        raise NotMeasured(f"the training ended with {done.returncode}: {done.stderr[-200:]!r}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    measured = {
        "step": [_typical(found["under_s"])],
        "bare": [_typical(found["bare_s"])],
        "speed": [_typical(found["bare_s"]) / _typical(found["under_s"])],
    }
    if attempt.case == TORCH:
        return {
            **measured,
            "hook": [_typical(found["hook_s"])],
            "again": [_typical(found["again_s"])],
            "call": [_typical(found["call_s"])],
        }
    return {
        **measured,
        "every": [float(found["every"])],
        "copies": [found["copy_s"] / (found["every"] * found["step_s"])],
    }


def _typical(steps_s: list[float]) -> float:
    """The lower quartile: what is above it was disturbed by other programs."""
    return quantiles(steps_s, n=4)[0]


def judge(readings: Readings, *, metric: str, limit: float, words: str) -> Verdict:
    """The median of all rounds, in each case that has the metric; ``limit`` is a floor for a speed."""
    found = {
        case: series.median
        for (case, contender, key), series in readings.samples.items()
        if contender == OURS and key == metric
    }
    if not found:
        return Verdict(kept=None, measured="not run")
    floor = metric == "speed"
    case, worst = (min if floor else max)(found.items(), key=lambda one: one[1])
    return Verdict(kept=worst >= limit if floor else worst < limit, measured=f"{words.format(worst)}, {case}")


BENCHMARK = Benchmark(
    name="sdk",
    title="What the SDK costs a training",
    method=(
        "One process trains two equal models, step by step (MindSpore: 15 steps) in turn, one of them under"
        " the SDK; lower quartiles over all steps, torch's in processor time. The hook is `guard.step()`:"
        " it notes schedulers, random numbers and position; `sdk.step()` only reports. MindSpore's state"
        " is copied every so many steps."
    ),
    contenders=(OURS,),
    cases=(TORCH, MINDSPORE),
    metrics=(
        Metric(key="step", label="step under the SDK", unit=Unit.MILLISECONDS),
        Metric(key="bare", label="step without", unit=Unit.MILLISECONDS),
        Metric(key="speed", label="speed kept", unit=Unit.COUNT),
        Metric(key="hook", label="guard.step() after a step, caches cold", unit=Unit.MILLISECONDS),
        Metric(key="again", label="guard.step() again and again", unit=Unit.MILLISECONDS),
        Metric(key="call", label="sdk.step()", unit=Unit.MILLISECONDS),
        Metric(key="every", label="steps between copies", unit=Unit.COUNT),
        Metric(key="copies", label="time spent in copies", unit=Unit.PERCENT),
    ),
    promises=(
        Promise(
            text="torch step hook < 50 us",
            judge=partial(judge, metric="hook", limit=HOOK_LIMIT_S, words="{:.6f} s, caches cold"),
        ),
        Promise(
            text="training speed under the SDK >= 0.99",
            judge=partial(judge, metric="speed", limit=SPEED_LIMIT, words="{:.3f}"),
        ),
        Promise(
            text="MindSpore: copies < 1 % of the time",
            judge=partial(judge, metric="copies", limit=COPY_LIMIT * 1.001, words="{:.2%}"),
        ),
    ),
    rounds=3,
    measure=measure,
)
