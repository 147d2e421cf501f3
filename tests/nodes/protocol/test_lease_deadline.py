"""How long a node may train that hears nothing of the store: alone not past its lease, with all others on."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from faultrun.model.observed.node_fact import NodeStatus
from faultrun.model.topology import BootId, NodeId
from faultrun.nodes.protocol import lease_deadline
from faultrun.nodes.values.lease import Lease
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


@given(later_s=st.floats(0.0, 6.0), ask=st.sampled_from(["ab", "ba"]))
def test_whoever_notices_a_silence_of_all_last_keeps_nobody_from_training_on(
    later_s: float, ask: str
) -> None:
    run = Group("a", "b").starts()
    first, last = (run[name] for name in ask)
    first.hears = False
    run.passes(later_s, 0.25)
    last.hears = False
    run.passes(12, 0.25)
    assert not [one for one in run.members if one.was_told(Fence)]


@given(tried_s=st.floats(0.0, 4.9), back_s=st.floats(0.1, 9.0))
def test_who_was_asked_and_did_not_hear_the_store_decides_nothing_while_somebody_may_hold(
    tried_s: float, back_s: float
) -> None:
    lease = Lease(number=1, sent_at_s=0.0, granted_at_s=-99.0)
    doubts = lease_deadline.tried(lease, tried_s) if tried_s else replace(lease, tried=True)
    asked_s = tried_s + 0.5
    back = lease_deadline.renewed(doubts, asked_s + back_s, asked_s + back_s, TIMES)
    for at_s in (asked_s, asked_s + back_s / 2):
        assert not lease_deadline.free_to_decide(doubts, TIMES, at_s, heir=False)
    for late_s in (0.0, TIMES.hold_s, TIMES.hold_s * 1.9):
        assert not lease_deadline.free_to_decide(back, TIMES, asked_s + back_s + late_s, heir=False)


def test_a_try_that_is_older_than_an_answer_says_nothing() -> None:
    lease = Lease(number=1, sent_at_s=5.0, granted_at_s=0.0)
    assert lease_deadline.tried(lease, 5.0) == lease


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
