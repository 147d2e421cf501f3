"""``python -m benchmarks.campaigns.day``: a day of faults compressed, many small trainings killed at random.

Each job dies ``--lives`` times (killed, raising, leaving, memory faults), at
steps drawn from the seed, and must come to its end with the right weights.
Counts wrong resumes, orphans, supervisors that hang, and the growth of the
supervisor's memory between its tenth life and its last.
"""

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.harness import machine
from benchmarks.harness.procfs import rss_mib, tagged
from faultrun.testing.fault import CHAOS_VARIABLE

_ROOT = Path(__file__).resolve().parents[2]
_JOB = _ROOT / "benchmarks" / "jobs" / "chaos.py"
_KINDS = "kill+raise+exit+segv"
_MEAN_STEPS = 5
_LIFE_S = 60.0
_SETTLED_LIVES = 10
_FLAT_MIB = 3.0
_LOOK_S = 0.1
_FINAL = re.compile(r"^final step (\d+) ", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """How one training ended. ``rss_mib`` is the supervisor's memory, one value a life."""

    number: int
    faults: int
    restarts: int
    broken: tuple[str, ...]
    rss_mib: tuple[float, ...]
    took_s: float


def main(argv: Sequence[str] | None = None) -> int:
    """Run the day."""
    asked = read_options(argv)
    jobs: list[Job] = []
    print(f"{asked.faults} faults, seed {asked.seed}, {asked.lives} a job, {asked.workers} ranks\n")
    print("| job | faults | restarts | supervisor MiB (settled, last) | took | |\n|---|---|---|---|---|---|")
    while sum(job.faults for job in jobs) < asked.faults:
        lives = min(asked.lives, asked.faults - sum(job.faults for job in jobs))
        jobs.append(run(len(jobs), asked.seed + len(jobs), lives, asked.workers))
        print(row(jobs[-1]), flush=True)
    print(f"\n{summary(jobs)}")
    return 1 if any(job.broken for job in jobs) else 0


def run(number: int, seed: int, lives: int, workers: int) -> Job:
    """One training of ``lives`` faults and a last life without."""
    folder = Path(tempfile.mkdtemp(prefix=f"day-{number}-"))
    began_s = time.monotonic()
    with (folder / "console.txt").open("wb") as console:
        process = subprocess.Popen(
            [sys.executable, "-m", "faultrun", *_options(workers), str(_JOB), *_job_options(lives)],
            cwd=folder,
            env={
                **os.environ,
                CHAOS_VARIABLE: f"random:seed={seed},mean={_MEAN_STEPS},kinds={_KINDS},lives={lives}",
                "PYTHONPATH": f"{_ROOT}:{_ROOT}/launcher",
            },
            stdin=subprocess.DEVNULL,
            stdout=console,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    rss = _watched(process, folder / "faultrun_log", _LIFE_S * (lives + 1))
    broken = tuple(_broken(folder / "faultrun_log", process.returncode, lives, rss))
    job = Job(
        number=number,
        faults=lives,
        restarts=len(list((folder / "faultrun_log").glob("incarnation_*"))) - 1,
        broken=(*broken, f"see {folder}") if broken else (),
        rss_mib=rss,
        took_s=time.monotonic() - began_s,
    )
    if not broken:
        shutil.rmtree(folder)
    return job


def _options(workers: int) -> tuple[str, ...]:
    return (
        "--framework=plain",
        f"--worker_num={workers}",
        "--checkpoint_dir=ckpt",
        "--backoff=10ms..20ms",
        "--max_restarts=10",
    )


def _job_options(lives: int) -> tuple[str, ...]:
    """So many steps that every life has its fault before the end."""
    return (f"--steps={2 * _MEAN_STEPS * (lives + 1)}", "--step_s=0.002", "--save_every=7")


def _watched(process: "subprocess.Popen[bytes]", logs: Path, within_s: float) -> tuple[float, ...]:
    """The supervisor's memory at the start of each life, until its end; killed when it takes too long."""
    rss: list[float] = []
    deadline_s = time.monotonic() + within_s
    while process.poll() is None:
        if (logs / f"incarnation_{len(rss)}").exists():
            rss.append(rss_mib(process.pid))
        if time.monotonic() > deadline_s:
            process.kill()
        time.sleep(_LOOK_S)
    return tuple(rss)


def _broken(logs: Path, code: int, lives: int, rss: tuple[float, ...]) -> list[str]:
    wrong = []
    if code != 0:
        wrong.append("the supervisor hung" if code < 0 else f"exit code {code}")
    texts = {log: log.read_text(errors="replace") for log in logs.glob("incarnation_*/worker_*.log")}
    if any("WRONG" in text for text in texts.values()):
        wrong.append("wrong resume")
    if code == 0 and not all(_FINAL.search(texts[log]) for log in texts if log.parent == _last(logs)):
        wrong.append("a rank did not come to the end")
    incidents = len(list(logs.glob("incident_*.json")))
    if incidents != lives:
        wrong.append(f"{incidents} incidents")
    orphans = tagged("FAULTRUN_BOOT_ID", json.loads((logs / "run.json").read_text())["boot"])
    if orphans:
        wrong.append(f"orphans {sorted(orphans)}")
    if len(rss) > 2 * _SETTLED_LIVES and rss[-1] - rss[_SETTLED_LIVES] > _FLAT_MIB:
        wrong.append(f"memory grew from {rss[_SETTLED_LIVES]:.1f} to {rss[-1]:.1f} MiB")
    return wrong


def _last(logs: Path) -> Path:
    return max(logs.glob("incarnation_*"), key=lambda folder: int(folder.name.rpartition("_")[2]))


def row(job: Job) -> str:
    """One line of the table."""
    settled = job.rss_mib[min(_SETTLED_LIVES, len(job.rss_mib) - 1)] if job.rss_mib else 0.0
    last = job.rss_mib[-1] if job.rss_mib else 0.0
    verdict = "kept" if not job.broken else f"**{'; '.join(job.broken)}**"
    cells = (job.number, job.faults, job.restarts, f"{settled:.1f}, {last:.1f}", f"{job.took_s:.0f} s")
    return f"| {' | '.join(map(str, cells))} | {verdict} |"


def summary(jobs: Sequence[Job]) -> str:
    """What the day proved."""
    fine = [job for job in jobs if not job.broken]
    growth = [job.rss_mib[-1] - job.rss_mib[min(_SETTLED_LIVES, len(job.rss_mib) - 1)] for job in fine]
    lines = [
        f"{sum(job.faults for job in fine)} of {sum(job.faults for job in jobs)} faults in {len(fine)} of"
        f" {len(jobs)} jobs that kept every promise: no wrong resume, no orphan, no hanging supervisor",
        f"seconds a fault: {sum(job.took_s for job in jobs) / max(1, sum(job.faults for job in jobs)):.2f}",
    ]
    if growth:
        typical = f"{statistics.median(growth):+.2f}"
        lines.append(f"growth of the supervisor: median {typical} MiB, at most {max(growth):+.2f}")
    lines.append(f"load average {machine.load()} on {machine.describe()['cores']} cores")
    return "\n".join(lines)


def read_options(argv: Sequence[str] | None) -> argparse.Namespace:
    """How long the day is."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.campaigns.day", description=__doc__)
    parser.add_argument("--faults", type=int, default=500)
    parser.add_argument("--lives", type=int, default=50, help="faults in one job")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
