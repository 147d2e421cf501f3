"""One MindSpore worker is killed: faultrun starts again, msrun ends and somebody else has to."""

from collections.abc import Mapping
from functools import partial

from benchmarks.harness.benchmark import OURS, Attempt, Benchmark, Metric, Promise, Unit, Verdict
from benchmarks.harness.launched import ROOT, Launched
from benchmarks.harness.launchers import WARM, WARM_CACHED, Job, launcher, missing
from benchmarks.harness.notes import Note, select
from benchmarks.harness.one_kill import SIGNAL, one_kill, weights_mib
from benchmarks.harness.series import Readings

VICTIM = 1
STEPS_BEFORE, STEPS_AFTER, SAVE_EVERY = 16, 10, 10
MSRUN = "msrun"
COLD_RATIO, WARM_RATIO = 1 / 4, 1 / 30
WARM_LIMITS_S = {"2 workers": 1.2, "4 workers": 2.0}
_START_S = 180.0
_END_S = 120.0


def job(case: str) -> Job:
    """The same script, fault and checkpoint interval for everybody."""
    script = str(ROOT / "benchmarks" / "jobs" / "mindspore_dp.py")
    fault = (f"--kill={VICTIM}:{STEPS_BEFORE}", f"--kill_once={SIGNAL}")
    return Job(
        workers=workers_in(case),
        program=(script, f"--steps_after={STEPS_AFTER}", f"--save_every={SAVE_EVERY}", *fault),
        recovery=("--checkpoint_dir=checkpoints", "--resume_arg=--pre_trained={checkpoint}"),
        for_others=("--find_newest",),
    )


def workers_in(case: str) -> int:
    """The number at the beginning of a case's name."""
    return int(case.split(maxsplit=1)[0])


def measure(attempt: Attempt) -> Mapping[str, list[float]]:
    """One run with one kill; a launcher that gives up is started again at once, as a bash loop would."""
    contender = launcher(attempt.contender)
    command = contender.command(job(attempt.case))
    with Launched(command, attempt.folder, contender.environ) as run:
        standbys = workers_in(attempt.case) if attempt.contender in (WARM, WARM_CACHED) else 0
        dying, ready = one_kill(run, attempt.folder, steps=STEPS_BEFORE, standbys=standbys)
        if contender.restarts:
            return {**_until_first_step(run, dying, run.notes), **weights_mib(ready)}
        run.wait_for_the_end(within_s=_END_S)
        before, ended_s = list(run.notes), run.ends[run.pid]
    environ = {**contender.environ, "BENCH_LIFE": "1"}
    with Launched(contender.command(job(attempt.case)), attempt.folder, environ) as run:
        again = _until_first_step(run, dying, before)
    return {**again, "ended": [ended_s - dying.at_s]}


def _until_first_step(run: Launched, dying: Note, before: list[Note]) -> dict[str, list[float]]:
    run.wait_for(lambda: bool(select(run.notes, "step", life=1)), within_s=_START_S, what="training again")
    notes = [note for note in run.notes if note.life == 1 and note.rank >= 0]
    done = max(int(note.number) for note in select(before, "step", life=0))
    resumed = int(select(notes, "resumed")[0].number)
    measured = {
        name: [after_s]
        for name in ("forked", "imported", "met", "ready")
        if (after_s := max(note.at_s for note in select(notes, name)) - dying.at_s)
        > 0  # a standby was before
    }
    first_s = min(note.at_s for note in select(notes, "step"))
    run.kill_all()
    return {**measured, "first_step": [first_s - dying.at_s], "lost": [float(done - resumed)]}


def judge_ratio(readings: Readings, name: str, limit: float) -> Verdict:
    """The ratio of the medians to msrun's, in the worst case."""
    words, kept = [], []
    for case in BENCHMARK.cases:
        ours, theirs = (readings.of(case, one, "first_step") for one in (name, MSRUN))
        if ours.values and theirs.values:
            ratio = ours.median / theirs.median
            words.append(f"{case}: {ours.median:.2f} s, msrun {theirs.median:.1f} s, 1/{1 / ratio:.1f}")
            kept.append(ratio <= limit)
    return Verdict.of_all(kept, words)


def judge_warm(readings: Readings) -> Verdict:
    """Medians with standbys, in seconds."""
    words, kept = [], []
    for case, limit_s in WARM_LIMITS_S.items():
        ours, cached = (readings.of(case, name, "first_step") for name in (WARM, WARM_CACHED))
        if ours.values:
            with_cache = f", with the compile cache {cached.median:.2f} s" if cached.values else ""
            words.append(f"{case}: {ours.median:.2f} s (n={len(ours)}){with_cache}")
            kept.append(ours.median <= limit_s)
    return Verdict.of_all(kept, words)


BENCHMARK = Benchmark(
    name="mindspore",
    title="A killed MindSpore worker: until training goes on",
    method=(
        f"Data parallel on CPU, a checkpoint every {SAVE_EVERY} steps; rank {VICTIM} writes the time and"
        f" sends itself SIGKILL when it is told to, at the earliest before step {STEPS_BEFORE}: with standbys"
        " that is when they are ready. faultrun restarts with the checkpoint that it has verified. msrun"
        " ends, half a minute later, and is started again at once; the script then takes the newest"
        " checkpoint itself. All times are those of the last worker, but the first step's."
    ),
    contenders=(OURS, WARM, WARM_CACHED, MSRUN),
    cases=("2 workers", "4 workers"),
    metrics=(
        Metric(key="ended", label="kill → launcher's end", unit=Unit.SECONDS),
        Metric(key="forked", label="kill → new workers exec'ed", unit=Unit.SECONDS),
        Metric(key="imported", label="→ imports done", unit=Unit.SECONDS),
        Metric(key="met", label="→ init() done", unit=Unit.SECONDS),
        Metric(key="ready", label="→ model and optimizer", unit=Unit.SECONDS),
        Metric(key="first_step", label="→ first step", unit=Unit.SECONDS),
        Metric(key="lost", label="steps lost", unit=Unit.COUNT),
        Metric(key="standby", label="PSS of one standby", unit=Unit.MEBIBYTES),
    ),
    promises=(
        Promise(
            text="MindSpore, kill → first step: cold ≤ 1/4 of (msrun's exit + start again)",
            judge=partial(judge_ratio, name=OURS, limit=COLD_RATIO),
        ),
        Promise(text="MindSpore, with standbys: ≤ 1.2 s with 2 workers, ≤ 2 s with 4", judge=judge_warm),
        Promise(
            text="MindSpore, with standbys: ≤ 1/30 of (msrun's exit + start again)",
            judge=partial(judge_ratio, name=WARM, limit=WARM_RATIO),
        ),
    ),
    rounds=3,
    measure=measure,
    missing=missing,
)
