"""Everything that tells of a run, held against its raw journal: one thing has one number, in all places.

Those who are asked here read the files of a log_dir, as they do for people; what a run printed and
announced by itself can be given as well.
"""

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from faultrun.cli.report import account_of, summary
from faultrun.cli.status.gather import gather
from faultrun.core.humanize import percent, several, span
from faultrun.journal.lines import journal_lines
from faultrun.journal.logdir import read_record
from faultrun.model.spec.run_spec import RestartPolicy
from faultrun.observe.outlets.messages import Announcer
from faultrun.observe.outlets.prometheus import Exporter
from faultrun.observe.report.document import document
from faultrun.observe.status.ranks import Pace
from faultrun.observe.status.status import document as status_of
from support.stories.recount import Recount, recount

Numbers = Mapping[str, float]
Told = Sequence[Mapping[str, Any]]


def all_agree(
    log_dir: Path, *, console: str = "", announced: Told | None = None, exposition: str = ""
) -> Recount:
    """Ask everybody about the run in ``log_dir``; AssertionError where one says something else."""
    truth = recount([json.loads(line) for line in (log_dir / "journal.jsonl").read_text().splitlines()])
    account, record = account_of(log_dir), read_record(log_dir)
    report = json.loads(json.dumps(document(account, record)))
    status = status_of(gather(log_dir, Pace()))
    metrics = _numbers(exposition or exported(log_dir))
    told = announced if announced is not None else _announced(log_dir)
    _of_the_run(truth, report, status, metrics, told)
    _of_steps_and_time(truth, report, status, metrics)
    _of_incidents(truth, report, metrics, told, _cards(log_dir))
    if console:
        _on_the_console(truth, report, console)
    return truth


def _of_the_run(
    truth: Recount, report: Mapping[str, Any], status: Mapping[str, Any], metrics: Numbers, told: Told
) -> None:
    kinds = Counter(one["kind"] for one in told)
    assert truth.incidents == report["incidents_total"] == metrics["incidents_total"] == kinds["incident"]
    assert truth.restarts == report["restarts"] == metrics["restarts_total"]
    assert status["incidents"] in (truth.incidents, 0), "or its card is not in the folder"
    assert status["restarts"] == truth.restarts
    assert status["restarts_left"] == metrics["restarts_left"]
    assert status["restarts_left"] + status["restarts_in_window"] == 3
    assert status["incarnation"] == metrics["incarnation"] == len(report["incarnations"]) - 1
    ends = {
        None if report["ended"] is None else report["ended"]["exit_code"],
        None if status["ended"] is None else status["ended"]["exit_code"],
        metrics.get("exit_code"),
        next((one["exit_code"] for one in reversed(told) if "exit_code" in one), None)
        if truth.exit_code is not None
        else None,
    }
    assert ends == {truth.exit_code}
    assert truth.saves == report["gasps"]["saved"] == metrics["gasp_saves_total{saved}"]


def _of_steps_and_time(
    truth: Recount, report: Mapping[str, Any], status: Mapping[str, Any], metrics: Numbers
) -> None:
    assert report["wall_s"] == pytest.approx(truth.wall_s, abs=0.002)
    spent = {name: metrics[f"time_seconds{{{name}}}"] for name in report["spent"]}
    assert sum(report["spent"].values()) == pytest.approx(truth.wall_s, abs=0.005)
    if truth.exit_code is not None:  # else the time since the last line is in the metrics, too
        assert spent == pytest.approx(report["spent"], abs=0.002)
    assert truth.lost_steps == report["lost_steps"] == metrics.get("lost_steps_total")
    assert truth.newest_step == metrics.get("step")
    assert status["step"] in (truth.newest_step, None), "or neither page nor logs are in the folder"
    share = report["productive_share"]
    assert (share is None) == (truth.productive_s is None) == ("productive_ratio" not in metrics)
    assert (share is None) == (report["productive_unknown"] is not None)
    if truth.productive_s is not None:
        assert share == pytest.approx(truth.productive_s / truth.wall_s, abs=0.005)
        if truth.exit_code is not None:
            assert metrics["productive_ratio"] == pytest.approx(share, abs=0.001)
        assert 0 <= share <= 1


def _of_incidents(
    truth: Recount,
    report: Mapping[str, Any],
    metrics: Numbers,
    told: Told,
    cards: Mapping[int, Mapping[str, Any]],
) -> None:
    recovery, took = report["recovery"], list(truth.recoveries_s.values())
    assert recovery["count"] == len(took) == metrics["recovery_seconds_count"]
    assert metrics["recovery_seconds_sum"] == pytest.approx(sum(took), abs=0.002)
    if took:
        assert recovery["median_s"] == pytest.approx(median(took), abs=0.001)
        assert recovery["worst_s"] == pytest.approx(max(took), abs=0.001)
    assert sum(report["causes"].values()) == truth.incidents
    announced = {one["number"]: one for one in told if one["kind"] == "incident"}
    after = [one["after_s"] for one in told if one["kind"] == "restart" and one["reason"] == "fault"]
    assert [one for one in after if one is not None] == pytest.approx(took)
    for incident in report["incidents"]:
        number = incident["number"]
        known = truth.recoveries_s.get(number)
        assert incident["recovery_s"] == (None if known is None else pytest.approx(known, abs=0.001))
        if known is not None:
            parts, spent = incident["timeline"].values(), incident["spent"].values()
            assert sum(parts) == pytest.approx(known, abs=0.002)
            assert sum(spent) == pytest.approx(known, abs=0.002)
        said = announced[number]
        same = ("rank", "cause", "step", "own_step")
        assert {name: incident[name] for name in same} == {name: said[name] for name in same}
        if number in cards:
            card = cards[number]
            about = {**card["incident"], "cause": card["incident"]["cause"]}
            assert {name: incident[name] for name in same} == {name: about[name] for name in same}
            assert card["trained_after_s"] == known


def _on_the_console(truth: Recount, report: Mapping[str, Any], console: str) -> None:
    """The narrated lines and the last one."""
    took = [span(seconds) for seconds in truth.recoveries_s.values()]
    assert re.findall(r"training again (.+?) after the failure", console) == took
    assert summary(report) in console
    assert f"exit code {truth.exit_code}, {several(truth.restarts, 'restart')}" in console
    if truth.productive_s is None:
        assert "goodput unknown (" in console
    else:
        assert f"; {percent(report['productive_share'])} productive; " in console
    if truth.lost_steps is not None:
        assert f"{several(truth.lost_steps, 'step')} trained twice" in console


def exported(log_dir: Path) -> str:
    exporter = Exporter(log_dir, {"run_id": "r", "framework": "torch"}, RestartPolicy(), None, "")
    for line in journal_lines(log_dir / "journal.jsonl"):
        exporter.take(line)
    registry = CollectorRegistry()
    registry.register(exporter)
    return generate_latest(registry).decode()


def _numbers(exposition: str) -> dict[str, float]:
    """Every sample, by its name without prefix, and the value of its one label."""
    found = {}
    for family in text_string_to_metric_families(exposition):
        for sample in family.samples:
            labels = "".join(f"{{{value}}}" for value in sample.labels.values())
            found[sample.name.removeprefix("faultrun_") + labels] = sample.value
    return found


def _announced(log_dir: Path) -> list[dict[str, Any]]:
    announcer = Announcer("r", str(log_dir))
    return [told for line in journal_lines(log_dir / "journal.jsonl") for told in announcer.take(line)]


def _cards(log_dir: Path) -> dict[int, dict[str, Any]]:
    found = [json.loads(path.read_text()) for path in log_dir.glob("incident_*.json")]
    return {card["incident"]["number"]: card for card in found}
