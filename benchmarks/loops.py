"""A mistake in the script: who starts it again and again, and how long it takes to say so."""

from collections.abc import Mapping

from benchmarks.harness.benchmark import OURS, Attempt, Benchmark, Metric, NotMeasured, Promise, Unit, Verdict
from benchmarks.harness.launched import ROOT, Launched
from benchmarks.harness.launchers import Job, launcher, missing
from benchmarks.harness.notes import select
from benchmarks.harness.series import NotRun, Readings

WORKERS, RESTARTS = 2, 3
RIVALS = ("torchrun", "torchrun, unshared store")
AT_STEP = {"before the first step": 1, "at step 20": 20}
_END_S = 60.0
_STOPPED = 93


def measure(attempt: Attempt) -> Mapping[str, list[float]]:
    """One run, from the command to its end."""
    contender = launcher(attempt.contender)
    script = str(ROOT / "benchmarks" / "jobs" / "hang_torch.py")
    job = Job(
        workers=WORKERS,
        program=(script, f"--mistake_from={AT_STEP[attempt.case]}", "--step_s=0"),
        restarts=RESTARTS,
        recovery=("--checkpoint_dir=checkpoints",),
    )
    with Launched(contender.command(job), attempt.folder, contender.environ) as run:
        code = run.wait_for_the_end(within_s=_END_S)
        lives = {note.life for note in select(run.notes, "failing")}
        measured = {"end": [run.ends[run.pid] - run.began_s], "lives": [float(len(lives))]}
    if code == 0 or not lives:
        raise NotMeasured(f"it did not fail: exit code {code}")
    return measured if attempt.contender != OURS else measured | {"stopped": [float(code == _STOPPED)]}


def judge(readings: Readings) -> Verdict:
    """In every case: the exit code that says so, and sooner than the better torchrun is through."""
    words, kept = [], []
    for case in AT_STEP:
        ours, theirs = readings.some(case, OURS, "end"), readings.medians(case, RIVALS, "end")
        if not theirs:
            raise NotRun
        better_s = min(theirs.values())
        kept += [ours.median < better_s, min(readings.of(case, OURS, "stopped").values) == 1.0]
        words.append(f"{case}: {ours.median:.1f} s, torchrun {better_s:.1f} s")
    return Verdict.of_all(kept, words)


BENCHMARK = Benchmark(
    name="loops",
    title="A mistake in the script, which every start meets again",
    method=(
        "Two torch ranks; rank 1 raises `KeyError` at one and the same line, with another number in each"
        f" life. Everybody may restart {RESTARTS} times. *end* is from the command to the launcher's own"
        " exit, *lives* how often rank 1 got as far as its mistake. faultrun stops at the first failure when"
        " no step was ever done, at the second one without progress otherwise, and ends with 93."
    ),
    contenders=(OURS, *RIVALS, "ft_launcher"),
    cases=tuple(AT_STEP),
    metrics=(
        Metric(key="end", label="command → end", unit=Unit.SECONDS),
        Metric(key="lives", label="lives that failed", unit=Unit.COUNT),
        Metric(key="stopped", label="exit code 93", unit=Unit.SUCCESSES),
    ),
    promises=(
        Promise(
            text="the same mistake again: stopped with 93 before torchrun's four attempts are over",
            judge=judge,
        ),
    ),
    rounds=3,
    measure=measure,
    missing=missing,
)
