"""Who speaks for which rank on the control socket, with real sockets: workers, newcomers, who is parked."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from faultrun.model.observed.dying_gasp import GaspAcknowledged
from faultrun.model.observed.standby import StandbyChanged, StandbyPhase
from faultrun.model.spec.windows import Deadline
from support.machine.control_desk import Desk, Peer, open_desk


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    with open_desk(tmp_path) as desk:
        yield desk


JOIN = {"store": "s", "page": "p"}


def park(desk: Desk, rank: int) -> Peer:
    """Who waits for the place of a rank that lives."""
    parked = desk.peer()
    parked.says("hello", rank=rank, pid=1, incarnation=3, parked=True, sdk="1")
    parked.says("can_join")
    assert desk.hears(StandbyChanged).state is StandbyPhase.PARKED
    return parked


@pytest.mark.parametrize("has_just_died", [False, True])
def test_who_is_parked_for_a_survivor_is_kept_until_that_is_replaced(desk: Desk, has_just_died: bool) -> None:
    survivor = desk.worker(0)
    desk.worker(1)
    parked = park(desk, 0)
    if has_just_died:
        survivor.connection.close()
        desk.nothing()
    for incarnation, living in ((4, 0), (5, 1)):
        desk.control.begin(incarnation, desk.page, frozenset({living}))
        for rank in (0, 1):
            desk.control.send_join(rank, JOIN, parked=rank != living)
    join = parked.is_told()
    assert (join["kind"], join["incarnation"]) == ("join", 5)


def test_a_newcomer_that_first_speaks_after_the_next_death_enters_the_group_of_that(desk: Desk) -> None:
    desk.worker(1)
    desk.nothing()
    for incarnation, survivors in ((4, {1}), (5, {0})):
        desk.control.begin(incarnation, desk.page, frozenset(survivors))
        for rank in (0, 1):
            desk.control.send_join(rank, JOIN)
    cold = desk.worker(0, incarnation=4)
    desk.nothing()
    assert (told := cold.is_told())["kind"] == "join" and told["incarnation"] == 5
    assert list(desk.control.connected) == [0]


def test_what_a_newcomer_said_before_it_died_takes_nothing_from_the_next(desk: Desk) -> None:
    desk.worker(1)
    desk.nothing()
    for incarnation in (4, 5):
        desk.control.begin(incarnation, desk.page, frozenset({1}))
        desk.control.send_join(0, JOIN)
    desk.worker(0, incarnation=4)
    second = desk.worker(0, incarnation=5)
    desk.nothing()
    assert second.is_told()["kind"] == "join"


def test_who_is_parked_may_be_given_its_place_before_it_has_come_to_its_first_step(desk: Desk) -> None:
    desk.worker(1)
    desk.nothing()
    desk.control.begin(4, desk.page, frozenset({1}))
    desk.control.send_join(0, JOIN, parked=True)
    desk.control.begin(5, desk.page, frozenset({0}))
    desk.control.send_join(0, JOIN)
    parked = desk.peer()
    parked.says("hello", rank=0, pid=1, incarnation=3, parked=True, sdk="1")
    desk.nothing()
    assert parked.is_told()["incarnation"] == 5


def test_who_was_parked_and_is_being_ended_gets_no_place_though_it_has_not_hung_up(desk: Desk) -> None:
    desk.worker(0)
    desk.worker(1)
    park(desk, 0)
    desk.control.begin(4, desk.page, frozenset({1}))
    desk.control.forget_newcomer(0)
    desk.control.send_join(0, JOIN)
    late = desk.peer()
    late.says("hello", rank=0, pid=1, incarnation=3, parked=True, sdk="1")
    desk.nothing()
    cold = desk.worker(0, incarnation=4)
    desk.nothing()
    assert cold.is_told()["kind"] == "join"


def test_a_worker_that_comes_back_takes_its_place_again(desk: Desk) -> None:
    first = desk.worker(0)
    desk.nothing()
    second = desk.worker(0)
    first.connection.close()
    second.says("ack", step=1)
    desk.hears(GaspAcknowledged)
    desk.control.request_gasp(frozenset({0}), Deadline.after(1, desk.reactor.now()), peers_lost=False)
    assert second.is_told()["kind"] == "gasp"


def test_what_a_worker_starts_does_not_speak_for_it_while_it_lives(desk: Desk) -> None:
    worker = desk.worker(0)
    desk.nothing()
    child = desk.peer()
    child.says("hello", rank=0, pid=2, incarnation=3, sdk="1")
    child.says("ack", step=9)
    desk.nothing()
    worker.says("ack", step=1)
    assert desk.hears(GaspAcknowledged).step == 1
    worker.connection.close()
    second = desk.peer()  # of a shell that runs one program after the other
    second.says("hello", rank=0, pid=3, incarnation=3, sdk="1")
    second.says("ack", step=2)
    assert desk.hears(GaspAcknowledged).step == 2
