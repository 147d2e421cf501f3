"""What a launcher costs while nothing happens, and how long it takes to have everybody running."""

from collections.abc import Callable, Mapping

from benchmarks.harness import procfs
from benchmarks.harness.benchmark import OURS, Attempt, Benchmark, Metric, Promise, Unit, Verdict
from benchmarks.harness.launched import ROOT, Launched
from benchmarks.harness.launchers import Job, launcher, missing
from benchmarks.harness.notes import select
from benchmarks.harness.series import NotRun, Readings

WATCHED_S = 8.0
"""Longer than any launcher's polling period; the kernel's own unit of 10 ms is 0.13 % of it."""
LIMIT_MIB = 32.0
LIMIT_CPU = 0.005
_PROGRAM = ("python", "-S", str(ROOT / "benchmarks" / "jobs" / "idle.py"))
_START_S = 90.0
_SETTLE_S = 1.0


def measure(attempt: Attempt) -> Mapping[str, list[float]]:
    """Start idle workers, let the launcher settle, watch it for a while."""
    workers = int(attempt.case.split()[0])
    contender = launcher(attempt.contender)
    job = Job(workers=workers, program=_PROGRAM)
    with Launched(contender.command(job), attempt.folder, contender.environ) as run:

        def all_run() -> bool:
            return sum(note.rank >= 0 for note in select(run.notes, "running")) == workers

        run.wait_for(all_run, within_s=_START_S, what=f"{workers} workers running")
        running = [note for note in select(run.notes, "running") if note.rank >= 0]
        run.stay(_SETTLE_S)
        launchers = run.processes() - {note.pid for note in running}
        before_s = sum(procfs.cpu_s(pid) for pid in launchers)
        run.stay(WATCHED_S)
        used_s = sum(procfs.cpu_s(pid) for pid in launchers) - before_s
        measured = {
            "rss": [procfs.rss_mib(run.pid)],
            "pss": [sum(procfs.pss_mib(pid) for pid in launchers)],
            "processes": [float(len(launchers))],
            "cpu": [used_s / WATCHED_S],
            "spawn": [max(note.at_s for note in running) - run.began_s],
        }
        if not contender.restarts:
            run.kill_all()
    return measured


def judge_memory(readings: Readings) -> Verdict:
    """The largest RSS of the supervisor in any case."""
    return _worst(readings, "rss", LIMIT_MIB, lambda value: f"{value:.1f} MiB")


def judge_cpu(readings: Readings) -> Verdict:
    """The largest share of a core in any case."""
    return _worst(readings, "cpu", LIMIT_CPU, lambda value: f"{value:.2%} of a core")


def _worst(readings: Readings, metric: str, limit: float, words: Callable[[float], str]) -> Verdict:
    worst = [
        (series.most, case)
        for (case, contender, key), series in readings.samples.items()
        if contender == OURS and key == metric
    ]
    if not worst:
        raise NotRun
    value, case = max(worst)
    return Verdict(kept=value < limit, measured=f"at most {words(value)}, with {case}")


BENCHMARK = Benchmark(
    name="supervisor",
    title="What the launcher costs",
    method=(
        "Idle workers (`python -S`); every process of the launch that is not a worker counts as the"
        " launcher's. RSS is the launcher's own process, PSS all of them together. Processor time is the"
        f" kernel's account over {WATCHED_S:g} s. msrun runs the user's script once more as scheduler: here"
        " that is as small as a worker, with MindSpore it is a process with MindSpore in it."
    ),
    contenders=(OURS, "torchrun", "msrun"),
    cases=("2 workers", "16 workers", "64 workers"),
    metrics=(
        Metric(key="rss", label="RSS of the launcher", unit=Unit.MEBIBYTES),
        Metric(key="pss", label="PSS, with its helpers", unit=Unit.MEBIBYTES),
        Metric(key="processes", label="processes of the launcher", unit=Unit.COUNT),
        Metric(key="cpu", label="processor time", unit=Unit.PERCENT),
        Metric(key="spawn", label="command → last worker runs", unit=Unit.SECONDS),
    ),
    promises=(
        Promise(text="supervisor: RSS < 32 MiB", judge=judge_memory),
        Promise(text="supervisor: < 0.5 % of a core", judge=judge_cpu),
    ),
    rounds=3,
    measure=measure,
    missing=missing,
)
