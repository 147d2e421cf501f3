"""A torch worker is killed long after the start: standbys against a cold start, and against every rival."""

from collections.abc import Mapping

from benchmarks.harness import journal
from benchmarks.harness.benchmark import OURS, Attempt, Benchmark, Metric, Promise, Unit, Verdict
from benchmarks.harness.launched import ROOT, Launched
from benchmarks.harness.launchers import WARM, Job, launcher, missing
from benchmarks.harness.notes import select
from benchmarks.harness.series import Readings
from benchmarks.restart import SAVE_EVERY, VICTIM, recovery

WORKERS, STEPS_BEFORE, STEPS_AFTER = 2, 36, 9
_CASE = f"{WORKERS} workers"
_SIGNAL = "now"
_START_S = 120.0
_READY_S = 240.0
_TORCHRUN, _UNSHARED = "torchrun", "torchrun, unshared store"
_RIVALS = (_TORCHRUN, _UNSHARED, "ft_launcher", "shell loop")


def job() -> Job:
    """The same script, fault and checkpoint interval for everybody."""
    script = str(ROOT / "benchmarks" / "jobs" / "ddp.py")
    fault = (f"--kill={VICTIM}:{STEPS_BEFORE}:before", f"--kill_once={_SIGNAL}")
    options = (f"--steps_after={STEPS_AFTER}", f"--save_every={SAVE_EVERY}", *fault)
    return Job(
        workers=WORKERS,
        program=(script, *options),
        recovery=("--checkpoint_dir=checkpoints", "--resume_arg=--pre_trained={checkpoint}"),
        for_others=("--find_newest",),
    )


def measure(attempt: Attempt) -> Mapping[str, list[float]]:
    """One run with one kill, once everybody trains and whoever has standbys has them ready."""
    contender = launcher(attempt.contender)
    with Launched(contender.command(job()), attempt.folder, contender.environ) as run:

        def under_way() -> bool:
            return any(int(note.number) >= STEPS_BEFORE for note in select(run.notes, "step"))

        def standbys_ready() -> bool:
            said = journal.of(journal.read(attempt.folder), "StandbyChanged")
            return len({line["rank"] for line in said if line["state"] == "ready"}) == WORKERS

        run.wait_for(under_way, within_s=_START_S, what="training")
        memory = {}
        if attempt.contender == WARM:
            run.wait_for(standbys_ready, within_s=_READY_S, what="the standbys")
            said = journal.of(journal.read(attempt.folder), "StandbyChanged")
            sizes = [line["memory_bytes"] / (1 << 20) for line in said if line["state"] == "ready"]
            memory = {"standby": sizes}
        (attempt.folder / _SIGNAL).touch()
        run.wait_for(lambda: bool(select(run.notes, "dying")), within_s=_START_S, what="the kill")
        (dying,) = select(run.notes, "dying")
        return {**recovery(run, dying), **memory}


def judge_warm(readings: Readings) -> Verdict:
    """Median and 95th percentile against torchrun's median and percentile, where torchrun recovers."""
    warm, rival = readings.of(_CASE, WARM, "first_step"), readings.of(_CASE, _UNSHARED, "first_step")
    if not warm.values or not rival.values:
        return Verdict(kept=None, measured="not run")
    medians, tails = warm.median / rival.median, warm.percentile(95) / rival.percentile(95)
    words = (
        f"median {warm.median:.3f} s, 1/{1 / medians:.1f} of {rival.median:.2f} s;"
        f" p95 {warm.percentile(95):.3f} s, 1/{1 / tails:.1f} (n={len(warm)})"
    )
    return Verdict(kept=medians <= 1 / 10 and tails <= 1 / 4, measured=words)


def judge_cold(readings: Readings) -> Verdict:
    """Our cold median against the best rival launcher's."""
    ours = readings.of(_CASE, OURS, "first_step")
    others = {name: readings.of(_CASE, name, "first_step") for name in _RIVALS[:3]}
    medians = {name: series.median for name, series in others.items() if series.values}
    if not ours.values or not medians:
        return Verdict(kept=None, measured="not run")
    words = ", ".join(f"{name} {median:.2f} s" for name, median in medians.items())
    return Verdict(kept=ours.median <= min(medians.values()), measured=f"{ours.median:.2f} s; {words}")


def judge_first_try(readings: Readings) -> Verdict:
    """Cold and warm: training again after the first restart, and an end with 0."""
    first = [value for name in (OURS, WARM) for value in readings.of(_CASE, name, "first_try").values]
    failed = sum(failure.contender in (OURS, WARM) for failure in readings.failures)
    if not first and not failed:
        return Verdict(kept=None, measured="not run")
    return Verdict(kept=all(first) and not failed, measured=f"{sum(first):.0f} of {len(first) + failed}")


_RESTART_METRICS = (
    Metric(key="imported", label="kill → imports done", unit=Unit.SECONDS),
    Metric(key="met", label="→ process group", unit=Unit.SECONDS),
    Metric(key="ready", label="→ model and optimizer", unit=Unit.SECONDS),
    Metric(key="first_step", label="→ first step", unit=Unit.SECONDS),
    Metric(key="first_try", label="training again after the first restart", unit=Unit.SUCCESSES),
    Metric(key="back", label="run ended with 0", unit=Unit.SUCCESSES),
    Metric(key="lost", label="steps lost", unit=Unit.COUNT),
    Metric(key="peak", label="largest RSS of the launcher", unit=Unit.MEBIBYTES),
    Metric(key="standby", label="PSS of one standby", unit=Unit.MEBIBYTES),
)

BENCHMARK = Benchmark(
    name="warm",
    title="A killed torch worker: standbys, a cold start, and the rivals",
    method=(
        f"As *restart*, {WORKERS} workers over gloo and a checkpoint every {SAVE_EVERY} steps; but rank"
        f" {VICTIM} kills itself when it is told to, at the earliest before step {STEPS_BEFORE}: with"
        f" `--standby={WORKERS}` that is when the standbys are ready. *shell loop* stops the survivors and"
        " starts all again, as a careful shell script would (`jobs/loop.py`). Everybody's survivor raises"
        " when its collective breaks."
    ),
    contenders=(WARM, OURS, *_RIVALS),
    cases=(_CASE,),
    metrics=_RESTART_METRICS,
    promises=(
        Promise(text="warm restart ≤ 1/10 of torchrun's median, p95 ≤ 1/4", judge=judge_warm),
        Promise(text="cold restart no slower than torchrun and ft_launcher", judge=judge_cold),
        Promise(text="recovered at the first restart, always", judge=judge_first_try),
    ),
    rounds=15,
    measure=measure,
    missing=missing,
)
