"""A rank of a torch training is killed: survivors that keep their processes, beside a restart by torchrun."""

from collections.abc import Mapping

from benchmarks.harness.benchmark import Attempt, Benchmark, Metric, Promise, Unit, Verdict
from benchmarks.harness.launched import ROOT, Launched
from benchmarks.harness.launchers import STAY, Job, launcher, missing
from benchmarks.harness.notes import Note, select
from benchmarks.harness.one_kill import SIGNAL, one_kill
from benchmarks.harness.series import Readings

RANKS, VICTIM, STEPS_BEFORE = 3, 1, 36
_CASE = f"{RANKS} ranks of DDP"
_BACK_S = 75.0
_TORCHRUN, _UNSHARED = "torchrun", "torchrun, unshared store"
_MEDIAN_LIMIT_S, _TAIL_LIMIT_S, _SHARE_LIMIT = 0.15, 0.5, 1 / 20
_PARTS = {"detect": "heard", "decide": "join", "regroup": "formed", "restore": "restored"}
"""Each ends as the last rank tells this."""


def job() -> Job:
    """The same script, fault and checkpoint interval for everybody."""
    script = str(ROOT / "benchmarks" / "jobs" / "stay_ddp.py")
    fault = (f"--kill={VICTIM}:{STEPS_BEFORE}:before", f"--kill_once={SIGNAL}")
    return Job(
        workers=RANKS,
        program=(script, "--steps=1000000", "--save_every=10", *fault),
        recovery=("--checkpoint_dir=checkpoints",),
        for_others=("--find_newest",),
    )


def measure(attempt: Attempt) -> Mapping[str, list[float]]:
    """One run with one kill, once everybody trains and a newcomer waits for each rank's place."""
    contender = launcher(attempt.contender)
    with Launched(contender.command(job()), attempt.folder, contender.environ) as run:
        standbys = RANKS if attempt.contender == STAY else 0
        dying, _ = one_kill(run, attempt.folder, steps=STEPS_BEFORE, standbys=standbys, state="parked")
        run.wait_for(
            lambda: len(_first_steps(run.notes, dying)) == RANKS, within_s=_BACK_S, what="all training again"
        )
        return _timeline(run.notes, dying)


def _first_steps(notes: list[Note], dying: Note) -> dict[int, Note]:
    """Of each rank since the kill. Nobody can finish the step in which the victim died without it."""
    found: dict[int, Note] = {}
    for note in select(notes, "step"):
        if note.at_s > dying.at_s:
            found.setdefault(note.rank, note)
    return found


def _timeline(notes: list[Note], dying: Note) -> dict[str, list[float]]:
    first = _first_steps(notes, dying)
    before = {note.rank: note.pid for note in select(notes, "step") if note.at_s < dying.at_s}
    done = max(int(note.number) for note in select(notes, "step") if note.at_s < dying.at_s)
    measured = {"first_step": [max(note.at_s for note in first.values()) - dying.at_s]}
    for part, word in _PARTS.items():
        told = [note.at_s for note in select(notes, word) if note.at_s > dying.at_s]
        if told:
            measured[part] = [max(told) - dying.at_s]
    stayed = all(first[rank].pid == pid for rank, pid in before.items() if rank != VICTIM)
    again = done + 1 - min(int(note.number) for note in first.values())
    return {**measured, "stayed": [float(stayed)], "lost": [float(again)]}


def judge_share(readings: Readings) -> Verdict:
    """Our median against torchrun's, in the form in which its first restart works."""
    ours, rival = (readings.some(_CASE, name, "first_step") for name in (STAY, _UNSHARED))
    share = ours.median / rival.median
    words = f"{ours.median:.3f} s, 1/{1 / share:.0f} of {rival.median:.2f} s (n={len(ours)})"
    return Verdict(kept=share <= _SHARE_LIMIT, measured=words)


def judge_time(readings: Readings) -> Verdict:
    """Our median and 95th percentile."""
    ours = readings.some(_CASE, STAY, "first_step")
    tail_s = ours.percentile(95)
    kept = ours.median <= _MEDIAN_LIMIT_S and tail_s <= _TAIL_LIMIT_S
    return Verdict(kept=kept, measured=f"median {ours.median:.3f} s, p95 {tail_s:.3f} s (n={len(ours)})")


def judge_stayed(readings: Readings) -> Verdict:
    """Survivors' processes are the same, and no finished step was done again."""
    stayed, lost = (readings.some(_CASE, STAY, name).values for name in ("stayed", "lost"))
    kept = all(stayed) and not any(lost) and not any(one.contender == STAY for one in readings.failures)
    return Verdict(kept=kept, measured=f"{sum(stayed):.0f} of {len(stayed)}, {sum(lost):.0f} steps again")


BENCHMARK = Benchmark(
    name="stay",
    title="A killed torch rank: survivors that stay, and a restart",
    method=(
        f"{RANKS} ranks of DistributedDataParallel over gloo under the SDK, a save every 10 steps;"
        f" rank {VICTIM} kills itself when it is told to, under faultrun once a newcomer is parked for each"
        " rank. Everybody runs the same script; under torchrun it looks for its newest save itself. All times"
        " are from the kill to the last rank: *detect* survivors were told, *decide* they know the next one,"
        " *regroup* it is formed, *restore* all have the common state, *first step* all have made one."
    ),
    contenders=(STAY, _TORCHRUN, _UNSHARED),
    cases=(_CASE,),
    metrics=(
        Metric(key="detect", label="kill → detect", unit=Unit.MILLISECONDS),
        Metric(key="decide", label="→ decide", unit=Unit.MILLISECONDS),
        Metric(key="regroup", label="→ regroup", unit=Unit.MILLISECONDS),
        Metric(key="restore", label="→ restore", unit=Unit.MILLISECONDS),
        Metric(key="first_step", label="→ first step of all", unit=Unit.SECONDS),
        Metric(key="lost", label="steps done again", unit=Unit.COUNT),
        Metric(key="stayed", label="survivors kept their processes", unit=Unit.SUCCESSES),
    ),
    promises=(
        Promise(text="survivors train again in ≤ 1/20 of torchrun's median", judge=judge_share),
        Promise(text="kill → first step of all: median ≤ 0.15 s, p95 ≤ 0.5 s", judge=judge_time),
        Promise(text="survivors keep their processes, no finished step again", judge=judge_stayed),
    ),
    rounds=15,
    measure=measure,
    missing=missing,
)
