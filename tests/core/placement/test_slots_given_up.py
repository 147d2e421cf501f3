"""A device that the platform has given up gets no worker, where the run may shrink, until it says another."""

from dataclasses import replace

import pytest

from faultrun.core.phases.platform_notices import faulty_slots, hold
from faultrun.model.checkpoint import RecoveryPoint
from faultrun.model.observed.elastic import Elastic, SlotLedger, SlotsUsable, Vacant
from faultrun.model.observed.platform_notice import FaultRanks, Notice
from faultrun.model.run import Phase
from faultrun.model.stop import StopSource
from faultrun.model.topology import NodeId, NodeSlots, Topology
from support.stories.notice_stories import ends, told
from support.stories.story import NODE, Story, checkpoint, first_plan, rule

GIVEN_UP = "the platform has given up its device"
FIXED = replace(checkpoint(10), fixed_by="its state is sharded")


def elastic(world_size: int = 4, at_least: int = 2) -> Story:
    story = Story(world_size, rule(max_restarts=9))
    story.rules = replace(story.rules, elastic=Elastic(min_workers=at_least))
    story.state = replace(story.state, shrinks=True)
    return story


def places(story: Story) -> tuple[int, ...]:
    return story.plan.topology.nodes[0].places


def goes_on(story: Story, point: RecoveryPoint | None = None) -> Story:
    """From the request to save to the next plan."""
    assert story.phase is Phase.DRAINING
    return ends(story).drained().chose(point or checkpoint(10))


def names(*ranks: int) -> FaultRanks:
    return FaultRanks(ranks=frozenset(ranks), created_at=sum(ranks))


@pytest.mark.parametrize("notice", [told({1: "fault"}), told({1: "failed"}), names(1)])
def test_the_run_goes_on_without_it_and_nothing_is_charged(notice: Notice) -> None:
    story = elastic().begins().noticed(notice)
    goes_on(story).prepared()
    assert (story.phase, places(story)) == (Phase.RUNNING, (0, 2, 3))
    slots = story.plan.slots
    assert slots is not None
    assert [(one.slot, one.why, one.named) for one in slots.aside] == [(1, GIVEN_UP, True)]
    assert (story.plan.ledger.restarts, story.plan.ledger.total_restarts) == ((), 1)


def test_its_ranks_are_those_of_the_whole_world_whoever_has_a_worker_now() -> None:
    story = elastic(at_least=1).begins().noticed(names(1))
    goes_on(story).prepared().noticed(names(1, 3))
    assert "rank 2 is fault, says the platform" in story.whys[-1]
    goes_on(story).prepared()
    assert places(story) == (0, 2)
    story.noticed(told({3: "unrecovered"}))  # nobody has it
    assert story.phase is Phase.RUNNING


def test_several_go_at_once() -> None:
    story = elastic().begins().noticed(told({1: "fault", 2: "failed"}))
    goes_on(story).prepared()
    assert places(story) == (0, 3)


def test_a_reset_that_failed_ends_the_wait_for_it() -> None:
    story = elastic().begins().noticed(told({1: "unrecovered"}))
    goes_on(story)
    assert story.phase is Phase.HOLDING
    story.noticed(told({1: "failed"}))
    assert (story.phase, places(story)) == (Phase.PREPARING, (0, 2, 3))


def test_a_device_that_is_named_as_workers_end_is_left_out_too() -> None:
    story = elastic().begins().reported(r0=7).killed(2).noticed(names(1))
    goes_on(story).prepared()
    assert places(story) == (0, 2, 3)


def test_where_the_rest_cannot_go_on_the_run_waits_as_ever_and_says_why() -> None:
    story = elastic().begins().noticed(told({1: "fault"}))
    goes_on(story, FIXED)
    assert (story.phase, places(story)) == (Phase.HOLDING, ())
    assert story.whys[-1] == "workers wait for the platform: rank 1 is marked as faulty"
    slots = story.plan.slots
    assert slots is not None
    assert slots.refused == "slot 1 keeps its worker: its state is sharded"
    few = elastic(2, at_least=2).begins().noticed(told({1: "fault"}))
    goes_on(few)
    assert few.plan.slots is not None
    assert few.plan.slots.refused == "slot 1 keeps its worker: 1 worker would be left, and --min_worker_num=2"


def test_a_supervisor_that_is_lost_makes_no_device_well() -> None:
    story = elastic().begins().noticed(told({1: "fault"}))
    goes_on(story).prepared()
    story.starts(notices=(told({1: "fault"}),)).chose(checkpoint(10)).prepared()
    assert (story.phase, places(story), faulty_slots(story.state)) == (Phase.RUNNING, (0, 2, 3), (1,))
    story.starts(notices=(told({1: "recovered"}),)).chose(checkpoint(10)).prepared()
    assert (places(story), faulty_slots(story.state)) == ((0, 2, 3), ())


def test_what_was_said_before_this_supervisor_began_is_about_other_devices() -> None:
    story = elastic().starts(notices=(names(1),)).chose(None).prepared()
    assert (story.phase, places(story), faulty_slots(story.state)) == (Phase.RUNNING, (), ())


@pytest.mark.parametrize(("bad", "well"), [(told({1: "fault"}), told({1: "recovered"})), (names(1), names())])
def test_it_is_taken_back_when_the_platform_says_that_it_is_well(bad: Notice, well: Notice) -> None:
    story = elastic().begins().noticed(bad)
    goes_on(story).prepared()
    assert faulty_slots(story.state) == (1,)
    story.noticed(well)
    assert faulty_slots(story.state) == ()
    story.now(SlotsUsable, node=NODE, slots=(1,), path="ckpt/30")
    goes_on(story).prepared()
    assert (story.phase, places(story)) == (Phase.RUNNING, ())


def test_a_run_that_keeps_its_size_leaves_as_ever() -> None:
    story = Story(3).begins().noticed(told({1: "fault"}))
    assert story.state.stop is not None
    assert faulty_slots(story.state) == ()


def of_three_nodes(own: int, *vacant: int) -> Story:
    """This node has ``own`` of three seats with two workers each; nobody has those that are ``vacant``."""
    seats = tuple(
        NodeSlots(node=NODE if seat == own else NodeId(f"other{seat}"), slots=2)
        for seat in range(3)
        if seat not in vacant
    )
    gone = tuple(Vacant(seat=seat, node=NodeId("gone"), incarnation=1, why="it was lost") for seat in vacant)
    ledger = SlotLedger(vacant=gone) if gone else None
    plan = first_plan(2 * len(seats), topology=Topology(nodes=seats), slots=ledger)
    story = Story(2).begins()
    run, life = replace(story.state.run, plan=plan), replace(story.state.life, topology=plan.topology)
    return story.goes_on_from(replace(story.state, run=run, life=life, shrinks=False, fewer_nodes=True))


def test_of_nodes_that_may_be_fewer_the_one_whose_device_is_given_up_leaves_alone() -> None:
    story = of_three_nodes(1).noticed(told({1: "fault"}))
    assert (story.phase, story.state.stop) == (Phase.RUNNING, None)
    assert "its node leaves for another place" in story.whys[-1]
    story.noticed(told({1: "fault", 3: "fault"}))
    assert story.phase is Phase.DRAINING
    assert story.state.stop is not None
    assert story.state.stop.source is StopSource.PLATFORM
    asked = of_three_nodes(1).noticed(told(graceful_exit=True))
    assert asked.state.stop is not None, "all are asked to leave"


def test_of_fewer_nodes_the_platforms_ranks_are_those_of_all() -> None:
    story = of_three_nodes(2, 1).noticed(told({2: "fault", 3: "unrecovered"}))
    assert (story.phase, hold(story.state)) == (Phase.RUNNING, ""), "nobody has those devices now"
    story.noticed(told({5: "unrecovered"}))
    assert "rank 3 is unrecovered, says the platform" in story.whys[-1]
    assert story.phase is Phase.DRAINING
