"""Panels of strips, for people: a mark a sample, a line a median, seconds on a logarithmic axis.

Equal numbers give equal bytes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_BLUE, _GREY = "#1f6feb", "#8c959f"


@dataclass(frozen=True, slots=True)
class Strip:
    """One row: whose ``values`` these are, ascending. ``ours`` has the colour of faultrun."""

    name: str
    values: Sequence[float]
    ours: bool


@dataclass(frozen=True, slots=True)
class Panel:
    """Rows under a title."""

    title: str
    strips: Sequence[Strip]


@dataclass(frozen=True, slots=True, kw_only=True)
class Style:
    """How samples look, for few of them (dots) or many (ticks). Sizes are matplotlib's, heights inches."""

    marks: dict[str, Any]
    median: float
    head_in: float
    row_in: float


DOTS = Style(
    marks={"marker": "o", "alpha": 0.45, "markersize": 5, "markeredgewidth": 0},
    median=0.32,
    head_in=0.9,
    row_in=0.36,
)
TICKS = Style(marks={"marker": "|", "alpha": 0.5, "markersize": 11}, median=0.36, head_in=1.1, row_in=0.42)


def draw(panels: Sequence[Panel], style: Style, ticks_s: Sequence[float], about: str, *paths: Path) -> None:
    """Write them, one below the other, to each of ``paths``; ``about`` says what the seconds are."""
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams["svg.hashsalt"] = "faultrun"
    from matplotlib import pyplot

    heights = [max(1, len(panel.strips)) for panel in panels] or [1]
    figure, axes = pyplot.subplots(
        len(heights),
        1,
        sharex=True,
        squeeze=False,
        figsize=(8, style.head_in + style.row_in * sum(heights)),
        height_ratios=heights,
        layout="constrained",
    )
    for axis, panel in zip(axes[:, 0], panels, strict=False):
        _fill(axis, panel, style)
    axes[-1, 0].set_xticks(ticks_s, [f"{tick_s:g}" for tick_s in ticks_s])
    axes[-1, 0].set_xlabel(about)
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        exact: dict[str, Any] = {"metadata": {"Date": None}} if path.suffix == ".svg" else {"dpi": 150}
        figure.savefig(path, **exact)
    pyplot.close(figure)


def _fill(axis: Any, panel: Panel, style: Style) -> None:
    axis.set_xscale("log")
    axis.set_title(panel.title, loc="left", fontsize=10, fontweight="bold")
    for at, strip in enumerate(panel.strips):
        colour, values = _BLUE if strip.ours else _GREY, strip.values
        axis.plot(values, [at] * len(values), linestyle="none", color=colour, **style.marks)
        middle = sorted(values)[len(values) // 2]
        reach = [at - style.median, at + style.median]
        axis.plot([middle, middle], reach, "-", color=colour, linewidth=2.5)
        axis.annotate(
            f"{middle:.2g} s", (max(values), at), (7, 0), textcoords="offset points", va="center", fontsize=8
        )
    axis.set_yticks(range(len(panel.strips)), [strip.name for strip in panel.strips], fontsize=9)
    axis.set_ylim(len(panel.strips) - 0.4, -0.6)
    axis.grid(axis="x", which="both", alpha=0.2)
    axis.margins(x=0.12)
    for side in ("top", "right", "left"):
        axis.spines[side].set_visible(False)
