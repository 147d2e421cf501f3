"""A main thread in a broken group is freed, and the group that it forms next is left alone."""

import threading
from collections.abc import Callable

import pytest

pytest.importorskip("torch")

from faultrun.sdk.torch import stuck

pytestmark = pytest.mark.torch


class LeavesLate(stuck.Left):
    """Its main thread lets go between the last look and the abort."""

    def unless(self, incarnation: int, abort: Callable[[], None]) -> None:
        self.note(incarnation)
        super().unless(incarnation, abort)


def test_an_abort_that_comes_late_does_not_end_the_next_group() -> None:
    aborts: list[int] = []
    stuck.free_now(LeavesLate(), 3, lambda: aborts.append(3))
    assert aborts == []


def test_one_that_does_not_come_out_is_freed_and_nobody_forms_a_group_meanwhile() -> None:
    left, under_way, goes_on, events = stuck.Left(), threading.Event(), threading.Event(), []

    def abort() -> None:
        under_way.set()
        assert goes_on.wait(60)
        events.append("aborted")

    freeing = threading.Thread(target=stuck.free_now, args=(left, 3, abort))
    freeing.start()
    assert under_way.wait(60)

    def leave() -> None:
        left.note(3)
        events.append("left")

    leaving = threading.Thread(target=leave)
    leaving.start()
    leaving.join(0.05)
    assert leaving.is_alive(), "it left in the middle of an abort"
    goes_on.set()
    leaving.join(60)
    freeing.join(60)

    assert events == ["aborted", "left"]
