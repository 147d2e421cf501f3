"""Of several nodes, who has drained first looks through the checkpoints while others still save."""

from dataclasses import replace

import pytest

from faultrun.core.plan.next_plan import Rules, next_step
from faultrun.model.checkpoint import Identity, RecoveryPoint
from faultrun.model.events import PlanAdopted, RunFinished
from faultrun.model.exits import Exited
from faultrun.model.incident import Cause, Incident
from faultrun.model.observed.agreement import IncarnationOver, LookAgain
from faultrun.model.observed.elastic import Elastic
from faultrun.model.observed.node_fact import NodeStatus
from faultrun.model.plan import Ledger, Plan, Reason, Restart
from faultrun.model.stop import StopSource
from faultrun.model.topology import BootId, NodeId, NodeSlots, Topology
from faultrun.nodes.protocol.deduplication import words_of
from faultrun.nodes.values.membership import Tell
from faultrun.nodes.values.roster import PlanPhase
from faultrun.nodes.values.transaction import Transaction
from support.nodes.etcd_in_memory import RULES, TIMES, Group
from support.nodes.node_facts import fact_with
from support.stories.story import POLICY, checkpoint

THREE = Topology(nodes=(NodeSlots(node=NodeId(""), slots=1),) * 3)
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
def test_disks_that_differ_are_looked_at_again_then_go_back_or_end(older: tuple[RecoveryPoint, ...]) -> None:
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


@pytest.mark.parametrize("older", [None, checkpoint(5)])
def test_a_node_that_is_stopped_and_saves_longest_is_looked_after_although_a_spare_has_its_place(
    older: RecoveryPoint | None,
) -> None:
    run = Group("a", "b", "c").starts()
    run["b"].says(NodeStatus.JOINED, look=0, point=older)
    run["a"].says(NodeStatus.DRAINED, stop=StopSource.SIGTERM, look=-1, saved="ck/gasp-9.pt")
    run.settles()
    assert run.phase == (0, PlanPhase.LOOK)
    for name in "bc":
        run[name].says(NodeStatus.JOINED, look=1, point=checkpoint(9))
    run.settles()
    assert run.phase == (1, PlanPhase.PREPARE)
    assert planned(run, "c").point == checkpoint(9)


def test_so_is_one_that_had_looked_and_whose_place_another_has() -> None:
    run = Group("a", "b", "c").starts()
    run["a"].says(NodeStatus.JOINED, look=0, point=checkpoint(5))
    unfit = (71, "no space")
    run["b"].says(NodeStatus.JOINED, look=0, failure=unfit, unfit=True, point=checkpoint(9))
    run.settles()
    assert run.phase == (0, PlanPhase.LOOK)


def test_a_spare_that_gets_a_seat_is_waited_for_before_the_run_ends_and_one_without_is_not() -> None:
    run = Group("a", "b", "c", "d", "e", rules=Rules(topology=THREE, policy=POLICY)).starts()
    run["e"].says(NodeStatus.JOINED, look=0, lacks=TORN)
    run.settles().is_gone("c")
    run.settles()
    for name, inode in (("a", 1), ("b", 2)):
        own = replace(written(7, 300), identity=Identity(inode=inode, size_bytes=9, mtime_ns=inode))
        run[name].says(NodeStatus.JOINED, look=0, point=own)
    run.settles()
    for name in "ab":
        run[name].says(NodeStatus.JOINED, look=1)
    run.settles()
    assert run.phase == (0, PlanPhase.LOOK), "d looked long ago"
    run["d"].says(NodeStatus.JOINED, look=1)
    run.settles()
    assert run.phase == (0, PlanPhase.FINISHED)
    assert end(run, "a")[1].startswith("the nodes have no checkpoint of the same step")


def test_a_plan_that_came_while_a_spare_looked_is_told_again_when_it_has() -> None:
    run = Group("a", "b", "c").starts()
    run.is_gone("b")
    run.settles()
    for look in (0, 1):
        for name in "ac":
            run[name].says(NodeStatus.JOINED, look=look, point=checkpoint(5))
        run.settles()
    assert len(run["c"].was_told(PlanAdopted)) == 1
    run["c"].says(NodeStatus.JOINED, at_s=run["c"].fact.at_s + 1)
    run.settles()
    assert [event.incarnation for event in run["c"].was_told(PlanAdopted)] == [1, 1]  # type: ignore[attr-defined]


def test_nodes_that_seem_to_have_nothing_in_common_look_again_before_they_wait_for_one_more() -> None:
    rules = Rules(topology=THREE, policy=POLICY, elastic=Elastic(min_workers=1, min_nodes=2))
    run = Group("a", "b", "c", rules=rules).starts()
    run.is_gone("c")
    run.settles()
    run["a"].says(NodeStatus.JOINED, look=0, point=replace(written(5, 200), restore_ranks_map=""))
    run["b"].says(NodeStatus.JOINED, look=0, point=replace(written(7, 300), restore_ranks_map=""))
    run.settles().passes(TIMES.node_wait_s - 1)
    assert run.phase == (0, PlanPhase.GO), "c may come"
    run.passes(2)
    assert run.phase == (0, PlanPhase.LOOK)
    for name in "ab":
        run[name].says(NodeStatus.JOINED, look=1, point=replace(written(7, 300), restore_ranks_map=""))
    run.settles().passes(TIMES.node_wait_s + 1)
    assert (run.phase, [seat.node for seat in planned(run, "a").topology.nodes]) == (
        (1, PlanPhase.PREPARE),
        ["a", "b"],
    )


def test_a_wait_that_is_over_stays_so_where_the_store_refuses_what_follows() -> None:
    rules = Rules(topology=THREE, policy=POLICY, elastic=Elastic(min_workers=1, min_nodes=2))
    run = Group("a", "b", "c", rules=rules).starts()
    run.is_gone("b")
    run.settles()
    run["a"].says(NodeStatus.JOINED, look=0, point=checkpoint(7))
    run["c"].says(NodeStatus.JOINED, look=0, lacks=TORN)
    run.settles()
    for name in "ac":
        run[name].says(NodeStatus.JOINED, look=run[name].fact.resume.look + 1, point=checkpoint(7), lacks="")
    commit, refused = run.store.commit, list[str]()

    def refuses_once(transaction: Transaction, lease: int) -> bool:
        if transaction.what.startswith("plan") and not refused:
            refused.append(transaction.what)
            return False
        return commit(transaction, lease)

    run.store.commit = refuses_once  # type: ignore[method-assign]
    run.settles().passes(TIMES.node_wait_s + 1)
    for name in "ac":
        run[name].says(NodeStatus.JOINED, look=2)
    run.settles().passes(1)
    assert refused
    assert run.phase == (1, PlanPhase.PREPARE)


def test_the_budget_is_not_used_up_by_what_a_node_saw_before_the_save_that_gives_it_back() -> None:
    """Saves that tell epochs only, written over: as if on disks of their own, an old one is common."""
    seats = Topology(nodes=tuple(NodeSlots(node=NodeId(name), slots=1) for name in "ab"))

    def of(epoch: int, path: str = "ck/latest.pt") -> RecoveryPoint:
        identity = Identity(inode=epoch, size_bytes=9, mtime_ns=epoch, epoch=epoch)
        return replace(
            checkpoint(0, path), global_step=None, step_in_epoch=None, epoch=epoch, identity=identity
        )

    spent = tuple(Restart(at_s=1.0, step=-1) for _ in range(POLICY.max_restarts))
    ledger = Ledger(restarts=spent, saved_epoch=(4, -1), total_restarts=len(spent), incidents=3)
    boots = (BootId("a1"), BootId("b1"))
    plan = Plan(
        incarnation=3,
        topology=seats,
        reason=Reason.FAULT,
        point=of(4),
        start_at_s=10.0,
        ledger=ledger,
        boots=boots,
    )
    fell = Incident(
        number=4, incarnation=3, at_s=50.0, cause=Cause.EXIT, rank=1, status=Exited(code=1), node=NodeId("b")
    )
    run = Group("a", "b")
    for name, saw in (("a", of(4)), ("b", of(5))):
        incident = fell if name == "b" else None
        run[name].says(
            NodeStatus.JOINED, 3, point=saw, more_points=(of(1, "ck/first.pt"),), incident=incident
        )
    facts = {one.fact.node: one.fact for one in run.members}
    early = next_step(RULES, plan, facts, 60.0)
    assert isinstance(early, RunFinished)
    assert early.wanting == ("a", "b"), "another look may show a save that gives the budget back"
    facts[NodeId("a")] = fact_with(facts[NodeId("a")], point=of(5))
    assert isinstance(next_step(RULES, plan, facts, 60.0), PlanAdopted)


def test_where_that_look_shows_no_other_the_run_ends_and_waits_for_nobody_again() -> None:
    rules = Rules(topology=THREE, policy=POLICY, elastic=Elastic(min_workers=1, min_nodes=2))
    run = Group("a", "b", "c", rules=rules).starts()
    run.is_gone("c")
    run.settles()
    for name, point in (("a", written(5, 200)), ("b", written(7, 300))):
        run[name].says(NodeStatus.JOINED, look=0, point=replace(point, restore_ranks_map=""))
    run.settles().passes(TIMES.node_wait_s + 1)
    for name in "ab":
        run[name].says(NodeStatus.JOINED, look=1)
    run.settles()
    assert run.phase == (0, PlanPhase.FINISHED)
    assert end(run, "a")[0] == 69


def test_what_a_node_did_not_hear_while_it_looked_is_told_again_and_to_nobody_else() -> None:
    over = Tell(event=IncarnationOver(at_s=1, incarnation=1, why="rank 2 died"))
    idle = Group("a")["a"].fact
    assert words_of(over, idle) != words_of(over, replace(idle, at_s=idle.at_s + 1))
    busy = fact_with(idle, status=NodeStatus.RUNNING)
    assert words_of(over, busy) == words_of(over, replace(busy, at_s=busy.at_s + 1))
