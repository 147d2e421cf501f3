"""What holds for every test."""

import gc
import os
import signal
import sys
from typing import Any

import pytest
from hypothesis import HealthCheck, is_hypothesis_test, settings
from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

pytest_plugins = ("support.mindspore_crashes",)

# A red build must mean that the change is wrong, and not that the machine has other work.
settings.register_profile("desk", deadline=None, suppress_health_check=[HealthCheck.too_slow])
# CI draws the same examples each time, a desk draws new ones.
settings.register_profile(
    "ci", settings.get_profile("desk"), derandomize=True, print_blob=True, database=None
)
# ``make soak-properties``: every property test and nothing else, with this many examples each.
_EXAMPLES = int(os.environ.get("EXAMPLES") or 0)
settings.register_profile(
    "long", settings.get_profile("desk"), max_examples=_EXAMPLES or 100, print_blob=True
)
# ``make check``: of the examples that a test asks for, one in as many as this.
_ONE_IN = int(os.environ.get("EXAMPLES_ONE_IN") or 1)
_PROFILE = "long" if _EXAMPLES else "ci" if os.environ.get("CI") else "desk"
settings.load_profile(_PROFILE)

# Images set this for their one start. Here hundreds of processes would each compile half the launcher anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# nohup and a shell's ``&`` make these ignored, and whatever a test starts would inherit that.
for _signum in (signal.SIGHUP, signal.SIGQUIT):
    signal.signal(_signum, signal.SIG_DFL)
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

_JOBS = frozenset({"faults", "soak"})
"""Folders whose tests wait for real jobs; the others' compute in their own process, or start one."""
_EITHER = frozenset({"examples", "sdk"})
"""Real trainings with minutes of patience: whoever is done first takes them."""
_LONG = frozenset(
    {
        *(
            "adopt/test_runs",
            "rehearse/test_bad_scripts",
            "rehearse/test_rehearsals",
            "project/test_docs_run",
        ),
        *("standby/test_codes_preloaded", "core/test_phases", "project/test_pythons"),
        *("examples/test_deepspeed", "examples/test_fsdp2_dcp", "examples/test_lightning"),
        *("examples/test_transformers_trainer", "examples/test_mindspore_lenet", "examples/test_mindio_ttp"),
        *("sdk/test_two_trainers", "sdk/test_rejoin", "sdk/test_torch_shards", "sdk/test_mindspore_gasp"),
        *("faults/test_survivors_stay", "faults/test_several_nodes", "faults/test_several_nodes_mindspore"),
        *("faults/test_reset_pipeline", "faults/test_several_nodes_faults", "faults/test_hangs"),
        *("soak/test_stay", "soak/test_pauses", "soak/test_everything", "soak/test_hostile"),
    }
)
"""Files of most of a minute or more: begun last, one of them would keep all others waiting for it."""
_ORDERS = (("jobs", "either", "alone"), ("either", "alone", "jobs"), ("alone", "either", "jobs"))
"""What the first, the second and every further process does; a share that is done is followed by the next."""

_FEWEST = 5

_RECURSION_LIMIT = sys.getrecursionlimit()


class _Shares(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types for it
    """``make test``, file by file: one process waits for jobs, one for trainings, and one computes."""

    def _split_scope(self, nodeid: str) -> str:
        return nodeid.partition("::")[0]

    def _reschedule(self, node: Any) -> None:
        """The next file is given out no earlier than it must: a process knows it before its last test."""
        if not self.workqueue or self._pending_of(self.assigned_work[node]) < 2:
            super()._reschedule(node)

    def _assign_work_unit(self, node: Any) -> None:
        """Its own share first, then the others'; jobs run beside jobs only when nothing else is left."""
        place = list(self.assigned_work).index(node)
        for share in _ORDERS[min(place, len(_ORDERS) - 1)]:
            scopes = [scope for scope in self.workqueue if _share(scope) == share]
            if scopes:
                self.workqueue.move_to_end(min(scopes, key=_turn), last=False)
                super()._assign_work_unit(node)
                return
        node.shutdown()


def _turn(scope: str) -> bool:
    """The long ones first; those that compare equal stay in their order."""
    return scope.removeprefix("tests/").removesuffix(".py") not in _LONG


def _share(scope: str) -> str:
    folder = scope.split("/")[1]
    return "jobs" if folder in _JOBS else "either" if folder in _EITHER else "alone"


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> _Shares:
    """A process for each share; plain ``pytest`` runs them in turn."""
    return _Shares(config, log)


def pytest_report_header(config: pytest.Config) -> str:
    """Which examples the property tests draw, and how to draw them once more."""
    drawn = "the same each time" if _PROFILE == "ci" else f"seed {config.getoption('--hypothesis-seed')}"
    return f"property tests: profile {_PROFILE}, {drawn}" + (f", {_EXAMPLES} examples" if _EXAMPLES else "")


def pytest_collection_finish() -> None:
    """Thousands of tests stay to the end: nobody need look for garbage among them again and again."""
    gc.collect()
    gc.freeze()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """With ``EXAMPLES`` or ``EXAMPLES_ONE_IN``, the number that a property test asks for is another."""
    if not _EXAMPLES and _ONE_IN == 1:
        return
    tests = [(item, getattr(item, "obj", None)) for item in items]
    if _EXAMPLES:
        config.hook.pytest_deselected(items=[item for item, test in tests if not is_hypothesis_test(test)])
        items[:] = [item for item, test in tests if is_hypothesis_test(test)]
    for _, test in tests:
        if test is not None and is_hypothesis_test(test):
            own = getattr(test, "_hypothesis_internal_use_settings", None) or settings()
            drawn = _EXAMPLES or max(_FEWEST, own.max_examples // _ONE_IN)
            test._hypothesis_internal_use_settings = settings(own, max_examples=drawn, print_blob=True)


@pytest.fixture(autouse=True)
def the_stack_is_as_deep_as_at_the_start() -> None:
    """Frameworks raise the limit for the whole process; "nested too deeply" would depend on the order."""
    sys.setrecursionlimit(_RECURSION_LIMIT)
