"""What a rank hears of its peers' deaths, and when."""

import os
import queue
import threading
from typing import Any

from faultrun.sdk.stay.next_group import Regroup


def test_a_loss_that_was_heard_before_anybody_asked_is_told_once_and_the_next_ones_as_they_come() -> None:
    regroup, told = Regroup(), queue.SimpleQueue[int]()
    regroup.hear({"kind": "peer_lost", "incarnation": 0, "timeout_s": 5}, lambda: -1)
    regroup.when_lost(lambda: told.put(threading.get_ident()))
    assert told.get(timeout=60) != threading.get_ident()
    regroup.when_lost(lambda: told.put(0))
    assert told.empty()
    regroup.hear({"kind": "peer_lost", "incarnation": 1, "timeout_s": 5}, lambda: -1)
    assert told.get(timeout=60) == 0


def test_a_newcomer_that_is_told_of_the_next_group_first_still_has_what_the_dead_rank_left() -> None:
    regroup, (fd, other) = Regroup(), os.pipe()
    join: dict[str, Any] = {"kind": "join", "page": "page:0", "timeout_s": 5}
    place = {"fds": 1, "stdout": "worker_2.log", "stderr": "worker_2.log", "error_file": "error_2.json"}
    regroup.hear({**join, "incarnation": 6, "store": "six", **place}, lambda: fd)
    regroup.hear({"kind": "peer_lost", "incarnation": 6, "timeout_s": 5}, lambda: -1)
    regroup.hear({**join, "incarnation": 7, "store": "seven"}, lambda: -1)
    entered = regroup.wait_join(-1, 60)
    assert entered is not None
    assert (entered.incarnation, entered.store, entered.memory) == (7, "seven", fd)
    assert (entered.stdout, entered.error_file) == ("worker_2.log", "error_2.json")
    os.write(other, b"1")
    assert os.read(fd, 1) == b"1", "it was closed"
    os.close(fd)
    os.close(other)


def test_a_group_with_empty_places_names_them_and_is_not_one_in_which_all_stayed() -> None:
    regroup = Regroup()
    join: dict[str, Any] = {"kind": "join", "store": "store", "page": "page:0", "timeout_s": 5}
    several: tuple[dict[str, Any], ...] = ({}, {"missing": [1, 3]}, {"missing": []})
    for incarnation, fields in enumerate(several):
        regroup.hear({**join, "incarnation": incarnation, "newcomers": [], **fields}, lambda: -1)
        entered = regroup.wait_join(-1, 60)
        assert entered is not None
        assert entered.missing == tuple(fields.get("missing", ()))
        assert entered.all_stayed == (not entered.missing)


def test_a_rank_that_has_finished_is_none_of_those_that_are_lost() -> None:
    regroup = Regroup()
    join = {"kind": "join", "incarnation": 2, "store": "store", "page": "page:0", "newcomers": [3]}
    assert not regroup.keeps(0, 1, 0.0), "nothing is known yet"
    regroup.hear({**join, "missing": [0, 1], "finished": [0]}, lambda: -1)
    assert [regroup.keeps(rank, 1, 0.0) for rank in range(4)] == [True, False, True, False]
