"""What measures the others is measured itself: statistics, fairness, honest tables, nothing left running."""

import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from benchmarks import catalog
from benchmarks.harness import journal, machine, report
from benchmarks.harness.benchmark import Attempt, Benchmark, Metric, NotMeasured, Promise, Unit, Verdict
from benchmarks.harness.conduct import conduct
from benchmarks.harness.launched import Launched, Overdue
from benchmarks.harness.launchers import WARM
from benchmarks.harness.ledger import Ledger
from benchmarks.harness.notes import select
from benchmarks.harness.plot import draw
from benchmarks.harness.readme import PART, marks, table, written_between
from benchmarks.harness.report import Circumstances
from benchmarks.harness.series import Readings, Series

from support.places import ROOT

IDLE = ROOT / "benchmarks" / "jobs" / "idle.py"
PARENT = (
    "import signal, subprocess, sys\n"
    "from benchmarks.jobs.tell import Teller\n"
    "subprocess.Popen([sys.executable, sys.argv[1]], start_new_session=True)\n"
    "Teller()('running')\n"
    "signal.pause()\n"
)
"""Has a child that no signal to its group would reach."""


def quiet(line: str) -> None:
    del line


def a_benchmark(seen: list[str]) -> Benchmark:
    def measure(attempt: Attempt) -> Mapping[str, list[float]]:
        seen.append(attempt.contender)
        assert not list(attempt.folder.iterdir())
        if attempt.contender == "broken":
            raise NotMeasured("it fell over")
        return {"took": [0.5 if attempt.contender == "ours" else 2.0]}

    def judge(readings: Readings) -> Verdict:
        return Verdict(kept=readings.of("a", "ours", "took").median < 0.1, measured="0.5 s")

    return Benchmark(
        name="toy",
        title="A toy",
        method="It is not real.",
        contenders=("ours", "theirs", "broken", "absent"),
        cases=("a",),
        metrics=(Metric(key="took", label="took", unit=Unit.SECONDS),),
        promises=(Promise(text="under 0.1 s", judge=judge),),
        rounds=2,
        measure=measure,
        missing=lambda name: "it is not installed" if name == "absent" else "",
    )


def test_a_percentile_is_never_better_than_what_was_seen() -> None:
    series = Series(values=tuple(float(number) for number in range(1, 31)))
    assert series.percentile(99) == 30.0
    assert series.percentile(50) == 15.0
    assert Series(values=(4.0,)).percentile(99) == 4.0


def test_every_contender_goes_first_and_last_over_the_rounds() -> None:
    seen: list[str] = []
    conduct(a_benchmark(seen), rounds=6, cases=["a"], say=quiet)
    rounds = [seen[start : start + 3] for start in range(0, len(seen), 3)]
    assert {order[0] for order in rounds} == {order[-1] for order in rounds} == {"ours", "theirs", "broken"}


def test_what_was_cut_off_goes_on_where_it_was_and_a_line_that_was_cut_is_measured_again(
    tmp_path: Path,
) -> None:
    path = tmp_path / "attempts" / "toy.jsonl"
    seen: list[str] = []
    benchmark = a_benchmark(seen)
    conduct(benchmark, rounds=2, cases=["a"], say=quiet, ledger=Ledger(path), until_s=0.0)
    assert seen == [], "out of time before it began"
    conduct(benchmark, rounds=1, cases=["a"], say=quiet, ledger=Ledger(path))
    assert seen == ["ours", "theirs", "broken"]
    path.write_text(path.read_text(encoding="utf-8")[:-9], encoding="utf-8")
    with path.open("a", encoding="utf-8") as file:
        file.write("\n")
    seen.clear()
    readings = conduct(benchmark, rounds=2, cases=["a"], say=quiet, ledger=Ledger(path))
    assert sorted(seen) == ["broken", "broken", "ours", "theirs"]
    assert [len(readings.of("a", name, "took")) for name in ("ours", "theirs")] == [2, 2]
    assert [failure.why for failure in readings.failures] == ["it fell over"] * 2
    assert readings.missing == {"absent": "it is not installed"}


def test_the_readme_gets_a_row_for_each_who_was_measured_and_a_plot(tmp_path: Path) -> None:
    def measured(name: str, *values: float) -> dict[tuple[str, str, str], Series]:
        return {("2 workers", name, "first_step"): Series(values=values)}

    first_try = {("2 workers", "torchrun", "first_try"): Series(values=(1.0, 0.0))}
    torch = Readings(samples={**measured(WARM, 0.08, 0.1, 0.09), **measured("torchrun", 1.9), **first_try})
    mindspore = Readings(samples=measured("msrun", 42.04))
    text = table(torch, mindspore, {"cores": "2"}, (0.5, 1.25))
    rows = [line for line in text.splitlines() if line.startswith("|")][2:]
    assert [row.count("|") for row in rows] == [6] * 3
    assert "| 0.09 s (n=3) |" in rows[0]
    assert "| torchrun | 1.90 s (n=1) | 1 of 2 |" in rows[1]
    assert "42.0 s (n=1)" in rows[2]
    assert "load 0.5 to 1.2" in text
    begin, end = marks(PART)
    page = f"before\n{begin}\nold\n{end}\nafter\n"
    assert written_between(page, PART, "new") == f"before\n{begin}\nnew\n{end}\nafter\n"
    with pytest.raises(ValueError, match="the page has no"):
        written_between("nothing", PART, "new")
    draw(torch, mindspore, tmp_path)
    assert (tmp_path / "restart.png").read_bytes()[1:4] == b"PNG"
    assert "faultrun, standbys" in (tmp_path / "restart.svg").read_text(encoding="utf-8")


def test_a_page_says_ratios_failures_who_is_missing_and_promises_that_are_not_kept(tmp_path: Path) -> None:
    benchmark = a_benchmark([])
    readings = conduct(benchmark, rounds=2, cases=["a"], say=quiet)
    around = Circumstances(
        machine=machine.describe(), loads=("0.1", "0.2"), rounds=2, cases=["a"], remarks=["It rained."]
    )
    page = report.write(tmp_path, benchmark, readings, around).read_text(encoding="utf-8")
    assert "2.00 s [2.00–2.00] n=2 (4.00×)" in page  # noqa: RUF001  as it is printed
    assert "\nIt rained.\n" in page
    assert "* without absent: it is not installed" in page
    assert "* not measured: broken, a: it fell over (2 times)" in page
    assert "| under 0.1 s | 0.5 s | **not kept** |" in page
    promises = (tmp_path / "promises.md").read_text(encoding="utf-8")
    assert "| under 0.1 s | 0.5 s | **not kept** | [toy](toy.md) |" in promises


def test_a_restart_that_did_not_come_counts_against_its_launcher() -> None:
    assert report.shown(Series(values=(1.0, 0.0, 1.0)), Unit.SUCCESSES) == "2 of 3"
    assert report.shown(Series(), Unit.SECONDS) == "-"


def test_the_answer_to_a_stop_is_not_taken_for_the_answer_to_a_death() -> None:
    def line(event: str, life: int, run_s: float) -> dict[str, object]:
        return {"event": event, "incarnation": life, "run_s": run_s}

    death = [line("WorkerExit", 0, 5.0), line("GaspRequested", 0, 5.002), line("WorkerExit", 0, 5.1)]
    stop = [line("GaspRequested", 1, 9.0), line("WorkerExit", 1, 9.5)]
    assert journal.report_to_signals_s([*death, *stop]) == pytest.approx([0.002])


def test_nothing_of_a_launch_outlives_its_block(tmp_path: Path) -> None:
    with Launched((sys.executable, "-c", PARENT, str(IDLE)), tmp_path, {}) as run:
        run.wait_for(lambda: len(select(run.notes, "running")) == 2, within_s=20, what="both run")
        pids = {note.pid for note in run.notes}
        assert run.processes() == pids
        run.watch(pids)
    assert run.processes() == set()
    assert run.returncode is not None


def test_waiting_ends_with_the_launcher_and_says_what_it_said(tmp_path: Path) -> None:
    began_s = time.monotonic()
    command = (sys.executable, "-c", "raise SystemExit('no such option')")
    told = pytest.raises(Overdue, match="ended with 1 before; it said: no such option")
    with told, Launched(command, tmp_path, {}) as run:
        run.wait_for(lambda: False, within_s=60, what="a worker")
    assert time.monotonic() - began_s < 30


def test_every_benchmark_of_the_catalog_is_whole() -> None:
    for benchmark in catalog.load(catalog.names()):
        keys = [metric.key for metric in benchmark.metrics]
        assert len(set(keys)) == len(keys)
        assert benchmark.rounds >= 1
        for promise in benchmark.promises:
            assert promise.verdict(Readings()).kept is None, f"{promise.text}: nothing measured, nothing kept"
        assert replace(benchmark, rounds=1).cases
