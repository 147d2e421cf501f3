"""A plan that nobody has to prepare for is begun by the write that makes it; any other is prepared by all."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from faultrun.model.checkpoint import RecoveryPoint
from faultrun.model.events import GoGiven, PlanAdopted
from faultrun.model.exits import Exited
from faultrun.model.incident import Cause, Incident
from faultrun.model.observed.agreement import IncarnationOver
from faultrun.model.observed.node_fact import NodeStatus
from faultrun.nodes.values.roster import PlanPhase
from support.nodes.etcd_in_memory import Group
from support.stories.story import checkpoint

POINT, OLDER = checkpoint(5), checkpoint(4)
FELL = Incident(number=1, incarnation=0, at_s=0, cause=Cause.EXIT, rank=0, status=Exited(code=3))


def drained(*ports: int, points: tuple[RecoveryPoint | None, ...] = (POINT, POINT)) -> Group:
    """Both nodes are through with incarnation 0; this is where each could meet the other, and what it saw."""
    run = Group("a", "b").starts()
    for one, port, point in zip(run.members, ports, points, strict=True):
        one.says(NodeStatus.JOINED, point=point, more_points=(OLDER,), open_port=port, incident=FELL)
    return run.settles()


def failed_once_more() -> Group:
    run = drained(7, 8).prepares(1).runs(1)
    for one in run.members:
        incident = replace(FELL, number=2, incarnation=1)
        one.says(NodeStatus.JOINED, 1, open_port=9, incident=incident)
    return run.settles()


def test_nodes_that_need_nothing_start_by_the_plan_itself_when_they_have_prepared() -> None:
    run = drained(7, 8)
    assert run.phase == (1, PlanPhase.GO)
    assert not [go for go in run["b"].was_told(GoGiven) if go.incarnation == 1]  # type: ignore[attr-defined]
    run.prepares(1)
    gone = [go for one in run.members for go in one.was_told(GoGiven) if go.incarnation == 1]  # type: ignore[attr-defined]
    assert {(go.master_addr, go.master_port) for go in gone} == {("10.0.0.a", 7)}  # type: ignore[attr-defined]
    assert len(gone) == 2


def test_who_starts_at_once_does_not_say_first_that_it_is_ready() -> None:
    run = drained(7, 8)
    before = [run.stated(one) for one in run.members]
    run.prepares(1)
    assert [one.was_told(GoGiven)[-1].incarnation for one in run.members] == [1, 1]  # type: ignore[attr-defined]
    assert [run.stated(one) for one in run.members] == before
    assert [run.stated(one) for one in run.runs(1).members] == [(NodeStatus.RUNNING, 1)] * 2


def test_who_is_ready_for_an_incarnation_that_is_over_says_so() -> None:
    run = drained(7, 8)
    run["b"].says(NodeStatus.JOINED, 1, failure=(65, "a file is gone"), open_port=0, look=-1, incident=None)
    run.settles()
    run["a"].says(NodeStatus.READY, 1, master_port=7)
    run.settles()
    assert run.stated(run["a"]) == (NodeStatus.READY, 1)
    assert run["a"].was_told(IncarnationOver)


@pytest.mark.parametrize(
    "run",
    [
        lambda: drained(7, 0),
        lambda: drained(7, 8, points=(POINT, None)),
        lambda: drained(7, 8, points=(OLDER, POINT)),
        failed_once_more,
    ],
    ids=["somebody has to prepare", "one sees nothing", "one sees only what is older", "it is to wait"],
)
def test_all_prepare_first_where_one_may_be_late(run: Callable[[], Group]) -> None:
    phase = run().phase
    assert phase is not None
    assert phase[1] is PlanPhase.PREPARE


def test_the_first_plan_of_a_run_is_always_prepared() -> None:
    run = Group("a", "b")
    for one in run.members:
        one.says(NodeStatus.JOINED, open_port=7)
    assert run.settles().phase == (0, PlanPhase.PREPARE)


def test_a_node_that_cannot_prepare_against_its_word_ends_the_incarnation_for_all() -> None:
    run = drained(7, 8)
    run["a"].says(NodeStatus.READY, 1, master_port=7)
    run.settles()
    run["a"].says(NodeStatus.RUNNING, 1)
    run["b"].says(NodeStatus.JOINED, 1, failure=(65, "a file is gone"), open_port=0, look=-1, incident=None)
    run.settles()
    assert run["b"].was_told(PlanAdopted)
    over = [one for one in run["a"].was_told(IncarnationOver) if one.incarnation == 1]  # type: ignore[attr-defined]
    assert [one.why for one in over] == ["node b cannot go on: a file is gone"]  # type: ignore[attr-defined]
