"""How much there is of faultrun: no more than this, and what is added names what goes."""

from collections.abc import Iterator
from pathlib import Path

import grimp

ROOT = Path(__file__).resolve().parent.parent

MOST_LINES = {"launcher": 91_950, "tests": 85_070, "benchmarks": 18_600}
"""Lines of Python below each folder."""
MOST_MODULES = 63
"""That a reader of ``supervisor.loop`` may come to."""


def lines_of(folder: str) -> int:
    """How many lines of Python are below ``folder``, but for hidden folders: a rival may be installed."""
    files = (ROOT / folder).rglob("*.py")
    return sum(path.read_bytes().count(b"\n") for path in files if "/." not in str(path.relative_to(ROOT)))


def modules_of_the_loop() -> int:
    """How many modules ``supervisor.loop`` imports, and these, and so on."""
    graph = grimp.build_graph("faultrun", cache_dir=None)
    return len(graph.find_upstream_modules("faultrun.supervisor.loop"))


def measured() -> Iterator[tuple[str, int, int]]:
    """What is counted, how much there is of it, and how much there may be."""
    for folder, most in MOST_LINES.items():
        yield f"lines of {folder}", lines_of(folder), most
    yield "modules behind supervisor.loop", modules_of_the_loop(), MOST_MODULES


if __name__ == "__main__":
    for what, count, most in measured():
        print(f"{what}: {count:,} of {most:,}")  # noqa: T201
