"""Nodes whose ranks have all finished: the run ends with 0 everywhere, and nobody says 0 who may not."""

import pytest

from faultrun.model.events import RunFinished
from faultrun.model.observed.agreement import IncarnationOver
from faultrun.model.observed.node_fact import NodeStatus
from faultrun.model.stop import StopSource
from faultrun.model.topology import NodeId
from faultrun.nodes.values.roster import Alarm, PlanPhase
from support.nodes.etcd_in_memory import TIMES, Group


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


def lost_after_it_had_finished() -> Group:
    """Nobody has heard that b has finished; a, which has, looks for where to begin again with the spare c."""
    run = Group("a", "b", "c").starts()
    late = run["b"]
    late.hears = False
    run.cut_off = [late]
    for node in "ab":
        run[node].says(NodeStatus.DONE)
    run.passes(6)
    assert late.lease is not None
    run.store.drop(late.lease.number)
    run.settles()
    assert run.phase == (0, PlanPhase.LOOK)
    return run


def test_a_node_whose_word_comes_while_the_others_look_again_is_believed() -> None:
    run = lost_after_it_had_finished()
    run.cut_off = []
    run.passes(6)
    assert run.phase == (0, PlanPhase.FINISHED)
    assert [code for code, _, _ in ends(run.passes(4)).values()] == [0, 0, 0]


def test_a_node_that_comes_back_while_the_others_look_again_ends_the_run_with_them() -> None:
    run = lost_after_it_had_finished()
    run["a"].says(NodeStatus.DONE, look=1)
    run.cut_off, run["b"].hears = [], True
    run.passes(4)
    assert run.phase == (0, PlanPhase.FINISHED)
    assert [code for code, _, _ in ends(run).values()] == [0, 0, 0]


def test_nobody_leaves_because_of_nodes_that_begin_again() -> None:
    run = lost_after_it_had_finished()
    for node in "ac":
        run[node].says(run[node].fact.word, look=1)
    run.settles()
    assert run.phase == (1, PlanPhase.PREPARE)
    run.cut_off = []
    assert run.passes(20)["b"].waits == "etcd"
    assert ends(run) == {}
    run["b"].hears = True
    run.settles()
    assert run["b"].spare.startswith("nodes a c")


def test_who_was_told_to_stop_leaves_a_silent_store_when_no_ranks_live_by_its_word_any_more() -> None:
    run = Group("a", "b").starts()
    for one in run.members:
        one.hears = False
    run["a"].says(NodeStatus.DRAINED, stop=StopSource.SIGTERM)
    run.passes(30)
    assert ends(run) == {}
    assert run["a"].waits == "the end of the ranks of node b; etcd does not answer"
    assert run["b"].alive_until_s > run.now_s, "they are still being saved"
    run["b"].says(NodeStatus.DRAINED, stop=StopSource.SIGTERM)
    why = "stopped by SIGTERM; etcd does not answer"
    assert ends(run.passes(4)) == dict.fromkeys("ab", (143, why, ()))


def test_who_was_told_to_stop_waits_for_no_word_of_a_silent_node_behind_the_end_of_a_lease() -> None:
    run = Group("a", "b").starts()
    run.cut_off = [run["b"]]
    run["a"].hears = False
    run["a"].says(NodeStatus.DRAINED, stop=StopSource.CONTROL)
    run.passes(TIMES.fence_s - 1)
    assert "a" not in ends(run), "b may yet ask"
    assert ends(run.passes(2))["a"][0] == 143
