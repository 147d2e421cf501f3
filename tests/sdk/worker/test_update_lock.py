"""The lock between a main thread that changes a state and a helper that reads it."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace

import pytest

from faultrun.sdk.worker.state_provider import SaveOrder, limits_of
from faultrun.sdk.worker.update_lock import HoldLimits, NotSaved, UpdateLock, UpdatePhase


def soon(window_s: float = 5.0, settle_s: float = 0.05, stuck_s: float = 0.1) -> HoldLimits:
    return HoldLimits(until_s=time.monotonic() + window_s, settle_s=settle_s, stuck_s=stuck_s)


def nothing() -> None:
    pass


@pytest.fixture
def lock() -> UpdateLock:
    lock = UpdateLock()
    lock.boundary(nothing)
    return lock


def held(
    lock: UpdateLock, limits: HoldLimits, complete: Callable[[], bool] = lambda: False
) -> Future[UpdatePhase]:
    """Hold in another thread, and know that it waits before this one goes on."""
    pool = ThreadPoolExecutor(1)
    future = pool.submit(lock.hold, limits, complete)
    pool.shutdown(wait=False)
    until_s = time.monotonic() + 5
    while not lock.is_wanted and not future.done() and time.monotonic() < until_s:
        threading.Event().wait(0.001)
    return future


def test_before_the_first_boundary_nothing_is_consistent() -> None:
    with pytest.raises(NotSaved, match="before the first step"):
        UpdateLock().hold(soon(0.2), lambda: True)


def test_a_rank_that_lost_a_peer_waits_only_a_while_for_its_first_step() -> None:
    lock = UpdateLock()
    with pytest.raises(NotSaved, match="no step is finished"):
        lock.hold(replace(soon(30.0), first_s=0.1), lambda: False)
    lock.boundary(nothing)
    lock.begin()
    with pytest.raises(NotSaved, match="until the window was over"):
        lock.hold(replace(soon(0.3), first_s=0.1), lambda: False)


def test_only_a_rank_that_lost_a_peer_gives_up_its_first_step() -> None:
    order = SaveOrder(until_s=time.monotonic() + 30, leaves=True)
    assert limits_of(order).first_s == float("inf")
    assert limits_of(replace(order, peers_lost=True)).first_s < 10


def test_between_updates_the_state_can_be_held_at_once_after_it_settled(lock: UpdateLock) -> None:
    assert lock.hold(soon(settle_s=0.0), lambda: False) is UpdatePhase.CLEAN


def test_a_step_that_ends_while_we_settle_is_the_one_we_get(lock: UpdateLock) -> None:
    future = held(lock, soon(settle_s=4.0))
    lock.begin()
    lock.end()
    steps: list[int] = []
    lock.boundary(lambda: steps.append(2))
    assert future.result(2) is UpdatePhase.CLEAN
    assert steps == [2]


def test_inside_an_update_the_reader_waits_for_its_end_and_for_the_boundary(lock: UpdateLock) -> None:
    lock.begin()
    future = held(lock, soon(settle_s=0.0, stuck_s=4.0), lambda: True)
    lock.end()
    assert not future.done()
    lock.boundary(nothing)
    assert future.result(2) is UpdatePhase.CLEAN


def test_while_the_state_is_held_the_main_thread_cannot_begin_an_update(lock: UpdateLock) -> None:
    lock.hold(soon(settle_s=0.0), lambda: False)
    began = threading.Event()

    def update() -> None:
        lock.begin()
        began.set()

    thread = threading.Thread(target=update)
    thread.start()
    assert not began.wait(0.05)
    lock.release()
    assert began.wait(2)
    thread.join()


def test_stuck_after_a_whole_update_the_state_can_be_held_as_the_next_steps(lock: UpdateLock) -> None:
    lock.begin()
    lock.end()
    assert lock.hold(soon(settle_s=0.0, stuck_s=0.05), lambda: True) is UpdatePhase.UPDATED


def test_stuck_after_half_an_update_the_state_is_refused(lock: UpdateLock) -> None:
    lock.begin()
    lock.end()
    with pytest.raises(NotSaved, match="after an update"):
        lock.hold(soon(0.2, settle_s=0.0, stuck_s=0.05), lambda: False)


def test_a_script_that_stopped_in_an_update_is_refused_without_waiting(lock: UpdateLock) -> None:
    lock.begin()
    future = held(lock, soon(30.0))
    lock.stop()
    with pytest.raises(NotSaved, match="half changed"):
        future.result(2)


def test_a_script_that_stopped_before_its_first_step_has_changed_nothing() -> None:
    lock = UpdateLock()
    lock.stop()
    with pytest.raises(NotSaved, match=r"stopped before the first step$"):
        lock.hold(soon(30.0), lambda: True)


def test_a_script_that_stopped_between_updates_is_held_without_settling(lock: UpdateLock) -> None:
    lock.stop()
    began_s = time.monotonic()
    assert lock.hold(soon(30.0, settle_s=20.0), lambda: False) is UpdatePhase.CLEAN
    assert time.monotonic() - began_s < 5


def test_a_moment_that_is_not_due_is_passed_over() -> None:
    lock = UpdateLock()
    step = 0

    def count() -> None:
        nonlocal step
        step += 1

    lock.boundary(count)
    pool = ThreadPoolExecutor(1)
    future = pool.submit(lock.hold, soon(), lambda: False, lambda: step == 3)
    lock.boundary(count)
    assert not future.done()
    lock.boundary(count)
    assert future.result(2) is UpdatePhase.CLEAN
    pool.shutdown()
    assert step == 3


def test_whoever_yielded_goes_on_while_the_state_is_read(lock: UpdateLock) -> None:
    lock.begin()
    reader = held(lock, soon(settle_s=0.0))
    lock.boundary(nothing)
    lock.yield_to_reader()
    assert reader.result(5) is UpdatePhase.CLEAN
    lock.release()


def test_a_reader_that_gives_up_leaves_the_gate_open() -> None:
    lock = UpdateLock()
    with pytest.raises(NotSaved):
        lock.hold(soon(0.05), lambda: False)
    assert not lock.is_wanted
    lock.begin()
    lock.boundary(nothing)
    lock.yield_to_reader()
