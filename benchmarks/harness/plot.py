"""The README's plot: every sample a dot, every median a line, seconds on a logarithmic axis."""

from pathlib import Path

from benchmarks.harness.benchmark import OURS
from benchmarks.harness.launchers import WARM, WARM_CACHED
from benchmarks.harness.series import Readings
from benchmarks.harness.strips import DOTS, Panel, Strip
from benchmarks.harness.strips import draw as draw_strips

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


def draw(torch: Readings, mindspore: Readings, folder: Path) -> None:
    """Write ``restart.png`` and ``restart.svg``."""
    both = (torch, mindspore)
    panels = [Panel(title, rows) for title, which, case in _PANELS if (rows := _rows(both[which], case))]
    about = "seconds from kill -9 of a rank to the first new step"
    draw_strips(panels, DOTS, _TICKS_S, about, folder / "restart.svg", folder / "restart.png")


def _rows(readings: Readings, case: str) -> list[Strip]:
    found = ((name, readings.of(case, name, "first_step").values) for name in _NAMES)
    ours = (WARM, WARM_CACHED, OURS)
    return [Strip(_NAMES[name], values, name in ours) for name, values in found if values]
