"""Of several nodes, who has drained first looks through the checkpoints while others still save."""

from dataclasses import replace

import pytest

from faultrun.model.agreement import LookAgain
from faultrun.model.checkpoint import Identity, RecoveryPoint
from faultrun.model.events import PlanAdopted, RunFinished
from faultrun.model.facts import NodeStatus
from faultrun.model.plan import Plan
from faultrun.model.roster import PlanPhase
from support.member_group import Group
from support.story import checkpoint

TORN = "no whole checkpoint in ck\n  because: 1 found, none whole"


def written(step: int, mtime_ns: int, path: str = "ck/latest.pt") -> RecoveryPoint:
    """A file that its writer writes over."""
    identity = Identity(inode=7, size_bytes=100, mtime_ns=mtime_ns, global_step=step)
    return replace(checkpoint(step, path), identity=identity)


def planned(run: Group, name: str) -> Plan:
    event = run[name].was_told(PlanAdopted)[-1]
    assert isinstance(event, PlanAdopted)
    return event.plan


def end(run: Group, name: str) -> tuple[int, str]:
    (event,) = run[name].was_told(RunFinished)
    assert isinstance(event, RunFinished)
    return event.exit_code, event.why


def test_what_one_node_found_torn_is_looked_at_again_once_all_have_drained() -> None:
    run = Group("a", "b").starts()
    run["b"].says(NodeStatus.JOINED, look=0, lacks=TORN)
    run.settles()
    assert not run["b"].was_told(LookAgain), "a saves"
    run["a"].says(NodeStatus.JOINED, look=0, point=checkpoint(7))
    run.settles()
    assert run.phase == (0, PlanPhase.LOOK)
    assert all(run[name].was_told(LookAgain) for name in "ab")
    run["a"].says(NodeStatus.JOINED, look=1, point=checkpoint(7))
    run.settles()
    assert run.phase == (0, PlanPhase.LOOK), "b has not looked yet"
    run["b"].says(NodeStatus.JOINED, look=1, lacks="", point=checkpoint(7))
    run.settles()
    assert run.phase == (1, PlanPhase.PREPARE)
    assert planned(run, "b").point == checkpoint(7)


@pytest.mark.parametrize("found", [None, checkpoint(7)])
def test_what_is_torn_then_too_ends_the_run_after_one_look_more(found: RecoveryPoint | None) -> None:
    run = Group("a", "b").starts()
    run["b"].says(NodeStatus.JOINED, look=0, lacks=TORN)
    run["a"].says(NodeStatus.JOINED, look=0, point=found, lacks="" if found else TORN)
    run.settles()
    for one in run.members:
        (asked,) = one.was_told(LookAgain)
        assert isinstance(asked, LookAgain)
        one.says(NodeStatus.JOINED, look=asked.number)
    run.settles()
    assert run.phase == (0, PlanPhase.FINISHED)
    assert end(run, "a") == end(run, "b") == (65, f"node {'b' if found else 'a'}: {TORN}")


def test_a_spare_that_found_the_first_save_half_written_takes_a_place_by_what_it_sees_later() -> None:
    run = Group("a", "b", "c").starts()
    run["c"].says(NodeStatus.JOINED, look=0, lacks=TORN)
    run.settles().is_gone("b")
    run.settles()
    run["a"].says(NodeStatus.JOINED, look=0, point=checkpoint(7))
    run.settles()
    assert run.phase == (0, PlanPhase.LOOK)
    for name, lacks in (("a", ""), ("c", "")):
        run[name].says(NodeStatus.JOINED, look=1, point=checkpoint(7), lacks=lacks)
    run.settles()
    assert run.phase == (1, PlanPhase.PREPARE)
    assert planned(run, "c").point == checkpoint(7)


def test_a_save_written_over_an_older_one_that_a_node_has_seen_is_no_reason_to_go_back() -> None:
    run = Group("a", "b").starts()
    older = written(3, 100, "ck/first.pt")
    run["b"].says(NodeStatus.JOINED, look=0, point=written(5, 200), more_points=(older,))
    run["a"].says(NodeStatus.JOINED, look=0, point=written(7, 300), more_points=(older,))
    run.settles()
    assert run.phase == (0, PlanPhase.LOOK), "as if each had a disk of its own, step 3 would be common"
    for name in "ab":
        run[name].says(NodeStatus.JOINED, look=1, point=written(7, 300), more_points=(older,))
    run.settles()
    assert run.phase == (1, PlanPhase.PREPARE)
    assert planned(run, "a").point == written(7, 300)


@pytest.mark.parametrize("older", [(), (written(3, 100, "ck/first.pt"),)])
def test_disks_that_do_differ_are_looked_at_once_more_and_then_go_back_or_end(
    older: tuple[RecoveryPoint, ...],
) -> None:
    run = Group("a", "b").starts()
    own = {"a": written(7, 300), "b": written(5, 200)}
    for look in (0, 1):
        assert run.phase == ((0, PlanPhase.GO) if look == 0 else (0, PlanPhase.LOOK))
        for name in "ab":
            run[name].says(NodeStatus.JOINED, look=look, point=own[name], more_points=older)
        run.settles()
    if older:
        assert run.phase == (1, PlanPhase.PREPARE)
        point = planned(run, "a").point
        assert point is not None
        assert point.global_step == 3
    else:
        code, why = end(run, "a")
        assert (code, why.partition("\n")[0]) == (65, "the nodes have no checkpoint of the same step")


def test_a_node_that_is_lost_before_its_second_look_is_not_waited_for() -> None:
    run = Group("a", "b").starts()
    run["b"].says(NodeStatus.JOINED, look=0, lacks=TORN)
    run["a"].says(NodeStatus.JOINED, look=0, lacks=TORN)
    run.settles()
    assert run.phase == (0, PlanPhase.LOOK)
    run.is_gone("b")
    run.settles()
    run["a"].says(NodeStatus.JOINED, look=2)
    run.settles()
    assert end(run, "a") == (65, f"node a: {TORN}")
