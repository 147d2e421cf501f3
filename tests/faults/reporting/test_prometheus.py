"""A real Prometheus scrapes a run that fails again and again, and the shipped rule fires."""

import json
import shutil
import subprocess
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from support.machine.free_port import free_port
from support.machine.processes import wait_until
from support.places import ROOT
from support.runs import Launcher

RULES = ROOT / "templates" / "monitoring" / "alerts.yaml"
PATIENCE_S = 120.0

pytestmark = pytest.mark.skipif(
    shutil.which("prometheus") is None, reason="prometheus is not installed (Debian: prometheus)"
)


def crash_loop(port: int) -> dict[str, Any] | None:
    """The alert, once it fires."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/alerts", timeout=5) as answer:
            found: list[dict[str, Any]] = json.loads(answer.read())["data"]["alerts"]
    except OSError:
        return None
    wanted = ("FaultrunCrashLoop", "firing")
    return next((one for one in found if (one["labels"]["alertname"], one["state"]) == wanted), None)


def test_the_rule_for_a_crash_loop_fires(launcher: Launcher, tmp_path: Path) -> None:
    port, scraped = free_port(), free_port()
    config = tmp_path / "prometheus.yml"
    config.write_text(
        "global: {scrape_interval: 500ms, evaluation_interval: 500ms}\n"
        f"rule_files: [{RULES}]\n"
        f"scrape_configs: [{{job_name: training, static_configs: [{{targets: ['127.0.0.1:{scraped}']}}]}}]\n"
    )
    # Another code each time: the same failure again and again ends a run before anybody could be alarmed.
    run = launcher.run(
        "say('ready'); signal.sigtimedwait([], 2); sys.exit(3 + life)", "--max_restarts=100",
        "--backoff=500ms..1s", f"--metrics_port={scraped}", workers=1,
    )  # fmt: skip
    with (tmp_path / "prometheus.log").open("wb") as log:
        prometheus = subprocess.Popen(
            ["prometheus", f"--config.file={config}", f"--storage.tsdb.path={tmp_path / 'data'}",
             f"--web.listen-address=127.0.0.1:{port}"],
            stdout=log, stderr=log,
        )  # fmt: skip
        try:
            fired = wait_until(
                lambda: crash_loop(port), while_runs=run.pid, within_s=PATIENCE_S, what="the alert"
            )
        finally:
            prometheus.kill()
            prometheus.wait()
    assert "no progress" in fired["annotations"]["summary"]
