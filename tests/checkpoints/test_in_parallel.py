"""Many looks at once: in order, and with what one raises."""

import threading

import pytest

from faultrun.checkpoints.in_parallel import in_parallel


def test_looks_are_at_once_and_their_answers_in_order() -> None:
    all_here = threading.Barrier(4)

    def look(item: int) -> int:
        if item < 4:
            all_here.wait(60)
        return item * item

    assert in_parallel(look, range(40), most=4, name="look") == [item * item for item in range(40)]


def test_where_no_thread_can_be_started_one_looks_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refused)
    assert in_parallel(str, range(3), most=4, name="look") == ["0", "1", "2"]


def test_what_a_look_raises_is_raised_once_nobody_looks_any_more() -> None:
    looking: set[int] = set()

    def look(item: int) -> None:
        looking.add(item)
        try:
            if item == 3:
                raise ValueError("three")
        finally:
            looking.discard(item)

    with pytest.raises(ValueError, match="three"):
        in_parallel(look, range(1000), most=4, name="look")
    assert not looking
