"""What a rank hears of its peers' deaths, and when."""

import queue
import threading

from faultrun.sdk.regroup import Regroup


def test_a_loss_that_was_heard_before_anybody_asked_is_told_once_and_the_next_ones_as_they_come() -> None:
    regroup, told = Regroup(), queue.SimpleQueue[int]()
    regroup.hear({"kind": "peer_lost", "incarnation": 0, "timeout_s": 5}, lambda: -1)
    regroup.when_lost(lambda: told.put(threading.get_ident()))
    assert told.get(timeout=60) != threading.get_ident()
    regroup.when_lost(lambda: told.put(0))
    assert told.empty()
    regroup.hear({"kind": "peer_lost", "incarnation": 1, "timeout_s": 5}, lambda: -1)
    assert told.get(timeout=60) == 0
