"""The report of a run with five different faults, in a real browser, on a desk and on a phone."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from support.places import TESTS
from support.runs import Launcher

STEPS = (sys.executable, str(TESTS / "faults" / "scripts" / "steps.py"), "96", "save")
FIVE = ("0:2:15:9", "1:1:30:6", "2:0:45:11", "3:3:60:8", "4:2:75:7")
"""In each life another rank, another step and another signal."""
SIZES = {"desk": (1280, 2600), "narrow": (500, 3600), "phone": (390, 4600)}
HEADINGS = {
    "At a glance", "What to do next", "Where the time went", "Timeline", "Faults by cause",
    "Recoveries, part by part", "Incidents", "Lives of the workers (6)",
}  # fmt: skip
FRAME = """<body style="margin: 0"><iframe src="%s" style="border: 0; width: %dpx; height: %dpx"></iframe>
<p></p>
<script>setInterval(function () {
  var page = document.querySelector("iframe").contentDocument;
  document.querySelector("p").textContent = JSON.stringify({
    width: page.documentElement.scrollWidth,
    beyond: Array.from(page.querySelectorAll("main *, header *, footer *")).filter(function (one) {
      return !one.closest(".hidden, svg.defs, .rows thead")
        && one.getBoundingClientRect().right > page.documentElement.clientWidth + 1; }).length,
    covered: Array.from(page.querySelectorAll(".plot text")).filter(function (one, at, all) {
      var mine = one.getBoundingClientRect();
      return all.slice(0, at).some(function (other) {
        var its = other.getBoundingClientRect();
        return mine.left < its.right && its.left < mine.right
          && mine.top + 3 < its.bottom && its.top + 3 < mine.bottom;
      }); }).length,
    headings: Array.from(page.querySelectorAll("h2")).map(function (one) { return one.textContent; })
  });
}, 500);</script>"""
"""A browser's own window is never narrower than 500; a frame is, and can be asked what it shows."""

BROWSER = shutil.which("chromium")

pytestmark = pytest.mark.skipif(BROWSER is None, reason="chromium is not installed (Debian: chromium)")


def opened(page: Path, profile: Path, *words: str) -> tuple[str, str]:
    """What the browser prints, and the lines of its console."""
    done = subprocess.run(
        [str(BROWSER), "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
         f"--user-data-dir={profile}", "--enable-logging=stderr", "--virtual-time-budget=30000",
         "--allow-file-access-from-files", "--window-size=1280,4600", *words, page.as_uri()],
        capture_output=True, text=True, timeout=180, check=True,
    )  # fmt: skip
    return done.stdout, "\n".join(line for line in done.stderr.splitlines() if ":CONSOLE" in line)


def test_five_faults_are_on_one_legible_page(launcher: Launcher, tmp_path: Path) -> None:
    run = launcher.command(
        "--worker_num=4", "--max_restarts=9", "--backoff=10ms..20ms", "--checkpoint_dir=ck",
        "--log_dir=faultrun_log", *STEPS, *FIVE, environ={"FAULTRUN_REPORT": "True"},
    )  # fmt: skip
    assert run.ends(within_s=180) == 0
    data = json.loads((run.log_dir / "report.json").read_text())
    assert len({fault["what"] for fault in data["incidents"]}) == 5
    assert sum(data["spent"].values()) == pytest.approx(data["wall_s"], rel=0.01)
    artifacts = Path(os.environ.get("FAULTRUN_TEST_ARTIFACTS", tmp_path))
    for name, (width, height) in SIZES.items():
        frame, shot = run.log_dir / f"{name}.html", artifacts / f"report_{name}.png"
        frame.write_text(FRAME % ("report.html", width, height))
        _, console = opened(frame, tmp_path / name, f"--screenshot={shot}")
        assert console == ""
        assert shot.stat().st_size > 50_000
        dom, console = opened(frame, tmp_path / name, "--dump-dom")
        assert console == ""
        found = re.search(r"<p>(.*)</p>", dom)
        assert found is not None
        seen = json.loads(found[1])
        assert set(seen.pop("headings")) >= HEADINGS
        assert seen == {"width": width, "beyond": 0, "covered": 0}
