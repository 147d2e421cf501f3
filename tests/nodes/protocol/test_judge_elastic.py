"""Several nodes of which some may be missing: how long they are waited for, and what is written then."""

from dataclasses import replace

from faultrun.core.plan.next_plan import Rules
from faultrun.model.events import PlanAdopted, RunFinished
from faultrun.model.exits import Exited
from faultrun.model.incident import Cause, Incident
from faultrun.model.observed.agreement import LookAgain, OwnNodeAside
from faultrun.model.observed.elastic import Elastic, NodesWaiting
from faultrun.model.observed.node_fact import NodeStatus
from faultrun.model.topology import BootId, NodeId, NodeSlots, Topology
from faultrun.nodes.values.roster import PlanPhase
from support.nodes.etcd_in_memory import TIMES, Group
from support.stories.story import POLICY

SEATS = Topology(nodes=(NodeSlots(node=NodeId(""), slots=1),) * 3)
RULES = Rules(topology=SEATS, policy=POLICY, elastic=Elastic(min_workers=2, min_nodes=2), lease_ttl_s=10)
HEARD = Incident(number=1, incarnation=0, at_s=1, cause=Cause.ELSEWHERE, rank=None, status=None)


def members(run: Group, incarnation: int) -> str:
    (plan,) = {
        event.plan.boots
        for one in run.members
        for event in one.was_told(PlanAdopted)
        if isinstance(event, PlanAdopted) and event.incarnation == incarnation
    }
    return "".join(boot[0] for boot in plan)


def loses(run: Group, *names: str) -> Group:
    """These are gone, and the ranks of the others have ended."""
    for name in names:
        run.is_gone(name)
    run.settles()
    for one in run.members:
        one.says(NodeStatus.JOINED, incident=HEARD, look=0)
    return run.settles()


def looks(run: Group) -> Group:
    for one in run.members:
        (asked,) = one.was_told(LookAgain)
        assert isinstance(asked, LookAgain)
        one.says(NodeStatus.JOINED, look=asked.number)
    return run.settles()


def test_after_the_wait_the_others_look_once_more_and_go_on() -> None:
    run = loses(Group("a", "b", "c", rules=RULES).starts(), "b")
    run.passes(TIMES.node_wait_s - 1)
    assert (run.phase, run["a"].waits) == ((0, PlanPhase.GO), "b")
    run.passes(2)
    assert run.phase == (0, PlanPhase.LOOK)
    looks(run)
    assert (run.phase, members(run, 1)) == ((1, PlanPhase.PREPARE), "ac")
    run.prepares(1).runs(1)
    assert run.phase == (1, PlanPhase.GO)


def test_one_that_comes_while_they_look_has_its_place_again() -> None:
    run = loses(Group("a", "b", "c", rules=RULES).starts(), "b").passes(TIMES.node_wait_s + 1)
    again = Group("b", rules=RULES)["b"]
    again.run, again.fact = run, replace(again.fact, boot=BootId("b2"))
    again.says(NodeStatus.JOINED, look=1)
    run.members.append(again)
    run.settles()
    for name in "ac":
        run[name].says(NodeStatus.JOINED, look=1)
    run.settles()
    assert members(run, 1) == "abc"


def test_another_that_is_lost_while_they_look_is_waited_for_too() -> None:
    least_one = replace(RULES, elastic=Elastic(min_workers=1, min_nodes=1))
    run = loses(Group("a", "b", "c", rules=least_one).starts(), "b").passes(TIMES.node_wait_s + 1)
    run.is_gone("c")
    run["a"].says(NodeStatus.JOINED, look=1)
    run.settles().passes(TIMES.node_wait_s - 1)
    assert run.phase == (0, PlanPhase.LOOK)
    run.passes(2)
    run["a"].says(NodeStatus.JOINED, look=2)
    run.settles()
    assert members(run, 1) == "a"


def test_too_few_end_as_ever() -> None:
    run = loses(Group("a", "b", "c", rules=RULES).starts(), "b", "c").passes(TIMES.node_wait_s + 1)
    (end,) = run["a"].was_told(RunFinished)
    assert isinstance(end, RunFinished)
    assert (end.exit_code, end.why) == (69, "b, c did not come within 1 min")


def test_it_begins_with_those_that_have_come_when_the_wait_is_over() -> None:
    run = Group("a", "c", rules=RULES).settles().passes(TIMES.node_wait_s - 1)
    assert not run["a"].was_told(PlanAdopted)
    run.passes(2)
    assert (run.phase, members(run, 0)) == ((0, PlanPhase.PREPARE), "ac")


def fewer() -> Group:
    """It trains without b."""
    run = loses(Group("a", "b", "c", rules=RULES).starts(), "b").passes(TIMES.node_wait_s + 1)
    return looks(run).prepares(1).runs(1)


def comes(run: Group, name: str, boot: str, **more: object) -> None:
    one = Group(name, rules=RULES)[name]
    one.run, one.fact = run, replace(one.fact, boot=BootId(boot), **more)  # type: ignore[arg-type]
    run.members.append(one)
    run.settles()


def news(run: Group, name: str) -> list[tuple[NodeId, ...]]:
    return [event.nodes for event in run[name].was_told(NodesWaiting) if isinstance(event, NodesWaiting)]


def test_the_coordinator_s_supervisor_knows_who_could_take_a_vacant_seat_now() -> None:
    run = fewer()
    assert news(run, "a") == []
    comes(run, "b", "b2")
    assert news(run, "a") == [("b",)]
    run.is_gone("b")
    run.settles()
    assert news(run, "a") == [("b",), ()]
    comes(run, "b", "b3")
    assert (news(run, "a"), news(run, "c")) == ([("b",), (), ("b",)], [])


def test_at_the_next_start_it_has_its_seat_again_and_nobody_waits_for_a_place() -> None:
    run = fewer()
    comes(run, "b", "b2")
    for name in "ac":
        grown = replace(HEARD, number=2, incarnation=1, cause=Cause.GROWTH)
        run[name].says(NodeStatus.JOINED, 1, incident=grown, look=1)
    run.settles()
    if run.phase == (1, PlanPhase.LOOK):
        for one in run.members:
            one.says(NodeStatus.JOINED, look=2)
        run.settles()
    assert members(run, 2) == "abc"
    header = run.store.common().header
    assert header is not None
    assert not header.fewer


def fails_twice(run: Group, others: str) -> Group:
    """The ranks of b, in two lives."""
    for life in (0, 1):
        fell = replace(
            HEARD, number=life + 1, incarnation=life, cause=Cause.EXIT, rank=1, status=Exited(code=1)
        )
        for name in others:
            run[name].says(
                NodeStatus.JOINED, life, incident=replace(HEARD, number=life + 1, incarnation=life), look=0
            )
        run["b"].says(NodeStatus.JOINED, life, incident=fell, look=0, high_step=10 * life)
        run.settles()
        if life == 1:
            assert run.phase == (1, PlanPhase.LOOK), "b has no place any more, and may have saved last"
            looks(run)
        run.passes(2).prepares(life + 1).runs(life + 1)
    return run


def test_a_node_that_is_set_aside_is_told_and_does_not_call_itself_a_spare() -> None:
    checked = replace(RULES, elastic=Elastic(min_workers=2, min_nodes=2, health_check="doctor"))
    run = fails_twice(Group("a", "b", "c", rules=checked).starts(), "ac")
    assert members(run, 2) == "ac"
    (told,) = run["b"].was_told(OwnNodeAside)
    assert isinstance(told, OwnNodeAside)
    assert told.why == "its ranks failed 2 times in a row while others worked"
    assert told.plan is not None
    assert (told.plan.incarnation, told.plan.aftermath and told.plan.aftermath.incident.number) == (2, 2)
    assert "this node gets no rank until --health_check passes" in run["b"].spare
    assert news(run, "a") == []
    run["b"].says(NodeStatus.JOINED, usable=(0,))
    run.settles()
    assert news(run, "a") == [("b",)]
    assert run["b"].spare == "nodes a c train; takes the place of a lost one"


def test_a_node_of_a_run_of_fixed_size_that_was_set_aside_has_a_seat_again_where_nobody_else_is() -> None:
    two = replace(
        RULES, topology=Topology(nodes=SEATS.nodes[:2]), elastic=Elastic(min_workers=2, min_nodes=2)
    )
    run = fails_twice(Group("a", "b", "c", rules=two).starts(), "a")
    assert members(run, 2) == "ac"
    heard = replace(HEARD, number=3, incarnation=2)
    run.is_gone("a")
    run.settles()
    run["c"].says(NodeStatus.JOINED, 2, incident=heard, look=0)
    run.settles()
    run.passes(2)
    assert run.phase == (2, PlanPhase.LOOK)
    for one in run.members:
        one.says(NodeStatus.JOINED, look=2)
    run.settles()
    assert members(run, 3) == "bc", "nobody is waited for"
