"""From the death of a worker to the survivors' signal, to their end, and to new workers."""

import os
import random
import signal
from collections.abc import Mapping

from benchmarks.harness import journal
from benchmarks.harness.benchmark import OURS, Attempt, Benchmark, Metric, NotMeasured, Promise, Unit, Verdict
from benchmarks.harness.launched import ROOT, Launched
from benchmarks.harness.launchers import Job, Launcher, launcher, missing
from benchmarks.harness.notes import select
from benchmarks.harness.series import Readings

KILLS = 8
"""Kills in one launch; a launcher that does not restart gets one."""
LIMIT_S = 0.010
_PROGRAM = ("python", "-S", str(ROOT / "benchmarks" / "jobs" / "idle.py"))
_START_S = 90.0
_ANSWER_S = 45.0
_PHASE_S = 0.3


def measure(attempt: Attempt) -> Mapping[str, list[float]]:
    """Kill one worker after another in one launch, each after a random while."""
    workers = int(attempt.case.split()[0])
    contender = launcher(attempt.contender)
    kills = KILLS if contender.restarts else 1
    job = Job(workers=workers, program=_PROGRAM, restarts=kills, recovery=("--backoff=0s..0s",))
    rng = random.Random(f"{attempt.case} {attempt.round}")
    measured: dict[str, list[float]] = {}
    with Launched(contender.command(job), attempt.folder, contender.environ) as run:
        for life in range(kills):
            _wait_until_all_run(run, workers, life)
            # A launcher that polls must not always be hit at the same moment between two looks.
            run.stay(rng.uniform(0.0, _PHASE_S))
            for metric, value in _kill_one(run, contender, (workers, life, rng.randrange(workers))).items():
                measured.setdefault(metric, []).append(value)
        if not contender.restarts:
            run.kill_all()  # it would wait half a minute for its scheduler
    if attempt.contender == OURS:
        measured["decided"] = journal.report_to_signals_s(journal.read(attempt.folder))
    return measured


def _wait_until_all_run(run: Launched, workers: int, life: int) -> None:
    def all_run() -> bool:
        return sum(note.rank >= 0 for note in select(run.notes, "running", life=life)) == workers

    run.wait_for(all_run, within_s=_START_S, what=f"{workers} workers running in life {life}")


def _kill_one(run: Launched, contender: Launcher, what: tuple[int, int, int]) -> dict[str, float]:
    workers, life, victim = what
    pids = {note.rank: note.pid for note in select(run.notes, "running", life=life)}
    survivors = [rank for rank in range(workers) if rank != victim]
    run.watch(pids[rank] for rank in survivors)
    os.kill(pids[victim], signal.SIGUSR1)
    run.wait_for(
        lambda: all(pids[rank] in run.ends for rank in survivors),
        within_s=_ANSWER_S,
        what="the end of the survivors",
    )
    (dying,) = select(run.notes, "dying", life=life)
    measured = {"gone": max(run.ends[pids[rank]] for rank in survivors) - dying.at_s}
    if contender.signals:
        heard = [note.at_s - dying.at_s for note in select(run.notes, "signalled", life=life)]
        if len(heard) != len(survivors):
            raise NotMeasured(f"only {len(heard)} of {len(survivors)} survivors were signalled")
        measured |= {"first_signal": min(heard), "last_signal": max(heard)}
    if contender.restarts:
        _wait_until_all_run(run, workers, life + 1)
        born = [note.at_s - dying.at_s for note in select(run.notes, "running", life=life + 1)]
        measured |= {"first_new": min(born), "last_new": max(born)}
    return measured


def judge(readings: Readings) -> Verdict:
    """p99 of report -> last signal, by the journal, with 4 and with 64 workers.

    The survivors' own clocks are shown beside it and not judged: with more
    workers than cores the last of them gets to run when the others have.
    """
    words, verdicts = [], []
    for case in ("4 workers", "64 workers"):
        series = readings.some(case, OURS, "decided")
        p50, p99 = series.percentile(50), series.percentile(99)
        words.append(f"{case}: p50 {p50 * 1e3:.2f} ms, p99 {p99 * 1e3:.2f} ms of {len(series)} kills")
        verdicts.append(p99 < LIMIT_S)
    return Verdict.of_all(verdicts, words)


BENCHMARK = Benchmark(
    name="detection",
    title="From the death of a worker to the survivors' signal",
    method=(
        "Workers that do nothing (`python -S`). The victim writes the time and sends itself SIGKILL; a"
        " survivor writes the time when SIGTERM reaches it. msrun never asks, it kills: for it there is"
        " only the moment when all survivors are gone. *new* are the first lines of Python that the"
        " restarted workers run. The victim and the moment, within 0.3 s, are drawn by chance. *decided*"
        " is faultrun's journal: from the kernel's report of the death to the last signal sent."
    ),
    contenders=(OURS, "torchrun", "msrun"),
    cases=("2 workers", "4 workers", "16 workers", "64 workers"),
    metrics=(
        Metric(key="decided", label="reported → all signalled", unit=Unit.MILLISECONDS),
        Metric(key="first_signal", label="kill → first survivor signalled", unit=Unit.MILLISECONDS),
        Metric(key="last_signal", label="kill → last survivor signalled", unit=Unit.MILLISECONDS),
        Metric(key="gone", label="kill → survivors gone", unit=Unit.MILLISECONDS),
        Metric(key="first_new", label="kill → first new worker", unit=Unit.MILLISECONDS),
        Metric(key="last_new", label="kill → last new worker", unit=Unit.MILLISECONDS),
    ),
    promises=(
        Promise(
            text="worker death (kernel reports it) → all survivors signalled: p99 < 10 ms, 4 and 64 workers",
            judge=judge,
        ),
    ),
    rounds=4,
    measure=measure,
    missing=missing,
)
