"""How long until all ranks train again: a mark a fault, a line a median; equal rows give equal bytes."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.harness import strips
from benchmarks.harness.strips import Panel, Strip

Row = Mapping[str, Any]

_WAYS = (
    "survivors stayed",
    "warm restart",
    "partly warm restart",
    "cold restart",
    "shrunk",
    "grown",
    "shrunk and grown",
)
_TICKS_S = (0.1, 0.3, 1, 3, 10, 30, 100)


def draw(rows: Sequence[Row], rivals: Sequence[Row], path: Path) -> None:
    """Write the plot to ``path``, one panel for trainings on one node and one for those over three."""
    panels = [
        Panel("one node", _strips([row for row in rows if "1 node" in row["run"]], rivals)),
        Panel("three nodes and a spare", _strips([row for row in rows if "3 nodes" in row["run"]], ())),
    ]
    panels = [panel for panel in panels if panel.strips] or [Panel("nothing yet", [])]
    about = "seconds from the fault until every rank has done a step again (shared machine)"
    strips.draw(panels, strips.TICKS, _TICKS_S, about, path)


def _strips(rows: Sequence[Row], rivals: Sequence[Row]) -> list[Strip]:
    """Those that have any values, with how many."""
    own = {way: [row for row in rows if row["way"] == way] for way in _WAYS}
    found = [(way, _values(of), True) for way, of in own.items()]
    names = dict.fromkeys(str(row["launcher"]) for row in rivals)
    found += [(name, _values([row for row in rivals if row["launcher"] == name]), False) for name in names]
    return [Strip(f"{name} ({len(values)})", values, ours) for name, values, ours in found if values]


def _values(rows: Sequence[Row]) -> list[float]:
    took = [row["recovery_s"] for row in rows if row["struck"] != "nobody" and row["place"] >= 0]
    return sorted(max(0.01, float(one)) for one in took if one is not None)
