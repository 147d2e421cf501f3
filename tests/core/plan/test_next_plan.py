"""One node or many: what the run does next, from what each of them stated last."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from faultrun.core.plan.after_incident import NextStep
from faultrun.core.plan.next_plan import Rules, next_step
from faultrun.core.plan.waiting import Waiting
from faultrun.model.checkpoint import Live, OnNode, RankFile, RecoveryPoint
from faultrun.model.events import GoGiven, PlanAdopted, RunFinished
from faultrun.model.exits import Exited, ExitStatus, Signaled
from faultrun.model.incident import Aftermath, Cause, Incident
from faultrun.model.observed.agreement import IncarnationOver
from faultrun.model.observed.evidence import FaultClass
from faultrun.model.observed.node_fact import NodeFact, NodeStatus
from faultrun.model.plan import Ledger, Plan, Reason, Restart
from faultrun.model.stop import StopSource
from faultrun.model.topology import BootId, NodeId, NodeSlots, Replacement, Topology
from support.nodes.node_facts import fact_with, node_fact
from support.stories.generated import values
from support.stories.story import POLICY, checkpoint, first_plan, rule

A, B, C = NodeId("a"), NodeId("b"), NodeId("c")
TWO = Topology(nodes=(NodeSlots(node=A, slots=2), NodeSlots(node=B, slots=2)))
ONE = Topology(nodes=(NodeSlots(node=A, slots=2),))
RULES = Rules(topology=TWO, policy=POLICY)


def fact(node: NodeId, standing: NodeStatus, **more: object) -> NodeFact:
    plain = node_fact(node=node, boot=BootId("b"), at_s=0, incarnation=0, status=standing)
    return fact_with(plain, **more)  # type: ignore[arg-type]


def incident(at_s: float = 0.0, status: ExitStatus | None = None, number: int = 1) -> Incident:
    end = status or Exited(code=3)
    return Incident(
        number=number, incarnation=0, at_s=at_s, cause=Cause.EXIT, rank=0, status=end, followers=()
    )


def plan(incarnation: int = 0, **ledger: object) -> Plan:
    return first_plan(4, incarnation=incarnation, topology=TWO, ledger=Ledger(**ledger))  # type: ignore[arg-type]


def finish(incarnation: int = 0, *, exit_code: int, why: str, stop: StopSource | None = None) -> RunFinished:
    return RunFinished(
        at_s=10, incarnation=incarnation, exit_code=exit_code, why=why, stopped=stop is not None, stop=stop
    )


def test_a_store_that_lost_its_data_gives_no_budget_back_and_no_number_of_an_incident_again() -> None:
    spent = Ledger(restarts=(Restart(at_s=3, step=5),), incidents=2, total_restarts=2, high_step=5)
    older, newer = replace(spent, incidents=1), spent
    came_back = fact(A, NodeStatus.JOINED, incarnation=1, ledger=older)
    for other in (fact(B, NodeStatus.JOINED, incarnation=2, ledger=newer), fact(B, NodeStatus.JOINED)):
        found = answer(came_back, other)
        assert isinstance(found, PlanAdopted)
        assert found.plan.ledger == (other.ledger or older)


def answer(*facts: NodeFact, after: Plan | None = None, rules: Rules = RULES, now_s: float = 10) -> NextStep:
    return next_step(rules, after, {one.node: one for one in facts}, now_s)


def adopted(*facts: NodeFact, after: Plan | None = None, now_s: float = 10) -> Plan:
    found = answer(*facts, after=after, now_s=now_s)
    assert isinstance(found, PlanAdopted), found
    return found.plan


def test_nothing_is_planned_before_every_node_has_spoken() -> None:
    assert answer(fact(A, NodeStatus.JOINED, incarnation=-1)) == Waiting(reason="b", missing=("b",))


def test_the_first_plan_follows_the_first_nodes_recovery_point() -> None:
    joined = [fact(A, NodeStatus.JOINED, incarnation=-1), fact(B, NodeStatus.JOINED, incarnation=-1)]
    fresh = adopted(*joined)
    assert (fresh.incarnation, fresh.reason, fresh.point, fresh.start_at_s) == (0, Reason.FIRST, None, 10)

    resumed = adopted(fact_with(joined[0], point=checkpoint(7)), joined[1])
    assert (resumed.reason, resumed.point) == (Reason.CONTINUED, checkpoint(7))


def test_go_is_given_once_all_are_ready_and_the_first_node_names_the_port() -> None:
    ready = fact(A, NodeStatus.READY, addr="a.example", master_port=29500)
    waiting = answer(ready, fact(B, NodeStatus.JOINED, incarnation=-1), after=plan())
    assert waiting == Waiting(reason="b to be prepared")
    given_ = answer(ready, fact(B, NodeStatus.READY, master_port=29999), after=plan())
    assert given_ == GoGiven(at_s=10, incarnation=0, master_addr="a.example", master_port=29500)


def test_the_run_is_done_when_every_node_is() -> None:
    half = answer(fact(A, NodeStatus.DONE), fact(B, NodeStatus.RUNNING), after=plan())
    assert half == Waiting(reason="the end of the workers")
    done = answer(fact(A, NodeStatus.DONE), fact(B, NodeStatus.DONE), after=plan())
    assert done == finish(exit_code=0, why="every rank finished")


def test_one_incident_of_all_nodes_is_charged_and_counted() -> None:
    late, early = incident(at_s=9, number=2), incident(at_s=5, number=2)
    found = adopted(
        fact(A, NodeStatus.JOINED, incident=late, high_step=4),
        fact(B, NodeStatus.JOINED, incident=early, high_step=6),
        after=plan(incidents=1),
    )
    assert (found.incarnation, found.reason) == (1, Reason.FAULT)
    assert found.ledger == Ledger(
        restarts=(Restart(at_s=10, step=6),), high_step=6, incidents=2, total_restarts=1, alike=1
    )


def test_a_node_that_was_lost_without_an_incident_costs_nothing() -> None:
    before = plan(3, restarts=(Restart(at_s=1, step=0),), incidents=1, total_restarts=1)
    joined = [fact(A, NodeStatus.JOINED, incarnation=3), fact(B, NodeStatus.JOINED, incarnation=3)]
    found = adopted(*joined, after=before)
    assert (found.incarnation, found.reason, found.ledger) == (4, Reason.CONTINUED, before.ledger)


def test_a_spent_budget_ends_the_run_with_the_first_failures_code() -> None:
    rules = replace(RULES, policy=rule(max_restarts=0))
    failed = fact(A, NodeStatus.JOINED, incident=incident(status=Signaled(signum=11)))
    found = answer(failed, fact(B, NodeStatus.JOINED), after=plan(), rules=rules)
    assert found == finish(exit_code=139, why="restarts are turned off (--max_restarts=0)")


FOLLOWED = replace(incident(status=Exited(code=9)), fault_class=FaultClass.CONSEQUENCE)
HEARD_OF = replace(incident(status=Exited(code=9)), cause=Cause.ELSEWHERE)


@pytest.mark.parametrize(
    ("first", "alarm", "other", "its_alarm"),
    [
        (incident(at_s=9, status=Exited(code=5)), 1, incident(at_s=5, status=Exited(code=9)), 2),
        (incident(at_s=9, status=Exited(code=5)), 7, incident(at_s=5, status=Exited(code=9)), 0),
        (incident(at_s=9, status=Exited(code=5)), 2, FOLLOWED, 1),
        (incident(at_s=9, status=Exited(code=5)), 2, HEARD_OF, 1),
        (replace(incident(status=Exited(code=5)), incarnation=1), 2, incident(status=Exited(code=9)), 1),
    ],
    ids=["alarmed first", "alarmed at all", "not a follower", "not heard of", "of the newest incarnation"],
)
def test_evidence_and_alarms_say_what_came_first_and_no_nodes_clock(
    first: Incident, alarm: int, other: Incident, its_alarm: int
) -> None:
    rules = replace(RULES, policy=rule(max_restarts=0))
    facts = [
        fact(A, NodeStatus.JOINED, incident=other, alarm=its_alarm),
        fact(B, NodeStatus.JOINED, incident=first, alarm=alarm),
    ]
    found = answer(*facts, after=plan(), rules=rules)
    assert isinstance(found, RunFinished)
    assert found.exit_code == 5


def test_what_happened_elsewhere_is_charged_to_nobody_if_none_can_tell_of_it() -> None:
    heard = fact(A, NodeStatus.JOINED, incident=HEARD_OF)
    found = next_step(RULES, plan(), {A: heard, C: fact(C, NodeStatus.JOINED, incarnation=-1)}, 10)
    assert isinstance(found, PlanAdopted)
    assert (found.plan.ledger.restarts, found.plan.ledger.incidents) == ((), 1)


def test_a_stop_waits_for_workers_and_then_beats_everything_else() -> None:
    stopping = fact(A, NodeStatus.DRAINED, stop=StopSource.SIGINT, failure=(65, "none whole"))
    waiting = answer(stopping, fact(B, NodeStatus.READY), after=plan())
    told = "node a was told to stop"
    assert waiting == IncarnationOver(at_s=10, incarnation=0, why=told, stop=StopSource.SIGINT)
    found = answer(stopping, fact(B, NodeStatus.DONE), after=plan())
    assert found == finish(exit_code=130, why="stopped by SIGINT; none whole", stop=StopSource.SIGINT)


def test_the_user_may_choose_the_exit_code_of_a_stop() -> None:
    rules = replace(RULES, exit_code_on_stop=0)
    stopped = [fact(node, NodeStatus.DRAINED, stop=StopSource.SIGTERM) for node in (A, B)]
    assert answer(*stopped, after=plan(), rules=rules) == finish(
        exit_code=0, why="stopped by SIGTERM", stop=StopSource.SIGTERM
    )


def test_a_node_that_cannot_go_on_ends_the_run() -> None:
    found = answer(
        fact(A, NodeStatus.JOINED), fact(B, NodeStatus.JOINED, failure=(65, "none whole")), after=plan()
    )
    assert found == finish(exit_code=65, why="node b: none whole")
    named = fact(B, NodeStatus.JOINED, failure=(65, "rank 1 has nothing on node b\n  because"))
    found = answer(fact(A, NodeStatus.JOINED), named, after=plan())
    assert found == finish(exit_code=65, why="rank 1 has nothing on node b\n  because")


def test_a_node_that_has_found_torn_saves_since_refuses_to_begin_at_zero_and_nothing_else() -> None:
    ready = fact(A, NodeStatus.READY, incarnation=1)
    lacks = fact(B, NodeStatus.JOINED, lacks="2 found, none whole\n  because")
    over = answer(ready, lacks, after=plan(1))
    assert isinstance(over, IncarnationOver)
    assert over.why == "node b cannot begin at zero: 2 found, none whole\n  because"
    resumes = replace(plan(1), point=checkpoint(5))
    assert answer(ready, lacks, after=resumes) == Waiting(reason="b to be prepared")


def test_the_place_of_an_unfit_node_goes_to_a_spare_and_costs_a_restart() -> None:
    lack = replace(incident(), cause=Cause.SPAWN, node=B, explanation="No space left on device")
    unfit = fact(B, NodeStatus.DRAINED, failure=(71, "no space"), unfit=True, incident=lack)
    others = (fact(A, NodeStatus.JOINED), fact(C, NodeStatus.JOINED, incarnation=-1, arrived=3))
    found = adopted(*others, unfit, after=plan())
    assert [seat.node for seat in found.topology.nodes] == [A, C]
    assert (len(found.ledger.restarts), found.aftermath) == (1, Aftermath(incident=lack))
    assert answer(*others, unfit, after=found) == Waiting(reason="a, c to hear the plan")
    before = fact_with(unfit, status=NodeStatus.JOINED, incident=None)
    assert adopted(*others, before, after=plan()).ledger.restarts == (), "no worker had been started"
    assert answer(others[0], unfit, after=plan()) == finish(exit_code=71, why="node b: no space")
    spent = answer(*others, unfit, after=plan(), rules=replace(RULES, policy=rule(max_restarts=0)))
    assert isinstance(spent, RunFinished)
    assert (spent.exit_code, spent.why) == (
        71,
        "node b: no space; restarts are turned off (--max_restarts=0)",
    )


def test_asked_again_about_the_same_statements_it_makes_no_second_plan() -> None:
    facts = [fact(A, NodeStatus.JOINED, incident=incident()), fact(B, NodeStatus.JOINED)]
    first = adopted(*facts, after=plan())
    assert answer(*facts, after=first) == Waiting(reason="a, b to hear the plan")


@pytest.mark.parametrize("stale", [NodeStatus.READY, NodeStatus.RUNNING, NodeStatus.DONE])
@pytest.mark.parametrize("both", [False, True])
def test_statements_of_an_earlier_incarnation_start_and_end_nothing(stale: NodeStatus, both: bool) -> None:
    now = fact(A, stale, incarnation=0 if both else 1)
    found = answer(now, fact(B, stale, incarnation=0), after=plan(1))
    assert isinstance(found, Waiting | IncarnationOver)
    assert not (isinstance(found, IncarnationOver) and found.incarnation == 1)


def test_whoever_is_prepared_hears_of_one_that_cannot_be() -> None:
    ready, failed = (
        fact(A, NodeStatus.READY),
        fact(B, NodeStatus.JOINED, failure=(78, "no such key\n  because")),
    )
    assert answer(ready, failed, after=plan()) == IncarnationOver(
        at_s=10, incarnation=0, why="node b cannot go on: no such key\n  because"
    )
    assert answer(fact(A, NodeStatus.JOINED), failed, after=plan()) == finish(
        exit_code=78, why="node b: no such key\n  because"
    )


@pytest.mark.parametrize("incarnation", [-1, 0, 1])
def test_a_node_with_another_supervisor_takes_no_part_in_the_incarnation(incarnation: int) -> None:
    made = replace(plan(1), boots=(BootId("b"), BootId("b")))
    back = fact(B, NodeStatus.JOINED, incarnation=incarnation, boot=BootId("later"))
    found = answer(fact(A, NodeStatus.RUNNING, incarnation=1), back, after=made)
    assert found == IncarnationOver(at_s=10, incarnation=1, why="node b has another supervisor")
    following = adopted(fact(A, NodeStatus.JOINED, incarnation=1), back, after=made)
    assert (following.incarnation, following.boots) == (2, ("b", "later"))


def test_a_lost_node_ends_the_incarnation_and_the_spare_that_came_first_gets_its_place() -> None:
    spare, later = (
        fact(node, NodeStatus.JOINED, incarnation=-1, arrived=at, point=checkpoint(8))
        for node, at in ((NodeId("z"), 3), (C, 4))
    )
    training = {A: fact(A, NodeStatus.RUNNING), C: later, spare.node: spare}
    assert next_step(RULES, plan(), training, 10) == IncarnationOver(
        at_s=10, incarnation=0, why="node b was lost; ranks 2 3"
    )
    drained = training | {A: fact(A, NodeStatus.JOINED, point=checkpoint(7))}
    found = next_step(RULES, plan(), drained, 10)
    assert isinstance(found, PlanAdopted)
    assert [seat.node for seat in found.plan.topology.nodes] == [A, spare.node]
    assert found.plan.point == checkpoint(8)
    assert found.plan.replaced == (Replacement(node=B, by=spare.node, ranks=(2, 3)),)
    named = next_step(replace(RULES, lease_ttl_s=3), plan(), training, 10)
    assert isinstance(named, IncarnationOver)
    assert named.why == "node b was lost: it ended, or etcd heard nothing of it for 3 s; ranks 2 3"
    del drained[C], drained[spare.node]
    assert next_step(RULES, plan(), drained, 10) == Waiting(reason="b", missing=("b",))


def test_a_node_comes_back_as_a_spare_and_takes_nobodys_place() -> None:
    moved = replace(
        plan(1), topology=Topology(nodes=(NodeSlots(node=A, slots=2), NodeSlots(node=C, slots=2)))
    )
    facts = {node: fact(node, NodeStatus.JOINED, incarnation=1) for node in (A, C)}
    found = next_step(RULES, moved, facts | {B: fact(B, NodeStatus.JOINED)}, 10)
    assert isinstance(found, PlanAdopted)
    assert found.plan.topology == moved.topology


def test_seats_without_a_name_are_given_in_the_order_of_arrival() -> None:
    seat = NodeSlots(node=NodeId(""), slots=2)
    rules = replace(RULES, topology=Topology(nodes=(seat, seat)))
    first, second = (
        fact(node, NodeStatus.JOINED, incarnation=-1, arrived=at) for node, at in ((A, 9), (B, 4))
    )
    assert answer(rules=rules) == Waiting(reason="2 other nodes", missing=("2 other nodes",))
    assert answer(first, rules=rules) == Waiting(reason="another node", missing=("another node",))
    found = answer(first, second, rules=rules)
    assert isinstance(found, PlanAdopted)
    assert found.plan.topology == Topology(nodes=(replace(seat, node=B), replace(seat, node=A)))


def on_disk(node: NodeId, step: int) -> RecoveryPoint:
    path = f"{node}/net-{step}"
    files = tuple(RankFile(rank=rank, path=f"{path}_{rank}") for rank in range(4))
    return replace(checkpoint(step, path), source=OnNode(node=node), files=files)


def test_of_all_nodes_points_the_furthest_that_every_node_can_load_is_chosen() -> None:
    def chosen(a: list[RecoveryPoint], b: list[RecoveryPoint]) -> RecoveryPoint | None:
        joined = (
            fact(node, NodeStatus.JOINED, incarnation=-1, point=points[0], more_points=tuple(points[1:]))
            for node, points in ((A, a), (B, b))
        )
        return adopted(*joined).point

    assert chosen([checkpoint(5)], [checkpoint(6), checkpoint(5)]) == checkpoint(6)
    assert chosen([on_disk(A, 9), checkpoint(5)], [checkpoint(6), checkpoint(5)]) == checkpoint(6)
    both = chosen([on_disk(A, 9), on_disk(A, 8)], [on_disk(B, 8), on_disk(B, 7)])
    assert both is not None
    assert (both.global_step, [file.path for file in both.files]) == (
        8,
        ["a/net-8_0", "a/net-8_1", "b/net-8_2", "b/net-8_3"],
    )
    assert chosen(
        [replace(checkpoint(9), source=Live(rank=0)), checkpoint(5)], [checkpoint(5), checkpoint(4)]
    ) == checkpoint(5)


@pytest.mark.long
@settings(max_examples=40)
@given(st.dictionaries(st.sampled_from([A, B]), values(NodeFact)), st.none() | values(Plan))
def test_every_set_of_statements_is_answered_and_plans_only_grow(
    facts: dict[NodeId, NodeFact], before: Plan | None
) -> None:
    facts = {node: replace(fact, node=node) for node, fact in facts.items()}
    found = next_step(RULES, before, facts, 10.0)
    if isinstance(found, PlanAdopted) and before is not None:
        assert found.plan.incarnation == before.incarnation + 1
    if isinstance(found, Waiting | RunFinished):
        why = found.reason if isinstance(found, Waiting) else found.why
        assert why or any(fact.failure for fact in facts.values())
