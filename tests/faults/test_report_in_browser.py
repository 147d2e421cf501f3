"""The report of a run with five different faults, in a real browser, on a desk and on a phone."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from support.runs import Launcher

FIVE = (sys.executable, str(Path(__file__).with_name("five_faults.py")), "160", "0.03")
SIZES = {"desk": (1280, 2600), "phone": (500, 4200)}
FIGURES = ("timeline", "recoveries", "causes", "ranks")
BROWSER = shutil.which("chromium")

pytestmark = pytest.mark.skipif(BROWSER is None, reason="chromium is not installed (Debian: chromium)")


def opened(page: Path, profile: Path, *words: str) -> tuple[str, str]:
    """What the browser prints, and the lines of its console."""
    done = subprocess.run(
        [str(BROWSER), "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
         f"--user-data-dir={profile}", "--enable-logging=stderr", "--virtual-time-budget=8000", *words,
         page.as_uri()],
        capture_output=True, text=True, timeout=180, check=True,
    )  # fmt: skip
    return done.stdout, "\n".join(line for line in done.stderr.splitlines() if ":CONSOLE" in line)


def test_five_faults_are_on_one_legible_page(launcher: Launcher, tmp_path: Path) -> None:
    run = launcher.command(
        "--worker_num=4", "--max_restarts=9", "--checkpoint_dir=ck", "--log_dir=faultrun_log", *FIVE,
        environ={"FAULTRUN_REPORT": "True"},
    )  # fmt: skip
    assert run.ends(within_s=180) == 0
    data = json.loads((run.log_dir / "report.json").read_text())
    assert len({fault["what"] for fault in data["incidents"]}) == 5
    assert sum(data["spent"].values()) == pytest.approx(data["wall_s"], rel=0.01)
    artifacts = Path(os.environ.get("FAULTRUN_TEST_ARTIFACTS", tmp_path))
    for name, (width, height) in SIZES.items():
        shot = artifacts / f"report_{name}.png"
        window = f"--window-size={width},{height}"
        _, console = opened(run.log_dir / "report.html", tmp_path / name, window, f"--screenshot={shot}")
        assert console == ""
        assert shot.stat().st_size > 50_000
    dom, console = opened(run.log_dir / "report.html", tmp_path / "dom", "--dump-dom")
    assert console == ""
    for figure in FIGURES:
        assert re.search(rf'id="{figure}" class="js-plotly-plot">.*?<svg class="main-svg"', dom, re.DOTALL)
