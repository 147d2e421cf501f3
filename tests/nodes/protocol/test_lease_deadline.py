"""How long a node may train that hears nothing of the store: alone not past its lease, with all others on."""

from dataclasses import replace

import pytest

from faultrun.model.observed.node_fact import NodeStatus
from faultrun.model.topology import BootId, NodeId
from faultrun.nodes.values.membership import Fence, PeerQuestion, node_key
from support.nodes.etcd_in_memory import TIMES, Group
from support.nodes.node_facts import fact_with


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
def test_a_fence_says_what_kept_the_lease_from_renewal(frozen_s: float, late_s: float, why: str) -> None:
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
    run["a"].fact = fact_with(run["a"].fact, boot=BootId("a2"), status=NodeStatus.JOINED)
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
