"""Nodes that are lost for good leave a seat vacant, and whoever comes takes it (``--nnodes=MIN:MAX``)."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from faultrun.core.placement.slots import workers_words
from faultrun.core.plan.next_plan import next_step
from faultrun.core.plan.waiting import Waiting
from faultrun.model.checkpoint import OnNode, RankFile, RecoveryPoint
from faultrun.model.events import RunFinished
from faultrun.model.observed.elastic import Elastic, Grow
from faultrun.model.observed.node_fact import NodeFact, NodeStatus
from faultrun.model.plan import Plan
from faultrun.model.stop import StopSource
from faultrun.model.topology import NodeId
from faultrun.nodes.protocol.waiting_nodes import newcomers
from support.nodes.node_facts import fact_with
from support.nodes.seats import (
    ELASTIC,
    FIXED,
    THREE,
    A,
    B,
    C,
    D,
    fact,
    follows,
    names,
    planned,
    rules,
    seats,
    waits_for,
)
from support.stories.story import checkpoint


def without_b() -> Plan:
    return planned(THREE, fact(A), fact(C))


def test_who_is_missing_is_waited_for_and_then_the_rest_goes_on_in_its_order() -> None:
    assert waits_for(THREE, (fact(A), fact(C))) == "b"
    plan = without_b()
    assert names(plan) == "ac"
    assert [plan.topology.ranks_of(node) for node in (A, C)] == [range(2), range(2, 4)]
    assert plan.slots is not None
    assert [(one.seat, one.node, one.why) for one in plan.slots.vacant] == [(1, B, "it was lost")]
    assert workers_words(plan) == "2 of 3 nodes, without node b: it was lost"
    assert plan.point is not None
    assert [file.rank for file in plan.point.files] == [0, 1, 2, 3]
    assert plan.ledger.restarts == THREE.ledger.restarts


def test_a_node_that_was_told_to_stop_is_not_called_lost_after_it_has_left() -> None:
    plan = follows(THREE, (fact(A), fact(C)), wait_is_over=True, stopped=(B,))
    assert isinstance(plan, Plan)
    assert workers_words(plan) == "2 of 3 nodes, without node b: it was told to stop"


def test_without_the_option_and_below_the_least_it_waits_however_long() -> None:
    assert waits_for(THREE, (fact(A), fact(C)), None, wait_is_over=True) == "b"
    assert waits_for(THREE, (fact(A),), wait_is_over=True) == "b, c"


def test_a_spare_takes_the_place_at_once() -> None:
    plan = planned(THREE, fact(A), fact(C), fact(D), wait_is_over=False)
    assert (names(plan), plan.slots) == ("adc", None)
    assert [(one.node, one.by) for one in plan.replaced] == [(B, D)]


def test_it_begins_with_those_that_came_and_the_others_get_the_last_seats() -> None:
    assert waits_for(None, (fact(A, None), fact(C, None))) == "another node"
    plan = planned(None, fact(A, None), fact(C, None))
    assert names(plan) == "ac"
    assert workers_words(plan) == "2 of 3 nodes, without one that has not come"
    assert names(planned(plan, fact(A, plan), fact(C, plan), fact(B, plan), wait_is_over=False)) == "acb"


def test_who_comes_back_has_its_own_seat_again_and_another_gets_it_where_that_one_comes_first() -> None:
    small = without_b()
    back = planned(small, fact(A, small), fact(C, small), fact(B, small), wait_is_over=False)
    assert (names(back), back.slots, back.replaced) == ("abc", None, ())
    assert back.point is not None
    assert [file.rank for file in back.point.files] == list(range(6))
    other = planned(small, fact(A, small), fact(C, small), fact(D, small), wait_is_over=False)
    assert names(other) == "adc"


def test_nobody_is_waited_for_twice() -> None:
    small = without_b()
    assert names(planned(small, fact(A, small), fact(C, small), wait_is_over=False)) == "ac"
    assert waits_for(small, (fact(A, small),), wait_is_over=True) == "c"


def test_a_node_that_was_told_to_stop_is_waited_for_and_left_out_like_any() -> None:
    stopped = replace(fact(B), stop=StopSource.SIGTERM)
    assert waits_for(THREE, (fact(A), stopped, fact(C))) == "b"
    plan = planned(THREE, fact(A), stopped, fact(C))
    assert workers_words(plan) == "2 of 3 nodes, without node b: it was told to stop"


def test_never_from_a_point_that_depends_on_the_number_and_it_is_said_by_name() -> None:
    for wait_is_over in (False, True):
        waits = waits_for(THREE, (fact(A, point=FIXED), fact(C, point=FIXED)), wait_is_over=wait_is_over)
        assert waits == f"b (2 nodes cannot go on: {FIXED.fixed_by})"
    here = (fact(A, None, FIXED), fact(C, None, FIXED))
    assert (
        waits_for(None, here, wait_is_over=True) == f"another node (2 nodes cannot go on: {FIXED.fixed_by})"
    )


def test_an_older_point_that_serves_any_number_is_taken_rather_than_to_wait() -> None:
    here = [fact_with(fact(node, point=FIXED), more_points=(checkpoint(7),)) for node in (A, C)]
    plan = planned(THREE, *here)
    assert plan.point is not None
    assert (plan.point.global_step, names(plan)) == (7, "ac")


def test_as_many_as_before_begin_from_any_point() -> None:
    small = without_b()
    here = [fact(node, small, FIXED) for node in (A, C)]
    assert names(planned(small, *here, fact(B, small), wait_is_over=False)) == "ac"
    moved = planned(small, fact(A, small, FIXED), fact(B, small, FIXED), wait_is_over=False)
    assert (names(moved), moved.point) == ("ab", FIXED)
    assert moved.slots is not None
    assert [one.node for one in moved.slots.vacant] == [C]


def test_it_does_not_go_back_to_an_older_point_to_be_more() -> None:
    small = without_b()
    here = [fact_with(fact(node, small, FIXED), more_points=(checkpoint(7),)) for node in (A, C, B)]
    plan = planned(small, *here, wait_is_over=False)
    assert (names(plan), plan.point) == ("ac", FIXED)


def test_disks_of_their_own_keep_their_own_files() -> None:
    def own(node: NodeId) -> NodeFact:
        point = replace(checkpoint(10, f"{node}/net"), source=OnNode(node=node), files=())
        return fact(node, point=point)

    plan = planned(THREE, own(A), own(C))
    assert plan.point is not None
    assert [file.path for file in plan.point.files] == ["a/net", "a/net", "c/net", "c/net"]


def hybrid(groups: str) -> RecoveryPoint:
    files = tuple(RankFile(rank=rank, path=f"part{rank % 2}", from_rank=rank % 2) for rank in range(6))
    return replace(checkpoint(10), files=files, restore_ranks_map=groups)


def test_a_node_that_has_a_whole_copy_of_the_model_leaves_with_it_and_comes_back_with_one() -> None:
    point = hybrid('{"0,2,4": 0, "1,3,5": 1}')
    plan = planned(THREE, fact(A, point=point), fact(C, point=point))
    assert plan.point is not None
    assert plan.slots is not None
    assert [file.path for file in plan.point.files] == ["part0", "part1"] * 2
    assert plan.slots.groups == ((0, 2, 4), (1, 3, 5))
    here = [fact(node, plan, plan.point) for node in (A, C, B)]
    back = planned(plan, *here, wait_is_over=False)
    assert back.point is not None
    assert [file.path for file in back.point.files] == ["part0", "part1"] * 3
    assert back.slots is None


def test_a_copy_that_lies_on_several_nodes_is_not_broken() -> None:
    point = hybrid('{"0,1": 0, "2,3": 1, "4,5": 2}')
    waits = waits_for(THREE, (fact(A, point=point), fact(C, point=point)), wait_is_over=True)
    assert waits == "b (2 nodes cannot go on: no other rank has a copy)"


def test_a_newcomer_that_found_nothing_whole_gets_no_seat_that_the_others_can_do_without() -> None:
    lacks, well = fact_with(fact(D), point=None, lacks="1 found, none whole"), fact(NodeId("e"), at=999)
    assert waits_for(THREE, (fact(A), fact(C), lacks)) == "b"
    assert names(planned(THREE, fact(A), fact(C), lacks)) == "ac"
    assert names(planned(THREE, fact(A), fact(C), lacks, well)) == "aec"
    small = without_b()
    assert newcomers(ELASTIC, small, {D: lacks}) == ()
    assert names(planned(small, fact(A, small), fact(C, small), lacks, wait_is_over=False)) == "ac"
    again = replace(THREE, topology=seats(A, C))  # it had become smaller, and is started with all of them
    told = next_step(rules(), again, {A: fact(A), C: fact(C), D: lacks}, 1.0)
    assert isinstance(told, RunFinished)
    assert told.why == "node d: 1 found, none whole", "nobody is waited for"
    needed = next_step(rules(), THREE, {A: fact(A), D: lacks}, 1.0, wait_is_over=True)
    assert isinstance(needed, RunFinished)
    assert (needed.exit_code, needed.why, needed.wanting) == (65, "node d: 1 found, none whole", (A, D))


def test_only_nodes_that_can_take_a_vacant_seat_are_news() -> None:
    small = without_b()

    def who(*facts: NodeFact, elastic: Elastic = ELASTIC, plan: Plan = small) -> str:
        return "".join(newcomers(elastic, plan, {one.node: one for one in facts}))

    training = [fact_with(fact(node, small), status=NodeStatus.RUNNING) for node in (A, C)]
    assert who(*training) == ""
    assert who(*training, fact(B, small, at=2), fact(D, small, at=1)) == "d"
    assert who(*training, replace(fact(B, small), stop=StopSource.SIGTERM)) == ""
    assert who(*training, fact(B, small), plan=THREE) == ""
    assert who(*training, fact(B, small), elastic=replace(ELASTIC, grow=Grow.NEVER)) == ""


def test_who_grows_never_gives_a_vacant_seat_to_nobody() -> None:
    never = replace(ELASTIC, grow=Grow.NEVER)
    small = without_b()
    here = (fact(A, small), fact(C, small), fact(B, small))
    assert names(planned(small, *here, elastic=never, wait_is_over=False)) == "ac"
    moved = planned(small, fact(A, small), fact(D, small), elastic=never, wait_is_over=False)
    assert names(moved) == "ad"
    assert moved.slots is not None
    assert [one.seat for one in moved.slots.vacant] == [1]


BY_TABLE = replace(ELASTIC, fixed_seats=True)


def listed(node: NodeId, seat: int, plan: Plan | None = THREE, at: int = 0) -> NodeFact:
    return replace(fact(node, plan, at=at), seat=seat)


def test_with_a_rank_table_a_seat_is_for_who_is_listed_for_it() -> None:
    plan = planned(None, listed(C, 2, None), listed(A, 0, None), elastic=BY_TABLE)
    assert (names(plan), plan.seat_numbers) == ("ac", (0, 2))
    assert plan.slots is not None
    assert [one.seat for one in plan.slots.vacant] == [1]
    here = [listed(A, 0, plan), listed(C, 2, plan)]
    for stranger in (listed(D, 2, plan), fact(D, plan)):
        assert newcomers(BY_TABLE, plan, {D: stranger}) == ()
        assert names(planned(plan, *here, stranger, elastic=BY_TABLE)) == "ac"
    assert newcomers(BY_TABLE, plan, {D: listed(D, 1, plan)}) == (D,)
    grown = planned(plan, *here, listed(D, 1, plan), elastic=BY_TABLE, wait_is_over=False)
    assert (names(grown), grown.slots, grown.seat_numbers) == ("adc", None, (0, 1, 2))


def test_with_a_rank_table_a_lost_nodes_place_is_for_who_the_platform_has_put_there() -> None:
    here = [listed(A, 0), listed(C, 2)]
    assert waits_for(THREE, [*here, listed(D, 2)], BY_TABLE) == "b"
    assert names(planned(THREE, *here, listed(D, 1), elastic=BY_TABLE, wait_is_over=False)) == "adc"
    both = [*here, listed(B, 1, at=9), listed(D, 1, at=1)]
    assert names(planned(THREE, *both, elastic=BY_TABLE, wait_is_over=False)) == "abc"
    never = replace(BY_TABLE, grow=Grow.NEVER)
    small = planned(THREE, *here, elastic=never)
    three = [listed(A, 0, small), listed(C, 2, small), listed(B, 1, small)]
    assert names(planned(small, *three, elastic=never, wait_is_over=False)) == "ac"


@given(
    st.integers(1, 3),
    st.lists(st.tuples(st.sets(st.sampled_from("abcde")), st.booleans(), st.booleans()), max_size=8),
)
def test_never_fewer_than_asked_for_never_in_another_order_and_only_who_is_not_there_leaves(
    least: int, moments: list[tuple[set[str], bool, bool]]
) -> None:
    elastic = Elastic(min_workers=2 * least, min_nodes=least)
    plan = THREE
    for there, fixed, wait_is_over in moments:
        here = [fact(NodeId(name), plan, FIXED if fixed else None) for name in there]
        following = follows(plan, here, elastic, wait_is_over=wait_is_over)
        before = names(plan)
        if isinstance(following, Waiting):
            assert following.missing
            continue
        now = names(following)
        assert least <= len(now) <= 3
        assert set(now) <= there
        assert len(now) >= len(before) or wait_is_over
        assert len(now) == len(before) or not fixed
        stay = [name for name in before if name in now]
        assert stay == [name for name in before if name in there]
        assert stay == [name for name in now if name in before]
        vacant = () if following.slots is None else following.slots.vacant
        assert len(now) + len(vacant) == 3
        plan = following
