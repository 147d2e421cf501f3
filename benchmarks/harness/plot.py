"""The README's plot: every sample a dot, every median a line, seconds on a logarithmic axis."""

from pathlib import Path
from typing import Any

from benchmarks.harness.benchmark import OURS
from benchmarks.harness.launchers import WARM, WARM_CACHED
from benchmarks.harness.series import Readings

_NAMES = {
    WARM: "faultrun, standbys",
    WARM_CACHED: "… and compile cache",
    OURS: "faultrun, cold",
    "torchrun": "torchrun",
    "torchrun, unshared store": "torchrun, unshared store",
    "ft_launcher": "ft_launcher",
    "shell loop": "shell loop",
    "msrun": "msrun, started again",
}
_PANELS = (
    ("torch, 2 workers", 0, "2 workers"),
    ("MindSpore, 2 workers", 1, "2 workers"),
    ("MindSpore, 4 workers", 1, "4 workers"),
)
_TICKS_S = (0.1, 0.3, 1, 3, 10, 30)
_BLUE, _GREY = "#1f6feb", "#8c959f"


def draw(torch: Readings, mindspore: Readings, folder: Path) -> None:
    """Write ``restart.png`` and ``restart.svg``."""
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams["svg.hashsalt"] = "faultrun"  # the same numbers give the same bytes
    from matplotlib import pyplot

    both = (torch, mindspore)
    panels = [(title, rows) for title, which, case in _PANELS if (rows := _rows(both[which], case))]
    heights = [len(rows) for _, rows in panels] or [1]
    figure, axes = pyplot.subplots(
        len(heights),
        1,
        sharex=True,
        squeeze=False,
        figsize=(8, 0.9 + 0.36 * sum(heights)),
        height_ratios=heights,
        layout="constrained",
    )
    for axis, (title, rows) in zip(axes[:, 0], panels, strict=False):
        _panel(axis, title, rows)
    axes[-1, 0].set_xticks(_TICKS_S, [f"{tick_s:g}" for tick_s in _TICKS_S])
    axes[-1, 0].set_xlabel("seconds from kill -9 of a rank to the first new step")
    folder.mkdir(parents=True, exist_ok=True)
    figure.savefig(folder / "restart.svg", metadata={"Date": None})
    figure.savefig(folder / "restart.png", dpi=150)
    pyplot.close(figure)


def _rows(readings: Readings, case: str) -> list[tuple[str, tuple[float, ...]]]:
    found = ((name, readings.of(case, name, "first_step").values) for name in _NAMES)
    return [(name, values) for name, values in found if values]


def _panel(axis: Any, title: str, rows: list[tuple[str, tuple[float, ...]]]) -> None:
    axis.set_xscale("log")
    axis.set_title(title, loc="left", fontsize=10, fontweight="bold")
    for at, (name, values) in enumerate(rows):
        ours = name in (WARM, WARM_CACHED, OURS)
        colour = _BLUE if ours else _GREY
        axis.plot(values, [at] * len(values), "o", color=colour, alpha=0.45, markersize=5, markeredgewidth=0)
        middle = sorted(values)[len(values) // 2]
        axis.plot([middle, middle], [at - 0.32, at + 0.32], "-", color=colour, linewidth=2.5)
        axis.annotate(
            f"{middle:.2g} s", (max(values), at), (7, 0), textcoords="offset points", va="center", fontsize=8
        )
    axis.set_yticks(range(len(rows)), [_NAMES[name] for name, _ in rows], fontsize=9)
    axis.set_ylim(len(rows) - 0.4, -0.6)
    axis.grid(axis="x", which="both", alpha=0.2)
    axis.margins(x=0.12)
    for side in ("top", "right", "left"):
        axis.spines[side].set_visible(False)
