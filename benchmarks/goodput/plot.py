"""Where a month's lost time goes: a bar a policy, in percent of all; equal numbers give equal bytes."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

_PARTS = (
    ("again_s", "trained again", "#cf222e"),
    ("saving_s", "saving", "#bf8700"),
    ("copying_s", "copying to memory", "#e0b94d"),
    ("hardware_s", "waiting for a node or a person", "#57606a"),
    ("noticing_s", "noticing", "#afb8c1"),
    ("restarting_s", "restarting", "#1f6feb"),
)
_PANELS = ((1024, "replicated"), (16_384, "replicated"), (16_384, "sharded"))


def draw(record: Mapping[str, Any], folder: Path) -> None:
    """Write ``goodput.svg``. Sizes that were not asked for have no panel."""
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams["svg.hashsalt"] = "faultrun"
    from matplotlib import pyplot

    panels = [(size, layout) for size, layout in _PANELS if size in record["sizes"]]
    panels = panels or [(size, "replicated") for size in record["sizes"]]
    heights = [len(record["layouts"][layout]) for _, layout in panels]
    figure, axes = pyplot.subplots(
        len(panels),
        1,
        squeeze=False,
        figsize=(8, 1.2 + 0.33 * sum(heights)),
        height_ratios=heights,
        layout="constrained",
    )
    for axis, (size, layout) in zip(axes[:, 0], panels, strict=True):
        _panel(axis, f"{size:,} devices, {layout}", record["layouts"][layout], str(size))
    axes[-1, 0].set_xlabel("percent of a month that is lost (simulated)")
    handles, labels = axes[-1, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, fontsize=8, frameon=False)
    figure.savefig(folder / "goodput.svg", metadata={"Date": None})
    pyplot.close(figure)


def _panel(axis: Any, title: str, policies: Mapping[str, Any], size: str) -> None:
    axis.set_title(title, loc="left", fontsize=10, fontweight="bold")
    for at, cells in enumerate(policies.values()):
        spent = cells[size]["best"]
        total_s = sum(spent[part] for part, *_ in _PARTS) + spent["useful_s"]
        left = 0.0
        for part, label, colour in _PARTS:
            width = 100 * spent[part] / total_s
            axis.barh(at, width, left=left, height=0.7, color=colour, label=label if at == 0 else None)
            left += width
        axis.annotate(
            f"{left:.2g} %", (left, at), (4, 0), textcoords="offset points", va="center", fontsize=8
        )
    axis.set_yticks(range(len(policies)), list(policies), fontsize=9)
    axis.set_ylim(len(policies) - 0.4, -0.6)
    axis.grid(axis="x", alpha=0.2)
    axis.margins(x=0.1)
    for side in ("top", "right", "left"):
        axis.spines[side].set_visible(False)
