"""``make docs``: every page is on the site, and a link that leads nowhere ends the build."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from support.places import ROOT

pytestmark = pytest.mark.slow

_LOADED = re.compile(r"<(?:script|link|img)\b[^>]*?(?:src|href)=\"?(https?://[^\" >]+)")
COPIED = ("docs", "README.md", "CHANGELOG.md", "launcher/DESIGN.md", "templates", "examples", "benchmarks")


def built(checkout: Path, into: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, checkout / "docs" / "build_site.py", into],
        capture_output=True, text=True, timeout=120, check=False,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1", "DISABLE_MKDOCS_2_WARNING": "true"},
    )  # fmt: skip


def test_every_page_is_in_the_menu_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    done = built(ROOT, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    menu = (tmp_path / "site" / "index.html").read_text()
    menu = menu.partition("<nav")[2].partition("<article")[0]
    for page in (ROOT / "docs").glob("*.md"):
        name = "index.html" if page.name == "README.md" else f"{page.stem}.html"
        assert f'href="docs/{name}"' in menu, f"{page.name} is not in the menu of docs/mkdocs.yml"
    for page in (tmp_path / "site").rglob("*.html"):
        loaded = _LOADED.findall(page.read_text())
        assert not loaded, f"{page}: {loaded}"


def test_a_link_that_leads_nowhere_is_named(tmp_path: Path) -> None:
    checkout = tmp_path / "checkout"
    for name in COPIED:
        (checkout / name).parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, checkout / name, ignore=shutil.ignore_patterns(".*", "*.json*"))
        else:
            shutil.copyfile(ROOT / name, checkout / name)
    with (checkout / "docs" / "hangs.md").open("a", encoding="utf-8") as page:
        page.write("\n[gone](nowhere.md)\n")
    done = built(checkout, tmp_path)
    assert done.returncode == 1
    assert "nowhere.md" in done.stderr, done.stderr
