"""The thousand faults in a table for the README and the docs: of as many as there are rows."""

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.harness.launched import ROOT
from benchmarks.harness.readme import written_between

Row = Mapping[str, Any]

ALL = 1000
PAGES = (ROOT / "README.md", ROOT / "docs" / "when-a-run-fails.md")
_NAME = "thousand"
_CODES = {"ddp": "torch, `DistributedDataParallel`", "fsdp": "torch, `fully_shard`", "mindspore": "MindSpore"}
_PLACES = {"1 node": "one node", "3 nodes": "three nodes"}
_NOTHING = "–"  # noqa: RUF001  an empty cell


def write(faults: Sequence[Row], pages: Sequence[Path] = PAGES) -> None:
    """The table into each of ``pages``, between its marks; ValueError where there are none."""
    for page in pages:
        up = "../" * (len(page.relative_to(ROOT).parts) - 1) if page.is_relative_to(ROOT) else ""
        text = written_between(page.read_text(encoding="utf-8"), _NAME, table(faults, up))
        page.write_text(text, encoding="utf-8")


def table(faults: Sequence[Row], up: str = "") -> str:
    """Markdown, from the rows of faults that struck somebody; ``up`` leads from the page to the root."""
    loads = sorted(float(row["load"]) for row in faults) or [0.0]
    lines = [
        "| training | faults | all train again: median, p95 | steps lost: median, most | resumed wrongly |",
        "|---|---|---|---|---|",
    ]
    for code, what in _CODES.items():
        for place, where in _PLACES.items():
            mine = [row for row in faults if row["run"].startswith(f"{code}, {place}")]
            if mine:
                lines.append(f"| {what}, {where} | {' | '.join(_cells(mine))} |")
    if len(faults) > 1:
        lines.append(f"| all | {' | '.join(_cells(faults))} |")
    results = f"{up}benchmarks/results"
    inside = sum(row["when"] != "training" for row in faults)
    lines += [
        "",
        f"{counted(len(faults), ALL, 'faults')}, {inside} of them in the way back from another,",
        f"on a machine shared with other work (load {loads[0]:g} to {loads[-1]:g}): what to expect of a",
        f"busy machine, and no benchmark. [Every kind of fault]({results}/thousand.md); again, or on:",
        f"`make soak-everything N={ALL}` (`MINUTES=0` only writes this anew).",
        "",
        f"![each fault, by the way back that was taken]({results}/thousand.svg)",
    ]
    return "\n".join(lines)


def counted(had: int, wanted: int, what: str) -> str:
    """How many of them were run, as the beginning of a sentence."""
    if had >= wanted:
        return f"All **{had} {what}** were run"
    return f"**{had} of {wanted} {what}** were run so far"


def _cells(rows: Sequence[Row]) -> list[str]:
    """How many, how long, at what price, and how often it went on from the wrong place or with wrong bits."""
    again = [row for row in rows if row["lives"] > 0]
    took = [float(row["recovery_s"]) for row in again if row["recovery_s"] is not None]
    lost = [int(row["lost"]) for row in again if row["lost"] is not None]
    wrong = sum(bool({"resumes", "steps"} & set(row["broken"])) for row in rows)
    return [
        f"{len(rows)}",
        f"{statistics.median(took):.1f} s, {p95(took):.1f} s" if took else _NOTHING,
        f"{statistics.median(lost):g}, {max(lost)}" if lost else _NOTHING,
        f"{wrong}",
    ]


def p95(values: Sequence[float]) -> float:
    """The value that 95 of 100 do not exceed; the largest of few."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * 0.95))]
