"""Every test of this folder runs the real program, and leaves no process behind, whether it passes or not."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.places import TESTS
from support.runs import Launcher

QUICK = (
    "test_any_rank_may_be_killed_the_first_too",
    "test_a_second_ctrl_c_cuts_the_window_short_and_says_so",
    "test_no_worker_no_loader_and_no_escaped_grandchild_outlives_the_supervisor",
    "test_a_script_that_is_not_there",
    "test_a_worker_that_cannot_start_takes_the_started_ones_with_it",
    "test_a_stderr_whose_reader_is_gone",
)
"""One of each kind, for those who cannot wait. All others are slow together, if not one by one."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if TESTS / "faults" in item.path.parents and item.name not in QUICK:
            item.add_marker(pytest.mark.slow)


@pytest.fixture
def launcher(tmp_path: Path) -> Iterator[Launcher]:
    launcher = Launcher(tmp_path)
    yield launcher
    left = launcher.close()
    assert not left, f"processes {left} outlive their supervisor"
