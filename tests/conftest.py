"""What holds for every test."""

import os
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# A red build must mean that the change is wrong, and not that the machine has other work.
settings.register_profile("desk", deadline=None, suppress_health_check=[HealthCheck.too_slow])
# CI draws the same examples each time, a desk draws new ones.
settings.register_profile(
    "ci", settings.get_profile("desk"), derandomize=True, print_blob=True, database=None
)
settings.load_profile("ci" if os.environ.get("CI") else "desk")

# Images set this for their one start. Here hundreds of processes would each compile half the launcher anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

_HERE = Path(__file__).parent
_ALONE = frozenset({"core", "supervisor", "contracts", "edges"})
"""Folders whose tests compute in their own process, or start one; the others' wait for real jobs."""

_RECURSION_LIMIT = sys.getrecursionlimit()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Two groups for ``make test``: one needs one processor, the other waits a lot (``--dist loadgroup``)."""
    for item in items:
        folder = item.path.relative_to(_HERE).parts[0]
        item.add_marker(pytest.mark.xdist_group("alone" if folder in _ALONE else "jobs"))


@pytest.fixture(autouse=True)
def the_stack_is_as_deep_as_at_the_start() -> None:
    """Frameworks raise the limit for the whole process; "nested too deeply" would depend on the order."""
    sys.setrecursionlimit(_RECURSION_LIMIT)
