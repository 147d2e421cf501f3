"""A torch worker is killed long after the start: standbys against a cold start, and against every rival."""

from collections.abc import Mapping

from benchmarks.harness import procfs
from benchmarks.harness.benchmark import OURS, Attempt, Benchmark, Metric, NotMeasured, Promise, Unit, Verdict
from benchmarks.harness.launched import ROOT, Launched, Overdue
from benchmarks.harness.launchers import WARM, Job, launcher, missing
from benchmarks.harness.notes import Note, select
from benchmarks.harness.one_kill import SIGNAL, one_kill, weights_mib
from benchmarks.harness.series import NotRun, Readings

WORKERS, VICTIM, SAVE_EVERY, STEPS_BEFORE, STEPS_AFTER = 2, 1, 10, 36, 9
_CASE = f"{WORKERS} workers"
HOLDS_ON = "a survivor holds on"
_BACK_S = 75.0
_END_S = 60.0
_TORCH_LIMIT_S = 0.040
_TORCHRUN, _UNSHARED = "torchrun", "torchrun, unshared store"
_RIVALS = (_TORCHRUN, _UNSHARED, "ft_launcher", "shell loop")


def job(case: str) -> Job:
    """The same script, fault and checkpoint interval for everybody."""
    script = str(ROOT / "benchmarks" / "jobs" / "ddp.py")
    fault = (f"--kill={VICTIM}:{STEPS_BEFORE}:before", f"--kill_once={SIGNAL}")
    options = (f"--steps_after={STEPS_AFTER}", f"--save_every={SAVE_EVERY}", *fault)
    holds_on = ("--hold_on",) if case == HOLDS_ON else ()
    return Job(
        workers=WORKERS,
        program=(script, *options, *holds_on),
        recovery=("--checkpoint_dir=checkpoints", "--resume_arg=--pre_trained={checkpoint}"),
        for_others=("--find_newest",),
    )


def measure(attempt: Attempt) -> Mapping[str, list[float]]:
    """One run with one kill, once everybody trains and whoever has standbys has them ready."""
    if attempt.case == HOLDS_ON and attempt.contender not in (OURS, _TORCHRUN, _UNSHARED):
        raise NotMeasured("only the launcher's answer to a death is timed")
    contender = launcher(attempt.contender)
    with Launched(contender.command(job(attempt.case)), attempt.folder, contender.environ) as run:
        standbys = WORKERS if attempt.contender == WARM else 0
        dying, ready = one_kill(run, attempt.folder, steps=STEPS_BEFORE, standbys=standbys)
        if attempt.case == HOLDS_ON:
            return _signalled(run, dying)
        return {**_recovery(run, dying), **weights_mib(ready)}


def _signalled(run: Launched, dying: Note) -> dict[str, list[float]]:
    """The survivor stands for one that is stuck in a collective, or saving: it goes when it is told."""

    def again() -> bool:
        return len(select(run.notes, "forked", life=1)) == WORKERS

    run.wait_for(again, within_s=_BACK_S, what="new workers")
    measured = {
        "signalled": [note.at_s - dying.at_s for note in select(run.notes, "signalled", life=0)],
        "forked": [max(note.at_s for note in select(run.notes, "forked", life=1)) - dying.at_s],
    }
    run.kill_all()
    return measured


def _recovery(run: Launched, dying: Note) -> dict[str, list[float]]:
    """A restart that does not come in time is a sample of success 0."""
    try:
        run.wait_for(lambda: bool(_steps_after(run.notes)), within_s=_BACK_S, what="training again")
    except Overdue:
        return {"first_try": [0.0], "back": [0.0]}
    peak_mib = procfs.peak_rss_mib(run.pid)
    code = run.wait_for_the_end(within_s=_END_S)
    return {**_timeline(run.notes, dying), "peak": [peak_mib], "back": [float(code == 0)]}


def _steps_after(notes: list[Note]) -> list[Note]:
    return [note for note in select(notes, "step") if note.life > 0]


def _timeline(notes: list[Note], dying: Note) -> dict[str, list[float]]:
    """Seconds from the kill to everything that the first working life after it did."""
    first_step = min(_steps_after(notes), key=lambda note: note.at_s)
    life = first_step.life
    done = max(int(note.number) for note in select(notes, "step", life=0))
    resumed = int(select(notes, "resumed", life=life)[0].number)
    measured = {
        name: [max(note.at_s for note in select(notes, name, life=life)) - dying.at_s]
        for name in ("forked", "imported", "met", "ready")
    }
    return {
        **measured,
        "first_step": [first_step.at_s - dying.at_s],
        "first_try": [float(life == 1)],
        "lost": [float(done - resumed)],
    }


def judge_signal(readings: Readings) -> Verdict:
    """Kill to the survivor's SIGTERM, the kernel's teardown of a torch process included."""
    series = readings.some(HOLDS_ON, OURS, "signalled")
    words = f"median {series.median * 1e3:.0f} ms, p99 {series.percentile(99) * 1e3:.0f} ms of {len(series)}"
    return Verdict(kept=series.median <= _TORCH_LIMIT_S, measured=words)


def judge_warm(readings: Readings) -> Verdict:
    """Median and 95th percentile against torchrun's median and percentile, where torchrun recovers."""
    warm, rival = (readings.some(_CASE, name, "first_step") for name in (WARM, _UNSHARED))
    medians, tails = warm.median / rival.median, warm.percentile(95) / rival.percentile(95)
    words = (
        f"median {warm.median:.3f} s, 1/{1 / medians:.1f} of {rival.median:.2f} s;"
        f" p95 {warm.percentile(95):.3f} s, 1/{1 / tails:.1f} (n={len(warm)})"
    )
    return Verdict(kept=medians <= 1 / 10 and tails <= 1 / 4, measured=words)


def judge_cold(readings: Readings) -> Verdict:
    """Our cold median against the best rival launcher's."""
    ours, medians = readings.some(_CASE, OURS, "first_step"), readings.medians(_CASE, _RIVALS[:3])
    if not medians:
        raise NotRun
    words = ", ".join(f"{name} {median:.2f} s" for name, median in medians.items())
    return Verdict(kept=ours.median <= min(medians.values()), measured=f"{ours.median:.2f} s; {words}")


def judge_first_try(readings: Readings) -> Verdict:
    """Cold and warm: training again after the first restart, and an end with 0."""
    first = [value for name in (OURS, WARM) for value in readings.of(_CASE, name, "first_try").values]
    failed = sum(failure.contender in (OURS, WARM) for failure in readings.failures)
    if not first and not failed:
        raise NotRun
    return Verdict(kept=all(first) and not failed, measured=f"{sum(first):.0f} of {len(first) + failed}")


def judge_lost(readings: Readings) -> Verdict:
    """Steps lost against the interval between checkpoints."""
    series = readings.some(_CASE, OURS, "lost")
    words = f"at most {series.most:.0f} steps, saved every {SAVE_EVERY}"
    return Verdict(kept=series.most <= SAVE_EVERY, measured=words)


_RESTART_METRICS = (
    Metric(key="signalled", label="kill → survivor signalled", unit=Unit.MILLISECONDS),
    Metric(key="forked", label="kill → new workers exec'ed (10 ms grain)", unit=Unit.SECONDS),
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
        f"DistributedDataParallel over gloo, {WORKERS} workers, a checkpoint every {SAVE_EVERY} steps;"
        f" rank {VICTIM} writes the time and sends itself SIGKILL when it is told to, at the earliest before"
        f" step {STEPS_BEFORE}: with `--standby={WORKERS}` that is when the standbys are ready. The same"
        " script for everybody; faultrun hands it the checkpoint that it has verified, under the others it"
        " takes the newest itself. *unshared store* is torchrun with TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1,"
        " which avoids its restart defect. All times are those of the last worker, but the first step's."
        " *shell loop* stops the survivors and"
        " starts all again, as a careful shell script would (`jobs/loop.py`). Everybody's survivor raises"
        f" when its collective breaks; where *{HOLDS_ON}*, as one does that saves, it waits until it is told,"
        " and only the launcher's answer is timed."
    ),
    contenders=(WARM, OURS, *_RIVALS),
    cases=(_CASE, HOLDS_ON),
    metrics=_RESTART_METRICS,
    promises=(
        Promise(text="warm restart ≤ 1/10 of torchrun's median, p95 ≤ 1/4", judge=judge_warm),
        Promise(text="cold restart no slower than torchrun and ft_launcher", judge=judge_cold),
        Promise(text="recovered at the first restart, always", judge=judge_first_try),
        Promise(text="steps lost ≤ the save interval (cold, without SDK)", judge=judge_lost),
        Promise(text="from the kill to the survivor's signal ≤ 40 ms for a torch worker", judge=judge_signal),
    ),
    rounds=15,
    measure=measure,
    missing=missing,
)
