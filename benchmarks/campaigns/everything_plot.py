"""How long until all ranks train again: a mark a fault, a line a median; equal rows give equal bytes."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

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
_BLUE, _GREY = "#1f6feb", "#8c959f"


def draw(rows: Sequence[Row], rivals: Sequence[Row], path: Path) -> None:
    """Write the plot to ``path``, one panel for trainings on one node and one for those over three."""
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams["svg.hashsalt"] = "faultrun"
    from matplotlib import pyplot

    panels = [
        ("one node", _lines([row for row in rows if "1 node" in row["run"]], rivals)),
        ("three nodes and a spare", _lines([row for row in rows if "3 nodes" in row["run"]], ())),
    ]
    panels = [(title, lines) for title, lines in panels if lines] or [("nothing yet", [])]
    heights = [max(1, len(lines)) for _, lines in panels]
    figure, axes = pyplot.subplots(
        len(panels),
        1,
        sharex=True,
        squeeze=False,
        figsize=(8, 1.1 + 0.42 * sum(heights)),
        height_ratios=heights,
        layout="constrained",
    )
    for axis, (title, lines) in zip(axes[:, 0], panels, strict=True):
        _panel(axis, title, lines)
    axes[-1, 0].set_xticks(_TICKS_S, [f"{tick_s:g}" for tick_s in _TICKS_S])
    axes[-1, 0].set_xlabel("seconds from the fault until every rank has done a step again (shared machine)")
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)


def _lines(rows: Sequence[Row], rivals: Sequence[Row]) -> list[tuple[str, list[float], str]]:
    """Name, values and colour of each line that has any."""
    own = {way: [row for row in rows if row["way"] == way] for way in _WAYS}
    found = [(way, _values(of), _BLUE) for way, of in own.items()]
    names = dict.fromkeys(str(row["launcher"]) for row in rivals)
    found += [(name, _values([row for row in rivals if row["launcher"] == name]), _GREY) for name in names]
    return [one for one in found if one[1]]


def _values(rows: Sequence[Row]) -> list[float]:
    took = [row["recovery_s"] for row in rows if row["struck"] != "nobody" and row["place"] >= 0]
    return sorted(max(0.01, float(one)) for one in took if one is not None)


def _panel(axis: Any, title: str, lines: list[tuple[str, list[float], str]]) -> None:
    axis.set_xscale("log")
    axis.set_title(title, loc="left", fontsize=10, fontweight="bold")
    for at, (_, values, colour) in enumerate(lines):
        axis.plot(values, [at] * len(values), "|", color=colour, alpha=0.5, markersize=11)
        middle = values[len(values) // 2]
        axis.plot([middle, middle], [at - 0.36, at + 0.36], "-", color=colour, linewidth=2.5)
        axis.annotate(
            f"{middle:.2g} s", (values[-1], at), (7, 0), textcoords="offset points", va="center", fontsize=8
        )
    axis.set_yticks(range(len(lines)), [f"{name} ({len(values)})" for name, values, _ in lines], fontsize=9)
    axis.set_ylim(len(lines) - 0.4, -0.6)
    axis.grid(axis="x", which="both", alpha=0.2)
    axis.margins(x=0.12)
    for side in ("top", "right", "left"):
        axis.spines[side].set_visible(False)
