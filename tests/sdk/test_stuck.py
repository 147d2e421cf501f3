"""A main thread in a broken group is freed, and the group that it forms next is left alone."""

import threading
import time

import pytest

pytest.importorskip("torch")

from faultrun.sdk.torch import stuck

pytestmark = pytest.mark.torch


def test_an_abort_that_comes_late_does_not_end_the_next_group(monkeypatch: pytest.MonkeyPatch) -> None:
    left, aborts = stuck.Left(), []

    def overslept(_: float) -> None:
        left.note(3)

    now_s = iter([0.0, 0.0, *[60.0] * 9])
    monkeypatch.setattr(time, "sleep", overslept)
    monkeypatch.setattr(time, "monotonic", lambda: next(now_s))
    stuck.free_now(left, 3, lambda: aborts.append(3))

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
