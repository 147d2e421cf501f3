"""What holds for every test."""

import os
import signal
import sys
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

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

# nohup and a shell's ``&`` make these ignored, and whatever a test starts would inherit that.
for _signum in (signal.SIGHUP, signal.SIGQUIT):
    signal.signal(_signum, signal.SIG_DFL)
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

_ALONE = frozenset({"core", "supervisor", "contracts", "edges"})
"""Folders whose tests compute in their own process, or start one; the others' wait for real jobs."""

_RECURSION_LIMIT = sys.getrecursionlimit()


class _Halves(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types for it
    """Two halves for ``make test``: one needs one processor, the other waits a lot."""

    def _split_scope(self, nodeid: str) -> str:
        return "alone" if nodeid.split("/")[1] in _ALONE else "jobs"


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> _Halves:
    """Each half to a process of its own; plain ``pytest`` runs them in turn."""
    return _Halves(config, log)


@pytest.fixture(autouse=True)
def the_stack_is_as_deep_as_at_the_start() -> None:
    """Frameworks raise the limit for the whole process; "nested too deeply" would depend on the order."""
    sys.setrecursionlimit(_RECURSION_LIMIT)
