"""What a member process waits for: in threads, once at a time, answered in its loop."""

import select
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import pytest

from faultrun.nodes.agent.thread_tasks import ThreadTasks
from support.machine.processes import PATIENCE_S, no_more_threads


def brought(errands: ThreadTasks) -> None:
    """Wait for something, and do what it brings."""
    assert select.select([errands.fd], [], [], PATIENCE_S)[0]
    errands.answered()


@pytest.mark.parametrize(
    ("lack", "there"), [(nullcontext, "fetch"), (no_more_threads, threading.current_thread().name)]
)
def test_the_work_is_done_elsewhere_if_a_thread_is_to_be_had_and_its_answer_here(
    lack: Callable[[], AbstractContextManager[None]], there: str
) -> None:
    errands, where = ThreadTasks(), []

    def work() -> Callable[[], object]:
        where.append(threading.current_thread().name)
        return lambda: where.append(threading.current_thread().name)

    with lack():
        assert errands.send("fetch", work)
    brought(errands)
    assert where == [there, threading.current_thread().name]


def test_one_of_a_name_is_under_way_until_its_answer_was_heard() -> None:
    errands, go, done = ThreadTasks(), threading.Event(), []

    def work() -> Callable[[], object]:
        go.wait(PATIENCE_S)
        return lambda: done.append(1)

    assert errands.send("grant", work)
    assert not errands.send("grant", work)
    assert errands.send("other", work)
    go.set()
    while len(done) < 2:
        brought(errands)
    assert errands.send("grant", work)
    brought(errands)


def test_a_bug_in_one_is_raised_in_the_loop() -> None:
    errands = ThreadTasks()

    def work() -> Callable[[], object]:
        raise KeyError("a bug")

    errands.send("grant", work)
    with pytest.raises(KeyError, match="a bug"):
        brought(errands)
