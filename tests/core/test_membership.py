"""What a node of several does about the run: joins, leads, waits, holds, fences, leaves."""

from dataclasses import replace
from typing import Any

import pytest

from faultrun.core.coordinate import MOST_COMPARES
from faultrun.core.elect import may_lead
from faultrun.model.agreement import IncarnationOver, LookAgain
from faultrun.model.checkpoint import RankFile
from faultrun.model.events import GoGiven, PlanAdopted, RunFinished
from faultrun.model.exits import Exited
from faultrun.model.facts import NodeStatus
from faultrun.model.incident import Cause, Incident
from faultrun.model.membership import (
    BODIES,
    SMALL_BODIES,
    Commit,
    Fence,
    PeerQuestion,
    Tell,
    Terms,
    node_key,
)
from faultrun.model.plan import Plan
from faultrun.model.roster import Alarm, PlanHeader, PlanPhase, Roster, RosterEntry
from faultrun.model.stop import StopSource
from faultrun.model.topology import BootId, NodeId, NodeSlots, Replacement, Topology
from faultrun.model.transaction import Absent, CreatedAt, NothingNewer, Unchanged
from support.member_group import RULES, TIMES, Group, Member
from support.story import POLICY, checkpoint, rule


def test_nodes_join_elect_one_plan_prepare_and_start() -> None:
    run = Group("a", "b").settles()
    assert run.phase == (0, PlanPhase.PREPARE)
    assert [len(one.was_told(PlanAdopted)) for one in run.members] == [1, 1]
    run.prepares(0)
    assert run.phase == (0, PlanPhase.GO)
    (go,) = run["b"].was_told(GoGiven)
    assert isinstance(go, GoGiven)
    assert (go.master_addr, go.master_port) == ("10.0.0.a", 7)
    header = run.store.common().header
    assert header is not None
    assert len(repr(header)) < 1000


def test_a_small_plan_lies_where_all_watch_and_a_list_of_files_does_not() -> None:
    run = Group("a", "b").starts()
    (small,) = [key for key in run.store.kept if key.startswith(SMALL_BODIES)]
    files = tuple(RankFile(rank=rank, path=f"/ckpt/{rank}") for rank in range(200))
    large = replace(checkpoint(5), files=files)
    for one in run.members:
        one.says(NodeStatus.JOINED, point=large)
    run.settles()
    assert run.phase == (1, PlanPhase.PREPARE)
    assert small not in run.store.kept
    assert [key for key in run.store.kept if key.startswith(BODIES)]
    assert not [key for key in run.store.kept if key.startswith(SMALL_BODIES)]


def test_those_that_start_together_sit_by_node_rank_and_whoever_is_too_many_waits() -> None:
    run = Group("a", "b", "c")
    for node, rank in (("a", 2), ("b", 0), ("c", 1)):
        run[node].terms = replace(run[node].terms, node_rank=rank)
    run.settles()
    (plan,) = run["b"].was_told(PlanAdopted)
    assert isinstance(plan, PlanAdopted)
    assert not run["a"].told
    assert [seat.node for seat in plan.plan.topology.nodes] == ["b", "c"]


def test_a_wait_is_named_to_everybody_and_ends() -> None:
    run = Group("a", rules=replace(RULES, topology=named("a", "b"))).settles()
    assert run["a"].waits == "b"
    assert run.store.common().coordinator.waits == "b"  # type: ignore[union-attr]
    run.passes(61)
    (end,) = run["a"].was_told(RunFinished)
    assert isinstance(end, RunFinished)
    assert (end.exit_code, end.why) == (69, "b did not come within 60 s")


def test_a_second_supervisor_of_one_name_says_for_whose_end_it_waits() -> None:
    run = Group("a", "b").starts()
    second = Member(run, "b", machine="metal of c")
    second.fact = replace(second.fact, boot=BootId("b2"))
    run.members.append(second)
    run.settles()
    assert second.waits == "the end of another supervisor that is node b, or of its lease"
    assert run.phase == (0, PlanPhase.GO)


def test_nodes_whose_workers_have_ended_wait_for_the_store_no_longer_than_for_a_node() -> None:
    run = Group("a", "b").starts()
    for one in run.members:
        one.hears = False
        one.says(NodeStatus.DONE)
    run.passes(100)
    assert [len(one.was_told(RunFinished)) for one in run.members] == [1, 1]


def deaf_and_done(*done: str, nodes: str = "ab") -> Group:
    """A run whose store has gone for good; these nodes have finished, and everybody knows that it is deaf."""
    run = Group(*nodes).starts()
    for one in run.members:
        one.hears = False
        if one.fact.node in done:
            one.says(NodeStatus.DONE)
    return run.passes(6)


def ends(run: Group) -> dict[str, tuple[int, str, tuple[str, ...]]]:
    told = {str(one.fact.node): one.was_told(RunFinished) for one in run.members}
    found: dict[str, tuple[int, str, tuple[str, ...]]] = {}
    for node, events in told.items():
        for end in events:
            assert isinstance(end, RunFinished)
            found[node] = (end.exit_code, end.why, tuple(end.unheard))
    return found


def test_a_run_that_has_finished_ends_with_0_everywhere_although_the_store_is_gone() -> None:
    run = deaf_and_done("a", "b", nodes="abc")
    why = "every rank finished, by the word of each node: etcd does not answer"
    assert ends(run.passes(4)) == dict.fromkeys("abc", (0, why, ())), "the spare, too"


def test_who_has_finished_waits_without_a_limit_for_ranks_that_run_and_says_for_whose() -> None:
    run = deaf_and_done("a")
    assert run["a"].waits == "the end of the ranks of node b; etcd does not answer"
    assert ends(run.passes(200)) == {}
    assert run["b"].alive_until_s > run.now_s, "it rests on the promise of who has finished"
    run["b"].says(NodeStatus.DONE)
    assert [code for code, _, _ in ends(run.passes(6)).values()] == [0, 0]


def test_who_has_finished_and_hears_nothing_of_a_node_says_0_for_itself_after_a_bounded_wait() -> None:
    run = Group("a", "b").starts()
    run.cut_off = [run["b"]]
    for one in run.members:
        one.hears = False
    run["a"].says(NodeStatus.DONE)
    assert run.passes(6)["a"].waits == "etcd, or a word of node b"
    code, why, unheard = ends(run.passes(TIMES.node_wait_s + 1))["a"]
    assert (code, unheard) == (0, ("b",))
    assert why == (
        "every rank of this node finished; how those of node b ended is not known here, because neither etcd "
        "nor node b answered for 1 min"
    )


@pytest.mark.parametrize("told", ["by its word", "by its alarm"])
def test_nobody_says_0_who_knows_that_ranks_of_another_node_failed(told: str) -> None:
    run = deaf_and_done("a")
    if told == "by its word":
        run["b"].says(NodeStatus.JOINED, failure=(3, "it cannot go on"))
    else:
        run["b"].raised = Alarm(incarnation=0, node=NodeId("b"), why="rank 1 killed by SIGKILL")
    run.settles()
    assert run.passes(2)["a"].waits == "etcd"
    code, why, _ = ends(run.passes(TIMES.node_wait_s + 1))["a"]
    assert code == 69
    assert why.startswith("etcd did not answer for 1 min; node b")


def test_a_node_that_is_cut_off_as_it_finishes_is_believed_by_its_direct_word() -> None:
    run = Group("a", "b").starts()
    late = run["b"]
    late.hears = False
    late.says(NodeStatus.DONE)
    run.passes(6)
    run["a"].says(NodeStatus.DONE)
    run.settles()
    assert run.phase == (0, PlanPhase.FINISHED)
    assert [code for code, _, _ in ends(run.passes(4)).values()] == [0, 0]


def test_a_node_that_counted_as_lost_after_it_had_finished_is_believed_when_the_others_finish_too() -> None:
    run = Group("a", "b").starts()
    late = run["b"]
    late.hears = False
    late.says(NodeStatus.DONE)
    run.passes(6)
    assert late.lease is not None
    run.store.drop(late.lease.number)
    run.settles()
    assert run["a"].was_told(IncarnationOver), "its ranks may end by themselves before they hear of it"
    run["a"].says(NodeStatus.DONE)
    run.settles()
    assert run.phase == (0, PlanPhase.FINISHED)
    assert [code for code, _, _ in ends(run.passes(4)).values()] == [0, 0]


def test_an_alarm_reaches_peers_although_the_store_is_silent() -> None:
    run = Group("a", "b").starts()
    for one in run.members:
        one.hears = False
    run["a"].raised = Alarm(incarnation=0, node=NodeId("a"), why="rank 0 fell")
    run.settles()
    (over,) = run["b"].was_told(IncarnationOver)
    assert isinstance(over, IncarnationOver)
    assert (over.node, over.why) == ("a", "rank 0 fell")


def test_a_spare_takes_the_place_of_a_lost_node_after_another_look_at_the_checkpoints() -> None:
    run = Group("a", "b", "c").starts()
    run.is_gone("b")
    run.settles()
    assert run["a"].was_told(IncarnationOver)
    run["a"].says(NodeStatus.JOINED, point=checkpoint(5))
    run.settles()
    assert run.phase == (0, PlanPhase.LOOK)
    assert [one.was_told(LookAgain) != [] for one in run.members] == [True, True]
    run["c"].says(NodeStatus.JOINED, look=1)
    run.settles()
    assert run.phase == (0, PlanPhase.LOOK), "a has not looked yet"
    run["a"].says(NodeStatus.JOINED, look=1, point=checkpoint(6))
    run.settles()
    assert run.phase == (1, PlanPhase.PREPARE)
    (plan,) = run["c"].was_told(PlanAdopted)
    assert isinstance(plan, PlanAdopted)
    assert (plan.plan.point, plan.plan.boots) == (checkpoint(6), ("a1", "c1"))
    assert plan.plan.replaced == (Replacement(node=NodeId("b"), by=NodeId("c"), ranks=(1,)),)


def test_a_spare_knows_who_trains_and_a_lost_node_that_comes_back_is_one() -> None:
    run = Group("a", "b", "c").starts()
    assert [one.spare for one in run.members] == ["", "", "nodes a b train; takes the place of a lost one"]
    run.is_gone("b")
    run.settles()
    for one in run.members:
        one.says(NodeStatus.JOINED, look=0)
    run.settles()
    for one in run.members:
        one.says(NodeStatus.JOINED, look=1)
    run.settles().prepares(1).runs(1)
    back = Member(run, "b")
    back.fact = replace(back.fact, boot=BootId("b2"))
    run.members.append(back)
    run.settles()
    assert [one.spare for one in run.members] == ["", "", "nodes a c train; takes the place of a lost one"]


def test_a_node_that_missed_an_incarnation_catches_up_before_it_looks_again() -> None:
    run = Group("a", "b", "c").starts()
    for one in run.members[:2]:
        one.says(NodeStatus.JOINED, 0, look=0)
    missed = run["b"]
    for act in missed.judges().acts:
        missed.performs(act)
    run.members.remove(missed)
    run.settles()
    assert run.phase == (1, PlanPhase.PREPARE)
    assert missed.lease is not None
    run.store.drop(missed.lease.number)
    run.settles()
    run["a"].says(NodeStatus.JOINED, 1, look=0)
    run.settles()
    assert run.phase == (1, PlanPhase.LOOK)

    missed.lease = replace(missed.lease, dropped=True)
    run.members.append(missed)
    run.settles()
    assert [type(event) for event in missed.told[-2:]] == [PlanAdopted, IncarnationOver]
    missed.says(NodeStatus.JOINED, 1, look=-1)
    run.settles()
    assert isinstance(missed.told[-1], LookAgain)


def test_more_lost_nodes_than_a_transaction_has_compares_are_guarded_by_one() -> None:
    lost = [f"n{number}" for number in range(MOST_COMPARES + 1)]
    nodes = ["a", *lost]
    run = Group(*nodes, rules=replace(RULES, topology=named(*nodes)))
    run.settles().prepares(0).runs(0)
    seen = run.store.revision
    for node in lost:
        run.store.drop(run[node].lease.number)  # type: ignore[union-attr]
    run.members = [run["a"]]
    commits = [act.transaction for act in run["a"].judges().acts if isinstance(act, Commit)]
    (over,) = [txn for txn in commits if txn.what.startswith("end incarnation 0")]
    (newer,) = [compare for compare in over.compares if isinstance(compare, NothingNewer)]
    assert (newer.folder, newer.revision) == ("node/", run.store.revision)
    assert newer.revision > seen
    assert len(over.compares) < 5


def test_only_members_lead_and_heirs_who_know_that_the_member_is_dead() -> None:
    entry = RosterEntry(node=NodeId("a"), slots=1, boot=BootId("a1"), machine="metal")
    roster, header = Roster(entries=(entry,)), PlanHeader(**HEADER)
    terms = Terms(node=NodeId("a"), peer_addr="", times=TIMES, machine="metal")
    elsewhere = replace(terms, machine="other metal")
    assert may_lead(terms, BootId("a1"), header, roster)
    assert may_lead(terms, BootId("a2"), header, roster), "the same machine: the member is dead"
    assert not may_lead(elsewhere, BootId("a2"), header, roster), "it may train there on a promise"
    assert not may_lead(replace(terms, machine=""), BootId("a2"), header, roster)
    assert may_lead(replace(elsewhere, hold=False), BootId("a2"), header, roster)
    assert not may_lead(replace(terms, node=NodeId("b")), BootId("b1"), header, roster)
    assert may_lead(elsewhere, BootId("a2"), None, None), "before the first plan"


def test_an_heir_decides_only_when_no_answer_of_its_predecessor_counts_any_more() -> None:
    run = Group("a", "b").starts()
    for node in "ab":
        run.is_gone(node)
        run.members.append(again := Member(run, node))
        again.fact = replace(again.fact, boot=BootId(f"{node}2"), incarnation=0)
    run.settles()
    assert run.phase == (0, PlanPhase.GO)
    run.passes(2 * TIMES.hold_s + 1)
    assert run.phase == (0, PlanPhase.LOOK)


def test_a_spare_that_nobody_can_lead_does_not_wait_for_ever() -> None:
    run = Group("a", "b", "c").starts()
    for node in "ab":
        run.is_gone(node)
    run.settles()
    assert run["c"].waits == "a coordinator"
    run.passes(61)
    (end,) = run["c"].was_told(RunFinished)
    assert isinstance(end, RunFinished)
    assert end.exit_code == 69


def test_every_write_of_a_plan_is_guarded_by_token_revision_and_the_absence_of_the_lost() -> None:
    run = Group("a", "b", "c").starts()
    run.is_gone("b")
    run.settles()
    for one in run.members:
        one.says(NodeStatus.JOINED, 0)
    run["a"].performs(run["a"].judges().acts[0])
    (look,) = [act.transaction for act in run["a"].judges().acts if isinstance(act, Commit)]
    common = run.store.common()
    assert look.compares == (
        CreatedAt(key="all/coordinator", created=common.token),
        Unchanged(key="all/plan", changed=common.header_changed),
        Absent(key=node_key(NodeId("b"), BootId("b1"))),
    )


def test_nobody_trains_past_the_lease_alone() -> None:
    run = Group("a", "b").starts()
    run["a"].hears = False
    began_s = run.now_s
    run.passes(9.5)
    (fence,) = run["a"].was_told(Fence)
    assert isinstance(fence, Fence)
    assert run["a"].alive_until_s < run.now_s
    assert run.now_s - began_s < TIMES.ttl_s
    assert not run["b"].was_told(Fence)


@pytest.mark.parametrize(
    ("frozen_s", "late_s", "why"),
    [
        (0.0, 0.0, "etcd has not answered this node for 9 s, and not every node says the same"),
        (8.0, 0.0, "its supervisor stood still for 8 s: frozen, or without a processor"),
        (12.0, 12.0, "this node stood still for 12 s: frozen, or suspended"),
    ],
)
def test_a_fence_says_what_kept_the_lease_from_being_renewed(
    frozen_s: float, late_s: float, why: str
) -> None:
    run = Group("a", "b").starts()
    alone = run["a"]
    alone.hears, run.cut_off = False, [alone]
    run.passes(8.9, step_s=0.1)
    run.now_s, alone.frozen_s = run.now_s + 0.2, frozen_s
    alone.remembered = replace(alone.remembered, due_at_s=run.now_s - late_s)
    fence = next(act for act in alone.judges().acts if isinstance(act, Fence))
    assert fence.why.replace("9.1 s", "9 s") == why


def test_after_a_fence_nothing_is_said_before_the_supervisor_has_another_boot() -> None:
    run = Group("a", "b").starts()
    run["a"].hears = False
    run.passes(9.5)
    run["a"].hears = True
    assert run["a"].judges().acts == ()
    run["a"].fact = replace(run["a"].fact, boot=BootId("a2"), status=NodeStatus.JOINED)
    run["b"].says(NodeStatus.JOINED)
    run.settles()
    assert node_key(NodeId("a"), BootId("a2")) in run.store.kept
    assert node_key(NodeId("a"), BootId("a1")) not in run.store.kept


def test_when_nobody_hears_the_store_all_train_on_and_decide_late_once_they_hear_it_again() -> None:
    run = Group("a", "b").starts()
    for one in run.members:
        one.hears = False
    run.passes(60)
    assert not [one for one in run.members if one.was_told(Fence)]
    run["a"].hears = True
    run.settles()
    assert run.members[1].lease is not None
    given = run.answers(run["b"], PeerQuestion(node=NodeId("b"), boot=BootId("b1"), incarnation=0))
    assert given[0].deaf, "b may hold on by this while it connects"
    run["b"].hears = True
    run.passes(1)
    assert not run["b"].was_told(Fence)


def test_whoever_held_alone_too_long_fences() -> None:
    run = Group("a", "b").starts()
    for one in run.members:
        one.hears = False
    run.passes(20)
    run["a"].hears = True
    run.passes(TIMES.hold_s * 2 + 0.5)
    assert run["b"].was_told(Fence)
    assert not run["a"].was_told(Fence)


def test_with_hold_off_everybody_fences() -> None:
    run = Group("a", "b", hold=False).starts()
    for one in run.members:
        one.hears = False
    run.passes(9.5)
    assert [len(one.was_told(Fence)) for one in run.members] == [1, 1]


def test_who_was_started_with_something_else_is_refused_by_name() -> None:
    run = Group("a", "b", "c", asked="train.py")
    run["c"].terms = replace(run["c"].terms, asked="other.py")
    run["c"].hears = False
    run.starts()
    run["c"].hears = True
    run.settles()
    (end,) = run["c"].was_told(RunFinished)
    assert isinstance(end, RunFinished)
    assert end.exit_code == 64
    assert "node c was started with another script" in end.why


@pytest.mark.parametrize("both", [True, False])
def test_a_stop_of_one_node_ends_its_part_and_a_stop_of_all_ends_the_run(both: bool) -> None:
    run = Group("a", "b", "c").starts()
    run["a"].says(NodeStatus.DRAINED, stop=StopSource.SIGTERM)
    run["b"].says(
        NodeStatus.DRAINED if both else NodeStatus.JOINED, stop=StopSource.SIGTERM if both else None, look=0
    )
    run.passes(3)
    (end,) = run["a"].was_told(RunFinished)
    assert isinstance(end, RunFinished)
    assert (end.exit_code, end.stopped) == (143, True)
    assert run.phase == ((0, PlanPhase.FINISHED) if both else (1, PlanPhase.PREPARE))
    assert bool(run["c"].was_told(PlanAdopted)) is not both


def test_a_run_that_is_given_up_tells_every_node_and_spare_the_same_of_its_last_incident() -> None:
    run = Group("a", "b", "c", rules=replace(RULES, policy=rule(max_restarts=0))).starts()
    fell = Incident(
        number=1, incarnation=0, at_s=1, cause=Cause.EXIT, rank=1, status=Exited(code=3), node=NodeId("b")
    )
    run["b"].says(NodeStatus.JOINED, incident=fell, look=0)
    run["a"].says(NodeStatus.JOINED, incident=replace(fell, cause=Cause.ELSEWHERE, rank=None), look=0)
    run.settles()
    told = [one.was_told(RunFinished)[0] for one in run.members]
    assert {(end.exit_code, end.aftermath.incident) for end in told} == {(3, fell)}  # type: ignore[attr-defined]
    revision = run.store.common().revision
    assert [end.revision for end in told] == [revision] * 3  # type: ignore[attr-defined]
    assert 0 < run["a"].was_told(GoGiven)[0].revision < revision  # type: ignore[attr-defined]


def test_a_wait_that_ends_the_run_tells_the_loss_that_began_it() -> None:
    run = Group("a", "b").starts()
    run.is_gone("b")
    run.settles()
    heard = Incident(number=1, incarnation=0, at_s=1, cause=Cause.ELSEWHERE, rank=None, status=None)
    run["a"].says(NodeStatus.JOINED, incident=heard, look=0)
    (end,) = run.passes(TIMES.node_wait_s + 1)["a"].was_told(RunFinished)
    assert isinstance(end, RunFinished)
    assert end.aftermath is not None
    assert (end.exit_code, end.aftermath.incident.cause, end.aftermath.incident.node) == (69, Cause.NODE, "b")


def test_the_end_is_told_although_what_is_known_of_its_incident_cannot_be_read() -> None:
    run = Group("a", "b").starts()
    for one in run.members:
        one.says(NodeStatus.DONE)
    run.settles()
    late = run["b"]
    late.told.clear()
    late.remembered = replace(late.remembered, told=(), ended_since_s=None)
    common = late.known.common
    assert common is not None
    assert common.header is not None
    late.hears = False
    late.known = replace(late.known, common=replace(common, header=replace(common.header, last="lost")))
    assert not [act for act in late.judges().acts if isinstance(act, Tell)]
    run.now_s += TIMES.leave_s
    assert [act for act in late.judges().acts if isinstance(act, Tell)]


def test_a_run_that_was_given_up_goes_on_with_a_fresh_budget_for_those_who_come_after() -> None:
    run = Group("a", "b", rules=replace(RULES, policy=replace(POLICY, max_restarts=0))).starts()
    fault = Incident(number=1, incarnation=0, at_s=0, cause=Cause.EXIT, rank=0, status=Exited(code=3))
    run["a"].says(NodeStatus.JOINED, incident=fault)
    run["b"].says(NodeStatus.JOINED)
    run.settles()
    assert run.phase == (0, PlanPhase.FINISHED)
    assert [end.exit_code for end in run["b"].was_told(RunFinished)] == [3]  # type: ignore[attr-defined]
    header = run.store.common().header
    assert header is not None
    last = run.store.parts()[f"{BODIES}{header.last}"]
    assert isinstance(last, Plan)
    assert (last.aftermath and last.aftermath.incident, last.ledger.incidents) == (fault, 1)
    for node in "ab":
        run.is_gone(node)
        run.members.append(again := Member(run, node))
        again.fact = replace(again.fact, boot=BootId(f"{node}2"), incarnation=0)
    run.settles()
    assert run.phase == (1, PlanPhase.PREPARE)
    assert f"{BODIES}{header.last}" not in run.store.parts()


def test_who_comes_alone_after_a_run_that_ended_with_0_waits_and_ends_as_that_one_did() -> None:
    run = Group("a", "b").starts()
    for node in "ab":
        run[node].says(NodeStatus.DONE)
    run.settles()
    assert run.phase == (0, PlanPhase.FINISHED)
    for node in "ab":
        run.is_gone(node)
    run.members.append(late := Member(run, "c"))
    run.settles()
    assert (late.waits, late.was_told(RunFinished)) == ("another node", [])
    run.passes(61)
    (end,) = late.was_told(RunFinished)
    assert isinstance(end, RunFinished)
    why = "the run had ended: every rank finished; another node did not come within 60 s"
    assert (end.exit_code, end.why) == (0, why)


HEADER: dict[str, Any] = {
    "incarnation": 0,
    "phase": PlanPhase.GO,
    "roster": "r",
    "body": "b",
    "run_s": 0.0,
}


def named(*nodes: str) -> Topology:
    return Topology(nodes=tuple(NodeSlots(node=NodeId(node), slots=1) for node in nodes))
