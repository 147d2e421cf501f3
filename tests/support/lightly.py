"""The environment in which tests start trainings: what frameworks import for nothing is left out."""

import os
from pathlib import Path

LIGHT = Path(__file__).parent / "light"


def lightly(*more: str | Path) -> dict[str, str]:
    """Variables for a rank, or for a launcher of ranks. ``more`` are folders that come before all others."""
    here = os.environ.get("PYTHONPATH", "")
    return {
        "PYTHONPATH": os.pathsep.join(filter(None, (*map(str, more), str(LIGHT), here))),
        "OMP_NUM_THREADS": "1",
    }
