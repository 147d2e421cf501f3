"""The machine, as far as a reader of numbers needs it: no names, no paths."""

import importlib.metadata
import os
import platform
from pathlib import Path

_PACKAGES = ("torch", "mindspore")


def describe() -> dict[str, str]:
    """What the numbers depend on, in words."""
    return {
        "cores": str(len(os.sched_getaffinity(0))),
        "memory": f"{_memory_gib():.0f} GiB",
        "kernel": f"{platform.system()} {platform.release().split('-')[0]}, {platform.machine()}",
        "python": platform.python_version(),
        **{name: version for name in _PACKAGES if (version := _version(name))},
    }


def words() -> str:
    """The same in a line."""
    return ", ".join(f"{name} {value}" for name, value in describe().items())


def load() -> str:
    """The load average of the last minute: how much else ran."""
    return f"{os.getloadavg()[0]:.1f}"


def crowding() -> float:
    """How many want each processor, at least 1: so much later things happen than at rest."""
    return max(1.0, os.getloadavg()[0] / len(os.sched_getaffinity(0)))


def _memory_gib() -> float:
    for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
        if line.startswith("MemTotal:"):
            return int(line.split()[1]) / (1 << 20)
    return 0.0


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""
