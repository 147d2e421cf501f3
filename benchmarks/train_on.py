"""A rank of a torch training is killed, and nobody waits for its place: what that costs, and its return."""

from collections import defaultdict
from collections.abc import Mapping

from benchmarks.harness.benchmark import Attempt, Benchmark, Metric, Promise, Unit, Verdict
from benchmarks.harness.launched import ROOT, Launched
from benchmarks.harness.launchers import TRAIN_ON, Job, launcher, missing
from benchmarks.harness.notes import Note, select
from benchmarks.harness.one_kill import SIGNAL, one_kill
from benchmarks.harness.series import Readings

RANKS, VICTIM, STEPS_BEFORE, STEPS_AFTER = 3, 1, 100, 20
_QUICK, _SLOW = f"{RANKS} ranks of DDP", f"{RANKS} ranks of DDP, steps of 50 ms"
_STEP_S, _BATCH = {_QUICK: 0.0, _SLOW: 0.05}, 8
_BACK_S = 120.0
_UNSHARED = "torchrun, unshared store"
_MEDIAN_LIMIT_S, _TAIL_LIMIT_S, _PAUSE_LIMIT_S, _SHARE_LIMIT = 0.12, 0.3, 0.15, 0.9


def job(step_s: float) -> Job:
    """The same script, fault and checkpoint interval for everybody."""
    script = str(ROOT / "benchmarks" / "jobs" / "share_ddp.py")
    fault = (f"--kill={VICTIM}:{STEPS_BEFORE}:before", f"--kill_once={SIGNAL}")
    return Job(
        workers=RANKS,
        program=(script, f"--step_s={step_s}", "--save_every=10", *fault),
        recovery=("--checkpoint_dir=checkpoints",),
        for_others=("--find_newest",),
    )


def measure(attempt: Attempt) -> Mapping[str, list[float]]:
    """One run with one kill, and, where the others train on, the return of the rank that died."""
    contender = launcher(attempt.contender)
    with Launched(contender.command(job(_STEP_S[attempt.case])), attempt.folder, contender.environ) as run:
        dying, _ = one_kill(run, attempt.folder, steps=STEPS_BEFORE, standbys=0)
        run.wait_for(
            lambda: len(_steps_after(run.notes, dying).get(VICTIM, [])) >= STEPS_AFTER,
            within_s=_BACK_S,
            what="all training again",
        )
        return _timeline(run.notes, dying, heals=attempt.contender == TRAIN_ON)


def _steps_after(notes: list[Note], dying: Note) -> dict[int, list[Note]]:
    """Steps of each rank since the kill, in order. A survivor may just be telling of one before that."""
    found: defaultdict[int, list[Note]] = defaultdict(list)
    lived = {note.pid for note in select(notes, "step") if note.at_s < dying.at_s}
    for note in select(notes, "step"):
        if note.at_s > dying.at_s and (note.pid not in lived or note.number >= dying.number):
            found[note.rank].append(note)
    return found


def _timeline(notes: list[Note], dying: Note, *, heals: bool) -> dict[str, list[float]]:
    after = _steps_after(notes, dying)
    survivors = [rank for rank in range(RANKS) if rank != VICTIM]
    first = max(after[rank][0].at_s for rank in survivors)
    again = max(after[rank][0].at_s for rank in range(RANKS))
    measured = {"first_step": [first - dying.at_s], "all": [again - dying.at_s]}
    if not heals:
        return measured
    came_s = after[VICTIM][0].at_s
    told = [note.at_s for note in select(notes, "heard") if first < note.at_s < came_s]
    restored = [note.at_s for note in select(notes, "restored") if first < note.at_s < came_s]
    missing_s = [note.at_s for note in after[0] if note.at_s < min(told)]
    before_s = [note.at_s for note in select(notes, "step", rank=0) if note.at_s < dying.at_s][
        -STEPS_BEFORE // 2 :
    ]
    return {
        **measured,
        "pause": [max(restored) - min(told)],
        "share": [_rate(missing_s[1:]) / _rate(before_s) * RANKS / (RANKS - 1)],
        "wrong": [float(_wrong(notes, dying))],
    }


def _rate(at_s: list[float]) -> float:
    """Steps a second."""
    return (len(at_s) - 1) / (at_s[-1] - at_s[0])


def _wrong(notes: list[Note], dying: Note) -> int:
    """How many steps after the kill had more or fewer samples than those of all ranks, or came twice."""
    samples: defaultdict[int, int] = defaultdict(int)
    for note in select(notes, "samples"):
        step, _, count = note.value.partition(":")
        samples[int(step)] += int(count)
    whole = [step for step in samples if step > int(dying.number)][:-2]  # all have told of these
    return sum(samples[step] != RANKS * _BATCH for step in whole)


def judge_time(readings: Readings) -> Verdict:
    """Our median and 95th percentile."""
    ours = readings.some(_QUICK, TRAIN_ON, "first_step")
    tail_s = ours.percentile(95)
    kept = ours.median <= _MEDIAN_LIMIT_S and tail_s <= _TAIL_LIMIT_S
    return Verdict(kept=kept, measured=f"median {ours.median:.3f} s, p95 {tail_s:.3f} s (n={len(ours)})")


def judge_pause(readings: Readings) -> Verdict:
    """From the first word of it to the state of the last rank."""
    ours = readings.some(_QUICK, TRAIN_ON, "pause")
    return Verdict(kept=ours.median <= _PAUSE_LIMIT_S, measured=f"median {ours.median:.3f} s (n={len(ours)})")


def judge_share(readings: Readings) -> Verdict:
    """Steps a second while one is missing, beside two thirds of those of all."""
    ours = readings.some(_SLOW, TRAIN_ON, "share")
    return Verdict(kept=ours.median >= _SHARE_LIMIT, measured=f"median {ours.median:.2f} (n={len(ours)})")


def judge_samples(readings: Readings) -> Verdict:
    """Every step has the samples of all ranks."""
    wrong = [number for case in _STEP_S for number in readings.some(case, TRAIN_ON, "wrong").values]
    kept = not any(wrong) and not any(one.contender == TRAIN_ON for one in readings.failures)
    return Verdict(kept=kept, measured=f"{sum(wrong):.0f} steps with other samples, in {len(wrong)} runs")


BENCHMARK = Benchmark(
    name="train_on",
    title="A killed torch rank: the others train on at the same global batch, and a restart",
    method=(
        f"{RANKS} ranks of DistributedDataParallel over gloo on the CPU, {_BATCH} samples a rank, in one case"
        " of 6.25 ms each (slept); while one is missing the others have 4 more each. There is no standby:"
        f" rank {VICTIM} kills itself as a step begins, and a new process has to import torch. *Next step*:"
        " from the kill until both survivors have made one; *all*: until the dead rank has; *pause*: from the"
        " word that it may come until the last rank has the state; *share*: steps a second while one is"
        " missing, of two thirds of those before. Everybody runs the same script, with a save every 10"
        " steps; under torchrun it looks for its newest itself."
    ),
    contenders=(TRAIN_ON, _UNSHARED),
    cases=tuple(_STEP_S),
    metrics=(
        Metric(key="first_step", label="kill → next step of the survivors", unit=Unit.SECONDS),
        Metric(key="all", label="→ of all", unit=Unit.SECONDS),
        Metric(key="pause", label="pause in which the rank joins", unit=Unit.MILLISECONDS),
        Metric(key="share", label="steps while one is missing, of two thirds", unit=Unit.COUNT),
        Metric(key="wrong", label="steps with other samples", unit=Unit.COUNT),
    ),
    promises=(
        Promise(text="kill → survivors' next step: median ≤ 0.12 s, p95 ≤ 0.3 s", judge=judge_time),
        Promise(text="the pause in which a rank joins: median ≤ 0.15 s", judge=judge_pause),
        Promise(text="while one of three is missing ≥ 0.9 of two thirds of the steps", judge=judge_share),
        Promise(text="no sample is lost or comes twice", judge=judge_samples),
    ),
    rounds=15,
    measure=measure,
    missing=missing,
)
