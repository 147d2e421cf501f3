"""A restart is a start of workers that answers an incident: one count, on one node and on many."""

from dataclasses import replace

import pytest

from faultrun.core.plan.after_incident import after_incident
from faultrun.model.events import PlanAdopted, RunFinished
from faultrun.model.incident import Cause, Incident
from faultrun.model.observed.node_fact import NodeStatus
from faultrun.model.plan import Ledger
from support.nodes.etcd_in_memory import Group
from support.stories.story import POLICY, first_plan


def incident(cause: Cause, number: int = 1) -> Incident:
    return Incident(number=number, incarnation=0, at_s=1, cause=cause, rank=None, status=None)


@pytest.mark.parametrize("cause", [*Cause])
def test_each_incident_that_is_answered_counts_once_whoever_is_charged(cause: Cause) -> None:
    plan = first_plan(2, ledger=Ledger(total_restarts=4))
    following = replace(plan, incarnation=1)
    answer = after_incident(POLICY, (), plan, incident(cause), following, high_step=7)
    assert isinstance(answer, PlanAdopted)
    assert answer.plan.ledger.total_restarts == 5


def test_a_spare_that_never_had_a_seat_hears_with_the_end_how_often_the_others_began_again() -> None:
    run = Group("a", "b", "c").starts()
    for one in run.members[:2]:
        one.says(NodeStatus.JOINED, incident=incident(Cause.EXIT), look=0)
    run.settles().prepares(1).runs(1)
    for one in run.members[:2]:
        one.says(NodeStatus.DONE)
    run.settles()
    ends = [event for one in run.members for event in one.was_told(RunFinished)]
    assert [(end.exit_code, end.restarts) for end in ends if isinstance(end, RunFinished)] == [(0, 1)] * 3
