"""What copies of shards in memory cost a training: as ``auto`` chose, at every step, and not at all."""

from collections.abc import Mapping
from functools import partial
from statistics import median

from benchmarks.harness.benchmark import OURS, Attempt, Benchmark, Metric, Promise, Unit, Verdict
from benchmarks.harness.launched import ROOT, Launched
from benchmarks.harness.launchers import Job, launcher, missing
from benchmarks.harness.notes import select
from benchmarks.harness.series import NotRun, Readings

SPEED_LIMIT = 0.99
HOOK_LIMIT_S = 50e-6
_RANKS, _PAIRS = 2, 40
_WIDTHS = {"2 ranks, 2.4 million parameters": 640, "2 ranks, 9.4 million parameters": 1254}
_PATIENCE_S = 1200.0


def measure(attempt: Attempt) -> Mapping[str, list[float]]:
    """One training; blocks of steps with and without copies follow each other, and are compared in pairs."""
    contender = launcher(attempt.contender)
    words = (str(ROOT / "benchmarks/jobs/snapshot_torch.py"), str(_WIDTHS[attempt.case]), str(_PAIRS))
    job = Job(workers=_RANKS, program=words, recovery=("--checkpoint_dir=checkpoints",))
    with Launched(contender.command(job), attempt.folder, contender.environ) as run:
        run.wait_for_the_end(within_s=_PATIENCE_S)
        kinds = ("auto", "none", "bare", "one", "hook", "speed", "interval")
        told = ([note.number for note in select(run.notes, kind)] for kind in kinds)
    auto, none, bare, one, hooks, speeds, (every,) = told
    return {
        "without": [median(none)],
        "auto": [median(auto)],
        "one": [median(one)],
        "kept": [without / took for without, took in zip(none, auto, strict=True)],
        "kept_one": [without / took for without, took in zip(bare, one, strict=True)],
        "every": [every],
        "hook": [max(hooks)],
        "speed": [min(speeds)],
    }


def judge(readings: Readings, metric: str) -> Verdict:
    """The median of this share of the speed, in the worst case."""
    found = _medians(readings, metric)
    return Verdict(kept=min(found) >= SPEED_LIMIT, measured=" and ".join(f"{one:.3f}" for one in found))


def judge_hook(readings: Readings) -> Verdict:
    """The slower rank's median, in the worst case."""
    worst = max(_medians(readings, "hook"))
    return Verdict(kept=worst < HOOK_LIMIT_S, measured=f"{1e6 * worst:.0f} us")


def _medians(readings: Readings, key: str) -> list[float]:
    found = [one.median for (_, _, name), one in readings.samples.items() if name == key]
    if not found:
        raise NotRun
    return found


BENCHMARK = Benchmark(
    name="snapshots",
    title="What the SDK, and its memory snapshots of shards, cost a step",
    method=(
        "`fully_shard` over gloo with AdamW, a thread for each rank. After the trial of"
        ' `snapshot_every="auto"` pairs of blocks of 12 steps or more follow each other, in one process: one'
        " with the interval that was chosen and one without copies, each of them first in turn; then some"
        " with a copy at each step. The speeds of each pair are compared, and the median of all pairs counts:"
        " a block's own speed scatters by some percent on two cores with two ranks. At last 200 steps without"
        " copies, each behind one of an equal training in the same processes that the SDK does not know."
    ),
    contenders=(OURS,),
    cases=tuple(_WIDTHS),
    metrics=(
        Metric(key="without", label="step without copies", unit=Unit.MILLISECONDS),
        Metric(key="auto", label="step with auto", unit=Unit.MILLISECONDS),
        Metric(key="every", label="steps between its copies", unit=Unit.COUNT),
        Metric(key="kept", label="speed kept with auto", unit=Unit.PERCENT),
        Metric(key="one", label="step with a copy at each", unit=Unit.MILLISECONDS),
        Metric(key="kept_one", label="speed kept with those", unit=Unit.PERCENT),
        Metric(key="hook", label="hook behind a step without a copy", unit=Unit.MILLISECONDS),
        Metric(key="speed", label="speed kept under the SDK without copies", unit=Unit.PERCENT),
    ),
    promises=(
        Promise(
            text="training speed under the SDK ≥ 0.99 of that without", judge=partial(judge, metric="speed")
        ),
        Promise(text='training speed with snapshot_every="auto" ≥ 0.99', judge=partial(judge, metric="kept")),
        Promise(text="the SDK's hook behind a step, without a copy: < 50 us", judge=judge_hook),
    ),
    rounds=3,
    measure=measure,
    missing=missing,
)
