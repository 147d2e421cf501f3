"""What is exported: by Prometheus' conventions, bounded, and what the rules and the dashboard ask for."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from benchmarks.harness.long_journal import Shape, write_journal

from support.places import ROOT
from support.reporting.outlets import exported

MONITORING = ROOT / "templates" / "monitoring"
_OF_RUNNING_RANKS = {"faultrun_step_age_seconds", "faultrun_slowest_step"}


def exposition(folder: Path, shape: Shape) -> str:
    write_journal(folder / "journal.jsonl", shape)
    return exported(folder)


def names(text: str) -> set[str]:
    return {re.split("[{ ]", line)[0] for line in text.splitlines() if not line.startswith("#")}


@pytest.mark.long
def test_the_number_of_series_does_not_grow_with_ranks_or_faults(tmp_path: Path) -> None:
    small = exposition(tmp_path, Shape(events=200, workers=2, incidents=5))
    large = exposition(tmp_path, Shape(events=5000, workers=100, incidents=40))
    assert len(large.splitlines()) == len(small.splitlines())
    assert "faultrun_incidents_total 40.0" in large
    assert "faultrun_exit_code 0.0" in large


def test_rules_and_dashboard_ask_only_for_what_is_exported(tmp_path: Path) -> None:
    known = names(exposition(tmp_path, Shape(events=200, workers=2, incidents=5))) | _OF_RUNNING_RANKS
    rules = yaml.safe_load((MONITORING / "alerts.yaml").read_text())
    dashboard = json.loads((MONITORING / "grafana-dashboard.json").read_text())
    alerts = [rule["expr"] for group in rules["groups"] for rule in group["rules"]]
    for expression in [*alerts, *(one["expr"] for panel in dashboard["panels"] for one in panel["targets"])]:
        asked = set(re.findall(r"faultrun_\w+", expression))
        assert asked
        assert asked <= known, expression


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed (Debian: prometheus)")
def test_promtool_finds_nothing_to_say(tmp_path: Path) -> None:
    text = exposition(tmp_path, Shape(events=200, workers=2, incidents=5))
    checks = (
        ["promtool", "check", "metrics"],
        ["promtool", "check", "rules", str(MONITORING / "alerts.yaml")],
    )
    for command in checks:
        done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "lint" not in done.stdout + done.stderr
