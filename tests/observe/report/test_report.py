"""``faultrun report``: three files that say the same, from a journal alone, however long or broken it is."""

import json
from pathlib import Path

import pytest
from benchmarks.harness.long_journal import Shape, write_journal
from click.testing import CliRunner

from faultrun.cli.report import account_of, report
from faultrun.journal.append import line_of
from faultrun.journal.lines import journal_line
from faultrun.journal.read import event_of, lines
from faultrun.model.events import PlanAdopted
from faultrun.model.run import Phase, Step
from faultrun.model.topology import NodeId, NodeSlots, Topology
from faultrun.observe.account.accountant import Accountant
from faultrun.observe.account.timeline import Spending
from support.stories.story import first_plan, in_phase

FORMS = ("report.html", "report.json", "report.md")


def of_run(folder: Path, *, events: int = 400, workers: int = 4, incidents: int = 5) -> Path:
    write_journal(folder / "journal.jsonl", Shape(events=events, workers=workers, incidents=incidents))
    return folder


def reported(folder: Path, *words: str) -> str:
    done = CliRunner().invoke(report, ["--log_dir", str(folder), *words], standalone_mode=False)
    assert done.exception is None, done.exception
    return done.output


def test_the_generated_journal_is_what_the_supervisor_writes(tmp_path: Path) -> None:
    of_run(tmp_path)
    events = [event_of(line) for line in lines(tmp_path / "journal.jsonl")]
    assert None not in events
    assert len(events) == pytest.approx(400, rel=0.1)


def test_three_files_are_written_and_the_losses_sum_to_the_wall_time(tmp_path: Path) -> None:
    said = reported(of_run(tmp_path))
    assert "5 incidents, 5 restarts" in said
    assert {path.name for path in tmp_path.iterdir()} >= set(FORMS)
    data = json.loads((tmp_path / "report.json").read_text())
    assert set(data["spent"]) == {kind.value for kind in Spending}
    assert sum(data["spent"].values()) == pytest.approx(data["wall_s"], rel=0.01)
    assert [one["number"] for one in data["incidents"]] == [1, 2, 3, 4, 5]
    assert len(data["incarnations"]) == 6


def test_what_a_worker_said_cannot_break_out_of_the_page(tmp_path: Path) -> None:
    of_run(tmp_path)
    path = tmp_path / "journal.jsonl"
    evil = "</script><script>alert(1)</script> | `x`"
    path.write_text(path.read_text().replace("killed by signal 9", evil))
    reported(tmp_path)
    assert "<script" not in (tmp_path / "report.html").read_text()
    assert "<script>alert" not in (tmp_path / "report.md").read_text()
    json.loads((tmp_path / "report.json").read_text())


def test_a_journal_that_is_torn_or_empty_is_reported_as_far_as_it_goes(tmp_path: Path) -> None:
    of_run(tmp_path)
    path = tmp_path / "journal.jsonl"
    whole = path.read_bytes()
    path.write_bytes(b"\0\xff{\n" + whole[: len(whole) // 2])
    data = json.loads(reported(tmp_path, "--json"))
    assert data["ended"] is None
    assert 0 < data["incidents_total"] < 5
    path.write_bytes(b"")
    assert json.loads(reported(tmp_path, "--json"))["wall_s"] == 0
    assert "0 incidents" in reported(tmp_path, "--markdown")


def test_printing_writes_nothing_and_html_goes_where_it_is_told(tmp_path: Path) -> None:
    of_run(tmp_path)
    before = {path.name for path in tmp_path.iterdir()}
    reported(tmp_path, "--json")
    reported(tmp_path, "--markdown")
    assert {path.name for path in tmp_path.iterdir()} == before
    reported(tmp_path, "--html", str(tmp_path / "else.html"))
    assert "<!doctype html>" in (tmp_path / "else.html").read_text()
    assert not (tmp_path / "report.html").exists()


def test_no_journal_is_an_error_that_says_what_to_try(tmp_path: Path) -> None:
    done = CliRunner().invoke(report, ["--log_dir", str(tmp_path)], standalone_mode=False)
    assert str(done.exception).startswith(f"no run can be read in {tmp_path}\n  because: ")
    assert "try:     --log_dir=DIR" in str(done.exception)


def test_whose_journal_is_missing_is_known_by_nodes_and_not_by_names_of_folders(tmp_path: Path) -> None:
    folder = tmp_path / "node_a" / "runs" / "job42"
    folder.mkdir(parents=True)
    of_run(folder)
    nodes = tuple(NodeSlots(node=NodeId(name), slots=2) for name in "ab")
    adopted = PlanAdopted(at_s=900.0, incarnation=6, plan=first_plan(4, topology=Topology(nodes=nodes)))
    with (folder / "journal.jsonl").open("a") as journal:
        journal.write(json.dumps(line_of(adopted, Step(state=in_phase(Phase.PREPARING), why=""), {})) + "\n")
    (folder / "run.json").write_text(json.dumps({"run_id": "job42", "node": "a"}))
    assert json.loads(reported(folder, "--json", "--quiet"))["missing_nodes"] == ["node_b"]


@pytest.mark.long
def test_heartbeats_that_are_passed_over_are_counted_and_change_no_second(tmp_path: Path) -> None:
    of_run(tmp_path, events=3000, incidents=4)
    fast = account_of(tmp_path)
    accountant = Accountant()
    for data in lines(tmp_path / "journal.jsonl"):
        line = journal_line(data)
        assert line is not None
        accountant.take(line)
    slow = accountant.account()
    assert fast.events == slow.events
    assert fast.faults == slow.faults
    assert fast.spent == pytest.approx(slow.spent)


def test_the_report_says_what_the_faults_would_have_cost_elsewhere(tmp_path: Path) -> None:
    said = reported(of_run(tmp_path), "--assume=notice=2h").splitlines()
    told = json.loads((tmp_path / "report.json").read_text())["savings"]
    assert told["text"] in said
    assert told["assumptions"]["notice_s"] == 7200
    assert len(told["each"]) == told["interruptions"] > 0
    assert told["by_hand"]["total_s"] == pytest.approx(
        sum(one["by_hand"]["total_s"] for one in told["each"]), abs=0.1
    )
    shown = (tmp_path / "report.md").read_text()
    assert "## What it saved" in shown
    assert "2 h until a person notices" in shown
    assert "| by hand |" in shown


def test_a_run_without_a_fault_says_nothing_of_savings(tmp_path: Path) -> None:
    said = reported(of_run(tmp_path, incidents=0))
    assert "saved" not in said
    assert "What it saved" not in (tmp_path / "report.md").read_text()
