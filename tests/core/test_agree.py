"""One node or many: what the run does next, from what each of them stated last."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from faultrun.core.agree import Adopt, Answer, Finish, Go, Rules, Wait, next_step
from faultrun.model.events import Exited, Signaled, Status
from faultrun.model.facts import NodeFact, Standing
from faultrun.model.incident import Cause, Incident
from faultrun.model.plan import Attempt, Ledger, Plan, Reason, Restart
from faultrun.model.stop import StopSource
from faultrun.model.topology import BootId, NodeId, NodeSlots, Topology
from support.generated import values
from support.story import POLICY, checkpoint, rule

A, B = NodeId("a"), NodeId("b")
TWO = Topology(nodes=(NodeSlots(node=A, slots=2), NodeSlots(node=B, slots=2)))
ONE = Topology(nodes=(NodeSlots(node=A, slots=2),))
RULES = Rules(topology=TWO, policy=POLICY)


def fact(node: NodeId, standing: Standing, **more: object) -> NodeFact:
    plain = NodeFact(node=node, boot=BootId("b"), at_s=0, incarnation=0, standing=standing)
    return replace(plain, **more)  # type: ignore[arg-type]


def incident(at_s: float = 0.0, status: Status | None = None, number: int = 1) -> Incident:
    return Incident(
        number=number,
        incarnation=0,
        at_s=at_s,
        cause=Cause.EXIT,
        rank=0,
        status=status or Exited(code=3),
        followers=(),
    )


def plan(incarnation: int = 0, **ledger: object) -> Plan:
    return Plan(
        incarnation=incarnation,
        topology=TWO,
        reason=Reason.FIRST,
        point=None,
        start_at_s=0,
        ledger=Ledger(**ledger),  # type: ignore[arg-type]
    )


def answer(*facts: NodeFact, after: Plan | None = None, rules: Rules = RULES, now_s: float = 10) -> Answer:
    return next_step(rules, after, {one.node: one for one in facts}, now_s)


def adopted(*facts: NodeFact, after: Plan | None = None, now_s: float = 10) -> Plan:
    found = answer(*facts, after=after, now_s=now_s)
    assert isinstance(found, Adopt), found
    return found.plan


def test_nothing_is_planned_before_every_node_has_spoken() -> None:
    assert answer(fact(A, Standing.JOINED, incarnation=-1)) == Wait(why="waiting for b")


def test_the_first_plan_follows_the_first_nodes_recovery_point() -> None:
    joined = [fact(A, Standing.JOINED, incarnation=-1), fact(B, Standing.JOINED, incarnation=-1)]
    fresh = adopted(*joined)
    assert (fresh.incarnation, fresh.reason, fresh.point, fresh.start_at_s) == (0, Reason.FIRST, None, 10)

    resumed = adopted(replace(joined[0], point=checkpoint(7)), joined[1])
    assert (resumed.reason, resumed.point) == (Reason.CONTINUED, checkpoint(7))


def test_go_is_given_once_all_are_ready_and_the_first_node_names_the_port() -> None:
    ready = fact(A, Standing.READY, master_port=29500)
    waiting = answer(ready, fact(B, Standing.JOINED), after=plan())
    assert waiting == Wait(why="not prepared yet: b")
    given_ = answer(ready, fact(B, Standing.READY, master_port=29999), after=plan())
    assert given_ == Go(incarnation=0, master_port=29500)


def test_the_run_is_done_when_every_node_is() -> None:
    half = answer(fact(A, Standing.DONE), fact(B, Standing.READY), after=plan())
    assert isinstance(half, Wait)
    done = answer(fact(A, Standing.DONE), fact(B, Standing.DONE), after=plan())
    assert done == Finish(exit_code=0, why="every rank finished")


def test_the_earliest_incident_of_all_nodes_is_charged_and_counted() -> None:
    late, early = incident(at_s=9, number=2), incident(at_s=5, number=2)
    found = adopted(
        fact(A, Standing.JOINED, incident=late, high_step=4),
        fact(B, Standing.JOINED, incident=early, high_step=6),
        after=plan(incidents=1),
    )
    assert (found.incarnation, found.reason) == (1, Reason.FAULT)
    assert found.ledger == Ledger(
        restarts=(Restart(at_s=10, step=6),), high_step=6, incidents=2, total_restarts=1, alike=1
    )


def test_a_node_that_was_lost_without_an_incident_costs_nothing() -> None:
    before = plan(3, restarts=(Restart(at_s=1, step=0),), incidents=1, total_restarts=1)
    joined = [fact(A, Standing.JOINED, incarnation=3), fact(B, Standing.JOINED, incarnation=3)]
    found = adopted(*joined, after=before)
    assert (found.incarnation, found.reason, found.ledger) == (4, Reason.CONTINUED, before.ledger)


def test_a_spent_budget_ends_the_run_with_the_first_failures_code() -> None:
    rules = replace(RULES, policy=rule(max_restarts=0))
    failed = fact(A, Standing.JOINED, incident=incident(status=Signaled(signum=11)))
    found = answer(failed, fact(B, Standing.JOINED), after=plan(), rules=rules)
    assert found == Finish(exit_code=139, why="restarts are turned off (--max_restarts=0)")


def test_of_two_incidents_the_earlier_says_how_a_run_without_a_budget_ends() -> None:
    rules = replace(RULES, policy=rule(max_restarts=0))
    late, early = incident(at_s=9, status=Exited(code=9)), incident(at_s=5, status=Exited(code=5))
    facts = [fact(A, Standing.JOINED, incident=late), fact(B, Standing.JOINED, incident=early)]
    found = answer(*facts, after=plan(), rules=rules)
    assert isinstance(found, Finish)
    assert found.exit_code == 5


def test_a_stop_waits_for_workers_and_then_beats_everything_else() -> None:
    stopping = fact(A, Standing.DRAINED, stop=StopSource.SIGINT, failure=(65, "none whole"))
    assert isinstance(answer(stopping, fact(B, Standing.READY), after=plan()), Wait)
    found = answer(stopping, fact(B, Standing.DONE), after=plan())
    assert found == Finish(exit_code=130, why="stopped by SIGINT; none whole", stopped=True)


def test_the_user_may_choose_the_exit_code_of_a_stop() -> None:
    rules = replace(RULES, exit_code_on_stop=0)
    stopped = [fact(node, Standing.DRAINED, stop=StopSource.SIGTERM) for node in (A, B)]
    assert answer(*stopped, after=plan(), rules=rules) == Finish(
        exit_code=0, why="stopped by SIGTERM", stopped=True
    )


def test_a_node_that_cannot_go_on_ends_the_run() -> None:
    found = answer(
        fact(A, Standing.JOINED), fact(B, Standing.JOINED, failure=(65, "none whole")), after=plan()
    )
    assert found == Finish(exit_code=65, why="none whole")


def test_asked_again_about_the_same_statements_it_makes_no_second_plan() -> None:
    facts = [fact(A, Standing.JOINED, incident=incident()), fact(B, Standing.JOINED)]
    first = adopted(*facts, after=plan())
    assert answer(*facts, after=first) == Wait(why="the plan is on its way to a, b")


def test_a_recovery_point_that_did_not_help_is_counted_in_the_plan() -> None:
    stuck = replace(plan(), point=checkpoint(5, path="p"))
    found = adopted(fact(A, Standing.JOINED, incident=incident()), fact(B, Standing.JOINED), after=stuck)
    assert found.ledger.attempts == (Attempt(path="p", failures=1),)


@pytest.mark.parametrize("source", StopSource)
def test_every_kind_of_stop_has_an_exit_code(source: StopSource) -> None:
    found = answer(fact(A, Standing.DRAINED, stop=source), rules=replace(RULES, topology=ONE), after=plan())
    assert isinstance(found, Finish)
    assert found.exit_code in (129, 130, 143)


@settings(max_examples=40)
@given(st.dictionaries(st.sampled_from([A, B]), values(NodeFact)), st.none() | values(Plan))
def test_every_set_of_statements_is_answered_and_plans_only_grow(
    facts: dict[NodeId, NodeFact], before: Plan | None
) -> None:
    found = next_step(RULES, before, facts, 10.0)
    if isinstance(found, Adopt) and before is not None:
        assert found.plan.incarnation == before.incarnation + 1
    if isinstance(found, Wait | Finish):
        assert found.why or any(fact.failure for fact in facts.values())
