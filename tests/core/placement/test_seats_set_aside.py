"""A node whose ranks fail again and again gives up its seat, where it can be done without."""

from dataclasses import replace

import pytest

from faultrun.core.placement.node_seats import can_do_without_one
from faultrun.core.placement.place import does_without
from faultrun.core.placement.slots import workers_words
from faultrun.model.checkpoint import RecoveryPoint
from faultrun.model.exits import Exited
from faultrun.model.incident import Cause, Incident
from faultrun.model.observed.elastic import Elastic, NodeAside, SlotLedger
from faultrun.model.observed.node_fact import NodeFact, NodeStatus
from faultrun.model.plan import Plan
from faultrun.model.topology import NodeId
from faultrun.nodes.protocol.waiting_nodes import newcomers
from support.nodes.node_facts import fact_with
from support.nodes.seats import ELASTIC, FIXED, THREE, A, B, C, D, fact, names, planned, seats, waits_for
from support.stories.story import first_plan


def fails(node: NodeId, plan: Plan, rank: int, number: int, point: RecoveryPoint | None = None) -> NodeFact:
    incident = Incident(
        number=number,
        incarnation=plan.incarnation,
        at_s=float(number),
        cause=Cause.EXIT,
        rank=rank,
        status=Exited(code=1),
        node=node,
    )
    return fact_with(fact(node, plan, point), incident=incident, high_step=10 * number)


def twice(*others: NodeId, point: RecoveryPoint | None = None, elastic: Elastic = ELASTIC) -> Plan:
    """A rank of b fails, then another of it."""
    plan = THREE
    for number, rank in ((1, 2), (2, 3)):
        here = [fact(node, plan, point) for node in (A, C, *others)]
        plan = planned(plan, *here, fails(B, plan, rank, number, point), elastic=elastic, wait_is_over=False)
    return plan


def test_a_node_whose_ranks_failed_twice_in_a_row_is_set_aside_at_once_and_really_gets_no_rank() -> None:
    plan = twice()
    assert names(plan) == "ac"
    assert plan.aftermath is not None
    assert (plan.topology.world_size, plan.aftermath.world_size) == (4, 6)
    why = "its ranks failed 2 times in a row while others worked"
    until = "it gets no rank until its --health_check passes"
    assert workers_words(plan) == f"2 of 3 nodes, without node b: {why}; {until}"
    assert plan.ledger.total_restarts == 2
    here = [fact(node, plan) for node in (A, C)]
    idle = replace(fact(B), incarnation=plan.incarnation - 1)
    assert newcomers(ELASTIC, plan, {B: idle}) == ()
    assert names(planned(plan, *here, idle)) == "ac"
    well = fact_with(idle, usable=(0, 1))
    assert newcomers(ELASTIC, plan, {B: well}) == (B,)
    back = planned(plan, *here, well, wait_is_over=False)
    assert (names(back), back.slots) == ("abc", None)


def test_a_spare_takes_the_place_of_a_node_that_is_set_aside() -> None:
    plan = twice(D)
    assert names(plan) == "adc"
    assert workers_words(plan).startswith("node b is set aside: its ranks failed 2 times in a row")
    assert plan.slots is not None
    assert plan.slots.vacant == ()


ALL = Elastic(min_workers=6, min_nodes=3)
"""A run of fixed size: bad nodes are only replaced."""


def test_of_a_fixed_number_a_bad_node_gives_its_seat_to_a_spare_and_gets_one_where_nobody_else_can() -> None:
    plan = twice(D, elastic=ALL, point=FIXED)
    assert (names(plan), plan.point) == ("adc", FIXED)
    assert workers_words(plan).startswith("node b is set aside: its ranks failed 2 times in a row")
    here = [fact(D, plan), fact(C, plan), replace(fact(B), incarnation=0)]
    waits = "node b is set aside: its ranks failed 2 times in a row while others worked"
    checked = replace(ALL, health_check="doctor")
    assert waits_for(plan, here, checked, wait_is_over=True) == f"a ({waits})", "its check speaks against it"
    well = [*here[:2], fact_with(here[2], usable=(0, 1))]
    assert names(planned(plan, *well, elastic=checked, wait_is_over=False)) == "bdc"
    back = planned(plan, *here, elastic=ALL, wait_is_over=False)
    assert (names(back), does_without(plan, back)) == ("bdc", True), "at once: nobody else can have it"
    assert workers_words(back) == ""
    full = replace(fact(A, plan), unfit=True, failure=(71, "no space"))
    back = planned(plan, full, *here, elastic=ALL, wait_is_over=False)
    assert names(back) == "bdc", "rather than that it ends with what that node lacks"


def test_of_a_fixed_number_nobody_is_counted_out_who_is_needed() -> None:
    plan = planned(None, *(fact(node, None) for node in (A, B, C)), elastic=ALL, wait_is_over=False)
    assert plan.slots is None
    assert waits_for(plan, (fact(A, plan), fact(C, plan)), ALL, wait_is_over=True) == "b"
    assert names(planned(plan, fact(A, plan), fact(C, plan), fact(D, plan), elastic=ALL)) == "adc"
    two = replace(first_plan(4), topology=seats(A, B))
    others = planned(two, fact(A, two, FIXED), fact(B, two, FIXED), fact(C, None, FIXED), elastic=ALL)
    assert (names(others), others.point) == ("abc", FIXED), "as a run that is started with another number"


def test_survivors_stay_beside_a_bad_node_that_nobody_can_replace() -> None:
    busy = {node: fact_with(fact(node), status=NodeStatus.RUNNING) for node in (A, B, C)}
    assert not can_do_without_one(ALL, THREE, busy)
    assert can_do_without_one(ELASTIC, THREE, busy)
    assert can_do_without_one(ALL, THREE, {**busy, D: fact(D)})
    plan = replace(THREE, slots=SlotLedger(nodes=(NodeAside(node=D, incarnation=1, why="bad"),)))
    assert not can_do_without_one(ALL, plan, {**busy, D: fact(D)})


@pytest.mark.parametrize(
    ("elastic", "point", "why"), [(ALL, None, "no spare was there"), (ELASTIC, FIXED, FIXED.fixed_by)]
)
def test_a_node_that_cannot_be_done_without_keeps_its_seat_and_it_is_said(
    elastic: Elastic, point: RecoveryPoint | None, why: str
) -> None:
    plan = twice(point=point, elastic=elastic)
    assert names(plan) == "abc"
    failed = "its ranks failed 2 times in a row while others worked"
    assert workers_words(plan) == f"node b keeps its place ({failed}): {why}"
