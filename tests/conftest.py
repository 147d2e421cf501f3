"""What holds for every test."""

import gc
import os
import signal
import sys
import time
from collections import Counter, defaultdict
from typing import Any

import pytest
from hypothesis import is_hypothesis_test, settings
from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

from faultrun.model.wire import CHECK_VARIABLE
from support.property_examples import EXAMPLES, ONE_IN, PROFILE
from tiers import is_exhaustive

pytest_plugins = ("support.mindspore_crashes",)

# Images set this for their one start. Here hundreds of processes would each compile half the launcher anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
os.environ[CHECK_VARIABLE] = "1"

# nohup and a shell's ``&`` make these ignored, and whatever a test starts would inherit that.
for _signum in (signal.SIGHUP, signal.SIGQUIT):
    signal.signal(_signum, signal.SIG_DFL)
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

_JOBS = frozenset({"faults", "benchmarks"})
"""Folders whose tests wait for real jobs; the others' compute in their own process, or start one."""
_EITHER = frozenset({"examples", "sdk"})
"""Real trainings with minutes of patience: whoever is done first takes them."""
_LONG = frozenset(
    {
        "benchmarks/tests/test_everything.py",
        "benchmarks/tests/test_hostile.py",
        "benchmarks/tests/test_pauses.py",
        "tests/adopt/test_runs.py",
        "tests/core/phases/test_picture_of_phases.py",
        "tests/examples/test_deepspeed.py",
        "tests/examples/test_fsdp2_dcp.py",
        "tests/examples/test_lightning.py",
        "tests/examples/test_mindio_ttp.py",
        "tests/examples/test_mindspore_lenet.py",
        "tests/examples/test_trainers.py",
        "tests/faults/nodes/test_faults.py",
        "tests/faults/nodes/test_hosts.py",
        "tests/faults/recovery/test_hangs.py",
        "tests/faults/recovery/test_reset_pipeline.py",
        "tests/faults/recovery/test_survivors_stay.py",
        "tests/project/test_docs_run.py",
        "tests/project/test_pythons.py",
        "tests/rehearse/test_bad_scripts.py",
        "tests/rehearse/test_rehearsals.py",
        "tests/sdk/mindspore/test_dying_gasp.py",
        "tests/sdk/torch/state/test_shards.py",
        "tests/sdk/torch/stay/test_rejoin.py",
        "tests/standby/test_codes_preloaded.py",
    }
)
"""Files of most of a minute or more: begun last, one of them would keep all others waiting for it."""
_ORDERS = (("jobs", "either", "alone"), ("either", "alone", "jobs"), ("alone", "either", "jobs"))
"""What the first, the second and every further process does; a share that is done is followed by the next."""

_FEWEST = 5

# ``make check``: files that reach a change run after the pure ones, the cheapest first, until this moment.
_REACHING = frozenset(filter(None, os.environ.get("CHECK_EXTRA", "").split(os.pathsep)))
_UNTIL_S = float(os.environ.get("CHECK_UNTIL") or "inf")
_COSTS = f"faultrun/seconds_one_in_{ONE_IN}"
_UNKNOWN_S = 2.0
_left_out: Counter[str] = Counter()
_took_s: defaultdict[str, float] = defaultdict(float)

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
    return scope not in _LONG


def _share(scope: str) -> str:
    first, second, *_ = scope.split("/")
    folder = second if first == "tests" else first
    return "jobs" if folder in _JOBS else "either" if folder in _EITHER else "alone"


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> _Shares:
    """A process for each share; plain ``pytest`` runs them in turn."""
    return _Shares(config, log)


def pytest_report_header(config: pytest.Config) -> str:
    """Which examples the property tests draw, and how to draw them once more."""
    drawn = "the same each time" if PROFILE == "ci" else f"seed {config.getoption('--hypothesis-seed')}"
    return f"property tests: profile {PROFILE}, {drawn}" + (f", {EXAMPLES} examples" if EXAMPLES else "")


def pytest_collection_finish() -> None:
    """Thousands of tests stay to the end: nobody need look for garbage among them again and again."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(tryfirst=True)  # before ``-m`` chooses by marks
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Files that only reach a change come last, and property tests draw as many examples as was asked for."""
    for item in items:
        if is_exhaustive(item.nodeid):
            item.add_marker(pytest.mark.exhaustive)
    cache = getattr(config, "cache", None)
    if _REACHING and cache is not None:
        costs = cache.get(_COSTS, {})
        items.sort(key=lambda item: costs.get(_file(item), _UNKNOWN_S) if _file(item) in _REACHING else -1.0)
    if EXAMPLES or ONE_IN != 1:
        _draw(config, items)


def _draw(config: pytest.Config, items: list[pytest.Item]) -> None:
    """With ``EXAMPLES`` or ``EXAMPLES_ONE_IN``, the number that a property test asks for is another."""
    tests = [(item, getattr(item, "obj", None)) for item in items]
    if EXAMPLES:
        config.hook.pytest_deselected(items=[item for item, test in tests if not is_hypothesis_test(test)])
        items[:] = [item for item, test in tests if is_hypothesis_test(test)]
    for _, test in tests:
        if test is not None and is_hypothesis_test(test):
            own = getattr(test, "_hypothesis_internal_use_settings", None) or settings()
            drawn = EXAMPLES or max(_FEWEST, own.max_examples // ONE_IN)
            test._hypothesis_internal_use_settings = settings(own, max_examples=drawn, print_blob=True)


def _file(item: pytest.Item) -> str:
    return item.nodeid.partition("::")[0]


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> bool | None:
    """Leave out what ``make check`` has no time for."""
    if _file(item) not in _REACHING or time.monotonic() < _UNTIL_S:
        return None
    _left_out[_file(item)] += 1
    return True


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """How long each file takes is kept, so that the cheapest can come first."""
    _took_s[report.nodeid.partition("::")[0]] += report.duration


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Beside what is known of other files."""
    cache = getattr(session.config, "cache", None)  # ``-p no:cacheprovider`` has none
    if cache is not None and not hasattr(session.config, "workerinput"):
        took_s = {file: round(seconds, 2) for file, seconds in _took_s.items() if file not in _left_out}
        cache.set(_COSTS, {**cache.get(_COSTS, {}), **took_s})


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Name what was left out."""
    if _left_out:
        files = " ".join(sorted(_left_out))
        terminalreporter.write_line(f"left out, no time: {_left_out.total()} tests of {files}: make test")


@pytest.fixture(autouse=True)
def the_stack_is_as_deep_as_at_the_start() -> None:
    """Frameworks raise the limit for the whole process; "nested too deeply" would depend on the order."""
    sys.setrecursionlimit(_RECURSION_LIMIT)
