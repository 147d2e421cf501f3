"""``python tests/dated.py``: results whose code has changed since they were measured, by how many lines.

Each page of ``benchmarks/results`` stands with its commit in the table of ``benchmarks/README.md``, with what
of the launcher it depends on, or names its commit in its first lines. Fails where a page has no commit.
"""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"
LAUNCHER = "launcher/faultrun"
SUMMARIES = {"promises"}
"""Pages that only repeat numbers of others."""

_ENDED = "has the code of"
"""Said of a study that nobody can repeat here."""

_ROW = re.compile(r"\| \[(?P<page>\w+)\]\(results/\S+\) \| (?P<commit>[0-9a-f]{8}) \| \S+ \| (?P<of>.*) \|")
_AT = re.compile(r"(?:commit|at) ([0-9a-f]{8})\b")
_CHANGED = re.compile(r"(\d+) (?:insertion|deletion)")


def main() -> int:
    """Print what is out of date; 1 where a page does not say when it was measured."""
    rows = {row["page"]: row for row in _ROW.finditer((ROOT / "benchmarks" / "README.md").read_text())}
    undated, old = [], []
    for path in sorted(RESULTS.glob("*.md")):
        row = rows.get(path.stem)
        beginning = "\n".join(path.read_text(encoding="utf-8").splitlines()[:6])
        at = row["commit"] if row else (found[1] if (found := _AT.search(beginning)) else "")
        if not at and path.stem not in SUMMARIES:
            undated.append(path.stem)
        of = re.findall(r"`([\w/.]+)`", row["of"]) if row else []
        if _ENDED in beginning:
            continue
        if at and (lines := changed_since(at, of)):
            old.append(f"{path.stem} ({at}): {lines:,}")
    print("lines changed since results were measured:", "; ".join(old) or "none")  # noqa: T201
    for page in undated:
        print(f"benchmarks/results/{page}.md says nowhere at which commit it was measured")  # noqa: T201
    return int(bool(undated))


def changed_since(commit: str, of: list[str]) -> int:
    """How many lines of these files and folders; 0, too, where that commit is not known here."""
    places = [f"{LAUNCHER}/{one}" for one in of] or [LAUNCHER]
    done = subprocess.run(
        ["git", "diff", "--shortstat", commit, "--", *places],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    return sum(map(int, _CHANGED.findall(done.stdout)))


if __name__ == "__main__":
    sys.exit(main())
