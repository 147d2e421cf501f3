"""One of two ranks stands still: who warns, when, whom it blames, and when training goes on at the limit."""

from collections.abc import Mapping
from itertools import pairwise
from statistics import median

from benchmarks.harness import journal
from benchmarks.harness.benchmark import OURS, Attempt, Benchmark, Metric, NotMeasured, Promise, Unit, Verdict
from benchmarks.harness.launched import ROOT, Launched
from benchmarks.harness.launchers import HEARTBEAT_S, HEARTBEATS, Job, launcher, missing
from benchmarks.harness.notes import Note, select
from benchmarks.harness.series import Readings

WORKERS, VICTIM, STEP_S = 2, 1, 0.05
COLLECTIVE_TIMEOUT_S = 15
LEAST_S, STEPS = 2.0, 40
TORCHRUN = "torchrun, unshared store"
"""As it comes, its first restart fails more often than not: see ``warm``."""

MINDSPORE = "MindSpore, stopped"
CASES = ("stopped", "spins", "sleeps", "saves", MINDSPORE)
_STEP_LIMIT_S, _SAVE_LIMIT_S = 3.0, 5.0
_LIMITS = f"--hang_limits=step={_STEP_LIMIT_S:g}s,checkpoint={_SAVE_LIMIT_S:g}s"
_REPLACED_S = 2.0
_START_S, _BACK_S = 180.0, 120.0


def measure(attempt: Attempt) -> Mapping[str, list[float]]:
    """One run with one hang."""
    if attempt.contender != OURS and attempt.case not in ("stopped", "spins"):
        raise NotMeasured("its time-outs know no phases; two cases show it")
    script = "hang_mindspore.py" if attempt.case == MINDSPORE else "hang_torch.py"
    deed = "stopped" if attempt.case == MINDSPORE else attempt.case
    contender = launcher(attempt.contender)
    options = (f"--deed={deed}", f"--step_s={STEP_S}")
    job = Job(
        workers=WORKERS,
        program=(str(ROOT / "benchmarks" / "jobs" / script), *options),
        recovery=("--checkpoint_dir=checkpoints", _LIMITS),
        for_others=(f"--collective_timeout={COLLECTIVE_TIMEOUT_S}",),
    )
    with Launched(contender.command(job), attempt.folder, contender.environ) as run:
        run.wait_for(lambda: bool(select(run.notes, "hung")), within_s=_START_S, what="the hang")
        (hung,) = select(run.notes, "hung")
        run.wait_for(
            lambda: len({note.rank for note in select(run.notes, "step", life=1)}) == WORKERS,
            within_s=_BACK_S,
            what="training again",
        )
        measured = _timeline(run.notes, hung)
        run.kill_all()
    if attempt.contender == OURS:
        measured |= _judged(attempt, measured, _step_s(run.notes))
    return measured


def _timeline(notes: list[Note], hung: Note) -> dict[str, list[float]]:
    new = [note.at_s for note in select(notes, "running", life=1)]
    steps = [note.at_s for note in select(notes, "step", life=1)]
    return {"new": [max(new) - hung.at_s], "first_step": [min(steps) - hung.at_s]}


def _step_s(notes: list[Note]) -> float:
    at_s = [note.at_s for note in select(notes, "step", life=0, rank=0)]
    return median(after - before for before, after in pairwise(at_s))


def _judged(attempt: Attempt, measured: Mapping[str, list[float]], step_s: float) -> dict[str, list[float]]:
    found = journal.of(journal.read(attempt.folder), "HangDetected")
    limit_s = _SAVE_LIMIT_S if attempt.case == "saves" else _STEP_LIMIT_S
    judged = {
        "blamed": [float(len(found) == 1 and found[0]["rank"] == VICTIM)],
        "in_time": [float(measured["new"][0] <= limit_s + _REPLACED_S)],
    }
    if attempt.case == "saves":  # whose first warning would come after a minute
        return judged
    warned = journal.of(journal.read(attempt.folder), "HangWarned")
    silent_s = [float(line["silent_s"]) for line in warned if line["rank"] == VICTIM][:1]
    soon = bool(silent_s) and silent_s[0] <= max(LEAST_S, STEPS * step_s)
    return judged | {"warned": silent_s, "warned_soon": [float(soon)]}


def judge(readings: Readings) -> Verdict:
    """Every hang of every case: a warning soon, the right rank, and new workers in time."""
    words, kept = [], []
    for case in CASES:
        for metric in ("warned_soon", "blamed", "in_time"):
            series = readings.of(case, OURS, metric)
            kept += [value == 1.0 for value in series.values]
        if readings.of(case, OURS, "new").values:
            words.append(f"{case}: {readings.of(case, OURS, 'new').percentile(50):.2f} s")
    return Verdict.of_all(kept, words)


BENCHMARK = Benchmark(
    name="hangs",
    title="From a rank that stands still to training again",
    method=(
        f"Two ranks, steps of {STEP_S * 1e3:g} ms. Before step 60 rank 1 writes the time and is stopped"
        " whenever it goes on, spins, sleeps, or sleeps inside a save. faultrun warns by itself, with limits"
        f" of {_STEP_LIMIT_S:g} s for a step and {_SAVE_LIMIT_S:g} s for a save (its own would be minutes);"
        f" torchrun has the time-out of the collective, {COLLECTIVE_TIMEOUT_S} s here and 1800 s by default;"
        f" ft_launcher is told by the script after each step, and waits {HEARTBEAT_S} s. *warned* is how long"
        f" the silence was by then, to be within {LEAST_S:g} s or {STEPS} steps, whichever is more; *new* is"
        f" when the last new worker runs Python, to be within {_REPLACED_S:g} s of the limit."
    ),
    contenders=(OURS, TORCHRUN, HEARTBEATS),
    cases=CASES,
    metrics=(
        Metric(key="warned", label="hang → warning", unit=Unit.SECONDS),
        Metric(key="new", label="hang → new workers", unit=Unit.SECONDS),
        Metric(key="first_step", label="hang → first step", unit=Unit.SECONDS),
        Metric(key="warned_soon", label="warned of in time", unit=Unit.SUCCESSES),
        Metric(key="blamed", label="right rank blamed", unit=Unit.SUCCESSES),
        Metric(key="in_time", label="new workers in time", unit=Unit.SUCCESSES),
    ),
    promises=(
        Promise(
            text="a rank that hangs: warned of within max(2 s, 40 steps), the right one replaced in time",
            judge=judge,
        ),
    ),
    rounds=3,
    measure=measure,
    missing=missing,
)
