"""The README's table: one row a launcher, medians and how often the first restart worked."""

from collections.abc import Mapping

from benchmarks.harness.benchmark import OURS
from benchmarks.harness.launchers import WARM, WARM_CACHED
from benchmarks.harness.series import Readings, Series

PART = "benchmark"
"""What its part of the page is called."""

ROWS = (
    (WARM, "**faultrun**, its standbys ready (`--standby=auto` is the default)"),
    (WARM_CACHED, "the same with `--compile_cache`"),
    (OURS, "**faultrun**, cold"),
    ("torchrun", "torchrun"),
    ("torchrun, unshared store", "torchrun, `TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1`"),
    ("ft_launcher", "ft_launcher (NVIDIA resiliency extension)"),
    ("shell loop", "a shell loop"),
    ("msrun", "msrun, started again when it has ended"),
)
_NOTHING = "–"  # noqa: RUF001  an empty cell


def table(
    torch: Readings, mindspore: Readings, machine: Mapping[str, str], loads: tuple[float, float]
) -> str:
    """Markdown, from the readings of ``warm`` and ``mindspore``; ``loads`` are the least and the most."""
    lines = [
        "| from `kill -9` of a rank to the first new step | torch, 2 workers | at the first restart"
        " | MindSpore, 2 workers | 4 workers |",
        "|---|---|---|---|---|",
    ]
    for name, label in ROWS:
        cells = [
            _seconds(torch.of("2 workers", name, "first_step")),
            _successes(torch, name),
            *(_seconds(mindspore.of(case, name, "first_step")) for case in ("2 workers", "4 workers")),
        ]
        if any(cell != _NOTHING for cell in cells):
            lines.append(f"| {label} | {' | '.join(cells)} |")
    words = ", ".join(f"{name} {value}" for name, value in machine.items())
    load = f"load {loads[0]:.1f} to {loads[1]:.1f}"
    return "\n".join(
        [
            *lines,
            "",
            f"Medians, all contenders in turn on one machine ({words}; {load}). Same script, fault and",
            "checkpoint interval for all. Every number: [promises](benchmarks/results/promises.md); again:",
            "`make bench`.",
            "",
            "![each sample, on a logarithmic axis](benchmarks/results/restart.svg)",
        ]
    )


def _seconds(series: Series) -> str:
    if not series.values:
        return _NOTHING
    digits = 2 if series.median < 10 else 1
    return f"{series.median:.{digits}f} s (n={len(series)})"


def _successes(readings: Readings, name: str) -> str:
    worked = readings.of("2 workers", name, "first_try").values
    failed = sum(failure.contender == name for failure in readings.failures)
    return f"{sum(worked):.0f} of {len(worked) + failed}" if worked or failed else _NOTHING


def marks(name: str) -> tuple[str, str]:
    """The lines before and behind the part that is called ``name``."""
    return f"<!-- {name}: begin -->", f"<!-- {name}: end -->"


def written_between(page: str, name: str, text: str) -> str:
    """``page`` with ``text`` as its part ``name``. ValueError when it has none."""
    begin, end = marks(name)
    before, is_there, rest = page.partition(begin)
    _, ends, after = rest.partition(end)
    if not (is_there and ends):
        raise ValueError(f"the page has no {begin} ... {end}")
    return f"{before}{begin}\n{text}\n{end}{after}"
