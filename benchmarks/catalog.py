"""Which benchmarks there are. A new one is a module with a ``BENCHMARK`` and a line here."""

import importlib
from collections.abc import Iterable

from benchmarks.harness.benchmark import Benchmark

_NAMES = (
    *("detection", "supervisor", "startup", "warm", "stay", "train_on", "snapshots", "checkpoints"),
    *("hangs", "loops", "journals", "scale", "several_nodes"),
)
_MODULES = {name: f"benchmarks.{name}" for name in _NAMES} | {"mindspore": "benchmarks.restart_mindspore"}
_ONLY_BY_NAME = frozenset({"mindspore"})
"""Minutes for each sample: msrun takes half a minute to notice that it has lost."""


def names() -> tuple[str, ...]:
    """All names, in the order in which they run."""
    return tuple(_MODULES)


def usual() -> tuple[str, ...]:
    """The names that run when none is given."""
    return tuple(name for name in _MODULES if name not in _ONLY_BY_NAME)


def load(chosen: Iterable[str]) -> list[Benchmark]:
    """The benchmarks of these names; their modules are imported only now."""
    loaded = []
    for name in chosen:
        benchmark = importlib.import_module(_MODULES[name]).BENCHMARK
        if not isinstance(benchmark, Benchmark) or benchmark.name != name:
            raise TypeError(f"{_MODULES[name]}.BENCHMARK is not the benchmark {name!r}")
        loaded.append(benchmark)
    return loaded
