"""What it takes to look at a run: report and status of a journal of a million events, next to reading it."""

import functools
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from benchmarks.harness.benchmark import OURS, Attempt, Benchmark, Metric, NotMeasured, Promise, Unit, Verdict
from benchmarks.harness.long_journal import Shape, write_journal
from benchmarks.harness.series import Readings

LEAST = "least"
REPORT = "report of 1,000,000 events, 10,000 incidents"
STATUS = "status of the same"
RANKS = "report of 1,000 ranks, 200 incidents"

_SHAPES = {
    REPORT: Shape(events=1_000_000, workers=8, incidents=10_000),
    STATUS: Shape(events=1_000_000, workers=8, incidents=10_000),
    RANKS: Shape(events=300_000, workers=1000, incidents=200),
}
_REPORT_LIMIT_S, _REPORT_LIMIT_MIB, _STATUS_LIMIT_S = 60.0, 1024.0, 1.0


def measure(attempt: Attempt) -> Mapping[str, list[float]]:
    """Look at the journal with a process of its own."""
    journal = attempt.folder / "journal.jsonl"
    written = _written(_SHAPES[attempt.case])
    shutil.copytree(written, attempt.folder, copy_function=os.link, dirs_exist_ok=True)
    if attempt.contender == LEAST:
        return _read_all(journal) if attempt.case != STATUS else _read_end(journal)
    verb = ("status",) if attempt.case == STATUS else ("report", "--quiet")
    began_s = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "faultrun", *verb, "--log_dir", str(attempt.folder)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise NotMeasured(f"faultrun {verb[0]} ended with {status}")
    took_s = time.perf_counter() - began_s
    used_s = usage.ru_utime + usage.ru_stime
    return {"took": [took_s], "processor": [used_s], "memory": [usage.ru_maxrss / 1024]}


@functools.cache
def _written(shape: Shape) -> Path:
    """A log_dir with such a journal, written once for all attempts; it goes when the benchmark ends."""
    folder = tempfile.TemporaryDirectory(prefix="bench-journal-")
    _kept.append(folder)
    write_journal(Path(folder.name) / "journal.jsonl", shape)
    return Path(folder.name)


_kept: list[tempfile.TemporaryDirectory[str]] = []


def _read_all(journal: Path) -> dict[str, list[float]]:
    """Every line as JSON, and forget it."""
    began_s, used_s = time.perf_counter(), time.process_time()
    with journal.open("rb") as file:
        for line in file:
            json.loads(line)
    return {
        "took": [time.perf_counter() - began_s],
        "processor": [time.process_time() - used_s],
        "memory": [_own_peak_mib()],
    }


def _read_end(journal: Path) -> dict[str, list[float]]:
    """A Python that starts and reads the last page."""
    code = f"f=open({str(journal)!r},'rb'); f.seek(-4096,2); f.read()"
    began_s = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True)
    return {"took": [time.perf_counter() - began_s]}


def _own_peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def judge_report(readings: Readings) -> Verdict:
    """Median time and memory of the report."""
    took, memory = readings.some(REPORT, OURS, "took"), readings.of(REPORT, OURS, "memory")
    kept = took.median < _REPORT_LIMIT_S and memory.median < _REPORT_LIMIT_MIB
    return Verdict(kept=kept, measured=f"{took.median:.1f} s, {memory.median:.0f} MiB")


def judge_status(readings: Readings) -> Verdict:
    """Median time of a status, Python's start included."""
    took, used = readings.some(STATUS, OURS, "took"), readings.of(STATUS, OURS, "processor")
    measured = f"{took.median:.2f} s, {used.median:.2f} s of a processor"
    return Verdict(kept=took.median < _STATUS_LIMIT_S, measured=measured)


BENCHMARK = Benchmark(
    name="journals",
    title="A journal of a million events: report and status",
    method=(
        "The journal of a run that never was (`harness/long_journal.py`) is read from the page cache. "
        "`least` is what no program can do without: each line through Python's JSON; for status a Python "
        "that starts and reads the last page."
    ),
    contenders=(OURS, LEAST),
    cases=(REPORT, STATUS, RANKS),
    metrics=(
        Metric(key="took", label="took", unit=Unit.SECONDS),
        Metric(key="processor", label="processor", unit=Unit.SECONDS),
        Metric(key="memory", label="peak", unit=Unit.MEBIBYTES),
    ),
    promises=(
        Promise(text="report of 1,000,000 events < 60 s and < 1 GiB", judge=judge_report),
        Promise(text="status of it < 1 s", judge=judge_status),
    ),
    rounds=1,
    measure=measure,
)
