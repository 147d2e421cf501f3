"""What a node of several does about the run: joins, leads, waits, takes the place of a lost one."""

from dataclasses import replace
from typing import Any

import pytest

from faultrun.model.checkpoint import RankFile
from faultrun.model.events import GoGiven, PlanAdopted, RunFinished
from faultrun.model.incident import Cause, Incident
from faultrun.model.observed.agreement import IncarnationOver, LookAgain, PlanElsewhere
from faultrun.model.observed.node_fact import NodeStatus
from faultrun.model.topology import BootId, NodeId, NodeSlots, Replacement, Topology
from faultrun.nodes.protocol.coordinator_input import MOST_COMPARES
from faultrun.nodes.protocol.election import may_lead
from faultrun.nodes.protocol.started_alike import ASKED, asked
from faultrun.nodes.values.membership import BODIES, SMALL_BODIES, Commit, NodeSettings, node_key
from faultrun.nodes.values.roster import Alarm, PlanHeader, PlanPhase, Roster, RosterEntry
from faultrun.nodes.values.transaction import Absent, CreatedAt, NothingNewer, Unchanged
from support.nodes.etcd_in_memory import RULES, TIMES, Group, Member
from support.nodes.node_facts import fact_with
from support.stories.story import checkpoint


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


def test_whom_the_platform_made_wait_behind_the_go_is_given_it_again_once_it_is_ready_again() -> None:
    run = Group("a", "b").settles().prepares(0)
    run["a"].says(NodeStatus.RUNNING, 0)
    run["b"].says(NodeStatus.READY, 0, master_port=7, at_s=30.0)
    run.settles()
    assert [len(one.was_told(GoGiven)) for one in run.members] == [1, 2]
    run.passes(5)
    assert [len(one.was_told(GoGiven)) for one in run.members] == [1, 2]


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
    assert (end.exit_code, end.why) == (69, "b did not come within 1 min")


def test_a_second_supervisor_of_one_name_says_for_whose_end_it_waits() -> None:
    run = Group("a", "b").starts()
    second = Member(run, "b", machine="metal of c")
    second.fact = replace(second.fact, boot=BootId("b2"))
    run.members.append(second)
    run.settles()
    assert second.waits == "the end of another supervisor that is node b, or of its lease"
    assert run.phase == (0, PlanPhase.GO)


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


def test_a_fenced_node_that_is_a_spare_hears_by_which_plan_the_others_go_on_and_of_their_incident() -> None:
    run = Group("a", "b", "c").starts()
    run.is_gone("b")
    run.settles()
    heard = Incident(number=1, incarnation=0, at_s=1.0, cause=Cause.ELSEWHERE, rank=None, status=None)
    run["a"].says(NodeStatus.JOINED, look=0, incident=heard, point=checkpoint(5))
    run["c"].says(NodeStatus.JOINED, look=0)
    run.settles()
    for one in run.members:
        one.says(NodeStatus.JOINED, look=1)
    run.settles().prepares(1).runs(1)
    back = Member(run, "b")
    fence = replace(heard, cause=Cause.FENCE)
    back.fact = fact_with(
        back.fact, boot=BootId("b2"), status=NodeStatus.JOINED, incarnation=0, incident=fence
    )
    run.members.append(back)
    run.settles()
    (told,) = back.was_told(PlanElsewhere)
    assert isinstance(told, PlanElsewhere)
    assert (told.plan.incarnation, [seat.node for seat in told.plan.topology.nodes]) == (1, ["a", "c"])
    assert told.plan.aftermath is not None
    assert (told.plan.aftermath.incident.cause, told.plan.aftermath.incident.node) == (Cause.NODE, "b")
    assert not run["a"].was_told(PlanElsewhere) + run["c"].was_told(PlanElsewhere)


def test_a_spare_whose_log_dir_is_of_an_earlier_run_holds_nobody_up_and_can_take_a_place() -> None:
    run = Group("a", "b", "c")
    of_old = Incident(number=9, incarnation=3, at_s=1, cause=Cause.NODE, rank=None, status=None)
    run["c"].hears = False
    run.starts()
    run["c"].says(NodeStatus.JOINED, 3, incident=of_old)
    run["c"].hears = True
    for node in "ab":
        run[node].says(NodeStatus.JOINED, 0, look=0, incident=replace(of_old, number=1, incarnation=0))
    run.settles()
    assert run.phase == (1, PlanPhase.PREPARE), "a fault is answered although c counts further"
    run.prepares(1).runs(1).is_gone("b")
    run.settles()
    run["a"].says(NodeStatus.JOINED, 1, look=1, incident=replace(of_old, number=2, incarnation=1))
    run["c"].says(NodeStatus.JOINED, 3, look=1)
    run.settles()
    assert run.phase == (4, PlanPhase.PREPARE), "the next number that is new for all"
    (plan,) = run["c"].was_told(PlanAdopted)
    assert isinstance(plan, PlanAdopted)
    assert plan.plan.aftermath is not None
    assert plan.plan.aftermath.incident.number == 2, "and not what ended another run"


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
    assert (newer.key, newer.revision) == ("node/", run.store.revision)
    assert newer.revision > seen
    assert len(over.compares) < 5


def test_only_members_lead_and_heirs_who_know_that_the_member_is_dead() -> None:
    entry = RosterEntry(node=NodeId("a"), slots=1, boot=BootId("a1"), machine="metal")
    roster, header = Roster(entries=(entry,)), PlanHeader(**HEADER)
    terms = NodeSettings(node=NodeId("a"), peer_addr="", times=TIMES, machine="metal")
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


def test_two_hosts_of_one_name_are_told_so_while_they_wait_for_each_other() -> None:
    run = Group("a")
    run.members.append(twin := Member(run, "a"))
    twin.says(NodeStatus.JOINED, boot=BootId("a2"))
    run.settles()
    words = "another node (several supervisors are node a: give each host its own --node_name)"
    assert {one.waits for one in run.members} == {words}
    run.passes(61)
    for one in run.members:
        (end,) = one.was_told(RunFinished)
        assert isinstance(end, RunFinished)
        assert (end.exit_code, end.why) == (69, f"{words} did not come within 1 min")


def test_a_spare_that_nobody_can_lead_does_not_wait_for_ever() -> None:
    run = Group("a", "b", "c").starts()
    for node in "ab":
        run.is_gone(node)
    run.settles()
    assert run["c"].waits == "a coordinator, which only nodes a b can be"
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


@pytest.mark.parametrize(
    ("differs", "words"),
    [
        ((ASKED[0],), ASKED[0]),
        ((ASKED[1], ASKED[4]), f"{ASKED[1]} and {ASKED[4]}"),
        ((), "something else"),  # of another version
    ],
)
def test_who_was_started_with_something_else_is_refused_by_name(differs: tuple[str, ...], words: str) -> None:
    theirs = asked(dict.fromkeys(ASKED, 1) | dict.fromkeys(differs, 2)) if differs else "5f2a"
    run = Group("a", "b", "c", asked=asked(dict.fromkeys(ASKED, 1)))
    run["c"].terms = replace(run["c"].terms, asked=theirs)
    run["c"].hears = False
    run.starts()
    run["c"].hears = True
    run.settles()
    (end,) = run["c"].was_told(RunFinished)
    assert isinstance(end, RunFinished)
    assert end.exit_code == 64
    first, because, hint = end.why.splitlines()
    assert first in {f"node c was started with {words} than node {node}" for node in "ab"}
    assert because.startswith("  because: ")
    assert hint.startswith("  try:     the same command on every node")


HEADER: dict[str, Any] = {"incarnation": 0, "phase": PlanPhase.GO, "roster": "r", "body": "b", "run_s": 0.0}


def named(*nodes: str) -> Topology:
    return Topology(nodes=tuple(NodeSlots(node=NodeId(node), slots=1) for node in nodes))
