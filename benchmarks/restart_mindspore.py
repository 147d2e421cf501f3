"""One MindSpore worker is killed: faultrun starts again, msrun ends and somebody else has to."""

from collections.abc import Mapping

from benchmarks.harness.benchmark import OURS, Attempt, Benchmark, Metric, Promise, Unit, Verdict
from benchmarks.harness.launched import ROOT, Launched
from benchmarks.harness.launchers import Job, launcher, missing
from benchmarks.harness.notes import Note, select
from benchmarks.harness.series import Readings

VICTIM = 1
STEPS, SAVE_EVERY, KILL_AT = 30, 10, 16
RATIO = 0.25
_START_S = 180.0
_END_S = 120.0


def job(case: str) -> Job:
    """The same script, fault and checkpoint interval for both."""
    script = str(ROOT / "benchmarks" / "jobs" / "mindspore_dp.py")
    return Job(
        workers=int(case.split(maxsplit=1)[0]),
        program=(script, f"--steps={STEPS}", f"--save_every={SAVE_EVERY}", f"--kill={VICTIM}:{KILL_AT}"),
        recovery=("--checkpoint_dir=checkpoints", "--resume_arg=--pre_trained={checkpoint}"),
        for_others=("--find_newest",),
    )


def measure(attempt: Attempt) -> Mapping[str, list[float]]:
    """One run with one kill; a launcher that gives up is started again at once, as a bash loop would."""
    contender = launcher(attempt.contender)
    with Launched(contender.command(job(attempt.case)), attempt.folder, contender.environ) as run:
        run.wait_for(lambda: bool(select(run.notes, "dying")), within_s=_START_S, what="the kill")
        dying = select(run.notes, "dying")[0]
        if contender.restarts:
            return _until_first_step(run, dying, run.notes)
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
        name: [max(note.at_s for note in select(notes, name)) - dying.at_s]
        for name in ("forked", "imported", "met", "ready")
    }
    first_s = min(note.at_s for note in select(notes, "step"))
    run.kill_all()
    return {**measured, "first_step": [first_s - dying.at_s], "lost": [float(done - resumed)]}


def judge(readings: Readings) -> Verdict:
    """The ratio of the medians, in the worst case."""
    words, kept = [], []
    for case in BENCHMARK.cases:
        ours, theirs = (readings.of(case, name, "first_step") for name in (OURS, "msrun"))
        if ours.values and theirs.values:
            ratio = ours.median / theirs.median
            words.append(f"{case}: {ours.median:.1f} s, msrun {theirs.median:.1f} s, ratio {ratio:.2f}")
            kept.append(ratio <= RATIO)
    return Verdict(kept=all(kept) if kept else None, measured="; ".join(words) or "not run")


BENCHMARK = Benchmark(
    name="mindspore",
    title="A killed MindSpore worker: until training goes on",
    method=(
        f"Data parallel on CPU, a checkpoint every {SAVE_EVERY} steps; rank {VICTIM} writes the time and"
        f" sends itself SIGKILL before step {KILL_AT} of {STEPS}. faultrun restarts with the checkpoint"
        " that it has verified, once with its own scheduler (the default) and once with MindSpore's. msrun"
        " ends, half a minute later, and is started again at once; the script then takes the newest"
        " checkpoint itself. All times are those of the last worker, but the first"
        " step's."
    ),
    contenders=(OURS, "faultrun, MindSpore's scheduler", "msrun"),
    cases=("2 workers", "4 workers"),
    metrics=(
        Metric(key="ended", label="kill → launcher's end", unit=Unit.SECONDS),
        Metric(key="forked", label="kill → new workers exec'ed", unit=Unit.SECONDS),
        Metric(key="imported", label="→ imports done", unit=Unit.SECONDS),
        Metric(key="met", label="→ init() done", unit=Unit.SECONDS),
        Metric(key="ready", label="→ model and optimizer", unit=Unit.SECONDS),
        Metric(key="first_step", label="→ first step", unit=Unit.SECONDS),
        Metric(key="lost", label="steps lost", unit=Unit.COUNT),
    ),
    promises=(
        Promise(text="MindSpore, kill → first step: cold ≤ 1/4 of (msrun's exit + start again)", judge=judge),
    ),
    rounds=3,
    measure=measure,
    missing=missing,
)
