"""One of two torch workers is killed: when training goes on, whether at the first try, what is lost."""

from collections.abc import Mapping

from benchmarks.harness import procfs
from benchmarks.harness.benchmark import OURS, Attempt, Benchmark, Metric, Promise, Unit, Verdict
from benchmarks.harness.launched import ROOT, Launched, Overdue
from benchmarks.harness.launchers import Job, launcher, missing
from benchmarks.harness.notes import Note, select
from benchmarks.harness.series import Readings

RAISES, HOLDS_ON = "survivor raises", "survivor holds on"
WORKERS, VICTIM = 2, 1
STEPS, SAVE_EVERY, KILL_AT = 45, 10, 36
TORCH_LIMIT_S = 0.040
STALL_S = 30.0
_START_S = 120.0
_BACK_S = 75.0
_END_S = 60.0
_RIVALS = ("torchrun", "torchrun, unshared store")


def job(case: str) -> Job:
    """The same script, fault and checkpoint interval for everybody."""
    script = str(ROOT / "benchmarks" / "jobs" / "ddp.py")
    options = (f"--steps={STEPS}", f"--save_every={SAVE_EVERY}", f"--kill={VICTIM}:{KILL_AT}:before")
    return Job(
        workers=WORKERS,
        program=(script, *options, *(("--hold_on",) if case == HOLDS_ON else ())),
        recovery=("--checkpoint_dir=checkpoints", "--resume_arg=--pre_trained={checkpoint}"),
        for_others=("--find_newest",),
    )


def measure(attempt: Attempt) -> Mapping[str, list[float]]:
    """One run with one kill."""
    contender = launcher(attempt.contender)
    with Launched(contender.command(job(attempt.case)), attempt.folder, contender.environ) as run:
        run.wait_for(lambda: bool(select(run.notes, "dying")), within_s=_START_S, what="the kill")
        (dying,) = select(run.notes, "dying")
        if attempt.case == HOLDS_ON:
            return _signalled(run, dying)
        return recovery(run, dying)


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


def recovery(run: Launched, dying: Note) -> dict[str, list[float]]:
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
    series = readings.of(HOLDS_ON, OURS, "signalled")
    if not series.values:
        return Verdict(kept=None, measured="not run")
    words = f"median {series.median * 1e3:.0f} ms, p99 {series.percentile(99) * 1e3:.0f} ms of {len(series)}"
    return Verdict(kept=series.median <= TORCH_LIMIT_S, measured=words)


def judge_cold(readings: Readings) -> Verdict:
    """Our median against the best rival's."""
    ours = readings.of(RAISES, OURS, "first_step")
    rivals = {name: readings.of(RAISES, name, "first_step") for name in _RIVALS}
    medians = {name: series.median for name, series in rivals.items() if series.values}
    if not ours.values or not medians:
        return Verdict(kept=None, measured="not run")
    words = ", ".join(f"{name} {median:.2f} s" for name, median in medians.items())
    kept = ours.median <= min(medians.values()) and ours.most < STALL_S
    return Verdict(
        kept=kept, measured=f"{ours.median:.2f} s (at most {ours.most:.2f}); medians of the others: {words}"
    )


def judge_first_try(readings: Readings) -> Verdict:
    """Every recovery worked at the first restart, and the run ended with 0."""
    first = readings.of(RAISES, OURS, "first_try").values
    back = readings.of(RAISES, OURS, "back").values
    failed = sum(failure.contender == OURS for failure in readings.failures)
    if not first and not failed:
        return Verdict(kept=None, measured="not run")
    words = f"{sum(first):.0f} of {len(first) + failed} at the first restart, {sum(back):.0f} ended with 0"
    return Verdict(kept=all(first) and all(back) and not failed, measured=words)


def judge_lost(readings: Readings) -> Verdict:
    """Steps lost against the interval between checkpoints."""
    series = readings.of(RAISES, OURS, "lost")
    if not series.values:
        return Verdict(kept=None, measured="not run")
    words = f"at most {series.most:.0f} steps, saved every {SAVE_EVERY}"
    return Verdict(kept=series.most <= SAVE_EVERY, measured=words)


BENCHMARK = Benchmark(
    name="restart",
    title="A killed torch worker: until training goes on",
    method=(
        f"DistributedDataParallel over gloo, {WORKERS} workers, a checkpoint every {SAVE_EVERY} steps;"
        f" rank {VICTIM} writes the time and sends itself SIGKILL before step {KILL_AT} of {STEPS}. The"
        " same script for everybody; faultrun hands it the checkpoint that it has verified, under the"
        " others it takes the newest itself. *unshared store* is torchrun with"
        " TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1, which avoids its restart defect. All times are those of"
        " the last worker, but the first step's. A survivor whose collective broke either raises, as most"
        " scripts do, and soon ends by itself; or it *holds on*, as one does that saves or whose"
        " collective does not notice, until it is told. Then only the launcher's answer is timed."
    ),
    contenders=(OURS, *_RIVALS),
    cases=(RAISES, HOLDS_ON),
    metrics=(
        Metric(key="signalled", label="kill → survivor signalled", unit=Unit.MILLISECONDS),
        Metric(key="forked", label="kill → new workers exec'ed (10 ms grain)", unit=Unit.SECONDS),
        Metric(key="imported", label="→ imports done", unit=Unit.SECONDS),
        Metric(key="met", label="→ process group", unit=Unit.SECONDS),
        Metric(key="ready", label="→ model and optimizer", unit=Unit.SECONDS),
        Metric(key="first_step", label="→ first step", unit=Unit.SECONDS),
        Metric(key="first_try", label="training again after the first restart", unit=Unit.SUCCESSES),
        Metric(key="back", label="run ended with 0", unit=Unit.SUCCESSES),
        Metric(key="lost", label="steps lost", unit=Unit.COUNT),
        Metric(key="peak", label="largest RSS of the launcher", unit=Unit.MEBIBYTES),
    ),
    promises=(
        Promise(text="from the kill to the survivor's signal ≤ 40 ms for a torch worker", judge=judge_signal),
        Promise(text="cold restart no slower than torchrun, never a 30 s stall", judge=judge_cold),
        Promise(text="recovered at the first restart, always", judge=judge_first_try),
        Promise(text="steps lost ≤ the save interval (cold, without SDK)", judge=judge_lost),
    ),
    rounds=5,
    measure=measure,
    missing=missing,
)
