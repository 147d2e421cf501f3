"""What is copied beside training is lent: the main thread goes on up to its next change, and no further."""

import threading

from faultrun.sdk.snapshots.copy_thread import Copier
from faultrun.sdk.worker.update_lock import UpdateLock

PATIENCE_S = 60.0


def copier() -> tuple[Copier, list[str]]:
    failures: list[str] = []
    one = Copier(failures.append)
    one.start()
    return one, failures


def test_an_update_waits_for_the_copy_and_nothing_before_it_does() -> None:
    lock, (one, _) = UpdateLock(), copier()
    goes_on, seen = threading.Event(), []

    def copy() -> None:
        assert goes_on.wait(PATIENCE_S)
        seen.append(lock.phase.value)
        lock.give_back()

    lock.boundary(lambda: None)
    lock.lend()
    one.begin(copy)
    threading.Timer(0.0, goes_on.set).start()  # the forward and backward pass of the next step
    lock.begin()
    assert seen == ["between updates"]
    lock.end()
    one.wait()
    lock.boundary(lambda: None)


def test_a_copy_that_fails_is_told_and_holds_up_nobody() -> None:
    lock, (one, failures) = UpdateLock(), copier()

    def copy() -> None:
        try:
            raise RuntimeError("no state_dict today")
        finally:
            lock.give_back()

    for _ in range(2):
        lock.lend()
        one.begin(copy)
        one.wait()
        lock.begin()
    assert failures == ["RuntimeError: no state_dict today"] * 2
