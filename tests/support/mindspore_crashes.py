"""A plugin of pytest: a test in which MindSpore crashed by itself is made once more, and that is said.

A thread of its cluster library reads freed memory now and then, as a process meets the others or leaves
(2.9: ``RECV_EVENT_LOOP`` in ``libmindspore_cluster.so``). The run then takes one start more than the test
expects, and nothing that it says of incarnations, ranks and losses holds.
"""

import json
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from _pytest.runner import runtestprotocol

_TEMPORARY = pytest.StashKey[pytest.TempPathFactory]()
_MADE_AGAIN = "made again"
_OF_MINDSPORE = "libmindspore"
_SIGABRT, _SIGSEGV = 6, 11


@pytest.fixture(scope="session", autouse=True)
def folders_of_tests_are_known(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> None:
    request.config.stash[_TEMPORARY] = tmp_path_factory


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Make the test, and all its fixtures, once more where it failed beside such a crash."""
    if item.get_closest_marker("mindspore") is None:
        return None
    began_s, before = time.time(), told_by_the_kernel()
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    reports = runtestprotocol(item, nextitem=nextitem, log=False)
    if any(report.failed for report in reports):
        folder = item.config.stash[_TEMPORARY].getbasetemp()
        if told_by_the_kernel() - before or told_by_journals(folder, began_s):
            item.session._setupstate.teardown_exact(None)
            reports = runtestprotocol(item, nextitem=nextitem, log=False)
            reports[0].user_properties.append((_MADE_AGAIN, item.nodeid))
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Nothing is made again in silence."""
    for reports in terminalreporter.stats.values():
        for report in reports:
            for name, value in getattr(report, "user_properties", ()):
                if name == _MADE_AGAIN:
                    terminalreporter.write_line(f"MADE AGAIN, since MindSpore crashed by itself: {value}")


def told_by_the_kernel() -> frozenset[str]:
    """Its lines about crashes in MindSpore's libraries; none where it does not tell us."""
    with suppress(OSError):
        said = subprocess.run(["dmesg"], capture_output=True, text=True, errors="replace", check=False).stdout
        return frozenset(line for line in said.splitlines() if _OF_MINDSPORE in line)
    return frozenset()


def told_by_journals(folder: Path, since_s: float) -> bool:
    """Whether a rank of a run below ``folder`` crashed; ``since_s`` on the wall clock."""
    return any(_tells(path) for path in folder.rglob("journal.jsonl") if path.stat().st_mtime >= since_s)


def _tells(journal: Path) -> bool:
    for text in journal.read_bytes().splitlines():
        with suppress(ValueError):
            line = json.loads(text)
            ended = line["event"] in ("WorkerExit", "HelperExit") and not line.get("done")
            if ended and line["status"].get("signum") in (_SIGABRT, _SIGSEGV):
                return True
    return False
