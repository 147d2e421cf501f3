"""Several nodes of which some may be missing: how long they are waited for, and what is written then."""

from dataclasses import replace

from faultrun.core.agree import Rules
from faultrun.model.agreement import LookAgain
from faultrun.model.elastic import Elastic
from faultrun.model.events import PlanAdopted, RunFinished
from faultrun.model.facts import NodeStatus
from faultrun.model.incident import Cause, Incident
from faultrun.model.roster import PlanPhase
from faultrun.model.topology import BootId, NodeId, NodeSlots, Topology
from support.member_group import TIMES, Group
from support.story import POLICY

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
    assert (end.exit_code, end.why) == (69, "b, c did not come within 60 s")


def test_it_begins_with_those_that_have_come_when_the_wait_is_over() -> None:
    run = Group("a", "c", rules=RULES).settles().passes(TIMES.node_wait_s - 1)
    assert not run["a"].was_told(PlanAdopted)
    run.passes(2)
    assert (run.phase, members(run, 0)) == ((0, PlanPhase.PREPARE), "ac")
