"""A plugin of pytest: a test in which MindSpore crashed by itself is made once more, and that is said.

A thread of its cluster library reads freed memory now and then, as a process meets the others or leaves
(2.9: ``RECV_EVENT_LOOP`` in ``libmindspore_cluster.so``). The run then takes one start more than the test
expects, and nothing that it says of incarnations, ranks and losses holds. The kernel names the thread and the
library; nobody else is believed, so that no crash of ours is taken for one of these.
"""

import re
import subprocess
from contextlib import suppress
from typing import Any

import pytest
from _pytest.runner import runtestprotocol

_MADE_AGAIN = "made again"
_CRASH = re.compile(r"RECV_EVENT_LOOP.*libmindspore_cluster")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Make the test, and all its fixtures, once more where it failed beside such a crash."""
    if item.get_closest_marker("mindspore") is None:
        return None
    before = told_by_the_kernel()
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    reports = runtestprotocol(item, nextitem=nextitem, log=False)
    if any(report.failed for report in reports) and told_by_the_kernel() - before:
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
    """Its lines about crashes of that thread; none where it does not tell us."""
    with suppress(OSError):
        said = subprocess.run(["dmesg"], capture_output=True, text=True, errors="replace", check=False).stdout
        return frozenset(line for line in said.splitlines() if _CRASH.search(line))
    return frozenset()
