"""A slot that fails again and again gets no worker any more, and one again when it is well."""

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from faultrun.core.placement.slots import accuse
from faultrun.model.actions import FindRecoveryPoint, Spawn
from faultrun.model.checkpoint import RankFile, RecoveryPoint
from faultrun.model.events import FirstStep, RecoveryPointChosen, Timer
from faultrun.model.incident import Cause, Incident
from faultrun.model.observed.elastic import Accused, Elastic, SlotLedger, SlotsUsable
from faultrun.model.observed.evidence import DeathNote, FaultClass, Finding, Raised
from faultrun.model.run import Phase
from support.stories.story import NODE, STAYING, WINDOWS, Story, checkpoint, first_plan, rule, topology

FIXED = replace(checkpoint(10), fixed_by="its state is sharded: s.0 holds that of rank 0 only")
ECC = Finding(name="ecc", fault_class=FaultClass.HARDWARE, says="uncorrectable memory error")


def elastic(world_size: int = 4, at_least: int = 2, *, stays: bool = False, **policy: object) -> Story:
    story = Story(world_size, rule(max_restarts=9, **policy), STAYING if stays else WINDOWS)
    story.rules = replace(story.rules, elastic=Elastic(min_workers=at_least))
    return story


def dies(
    story: Story, rank: int, point: RecoveryPoint | None, *notes: DeathNote, after_s: float = 1.0
) -> None:
    """``rank`` fails where training was before, the others leave, all begin again."""
    step = 10
    story.reported(**{f"r{one}": step for one in sorted(story.state.life.alive)})
    story.returned(rank, 1, after_s=after_s)
    for one in sorted(story.state.life.alive):
        story.returned(one, 143)
    story.drained(*notes).chose(point)
    if story.phase is Phase.AWAITING_PLAN:
        return
    if story.phase is Phase.BACKING_OFF:
        story.now_s = story.plan.start_at_s
        story.rang(Timer.BACKOFF)
    story.prepared()


def size(story: Story) -> int:
    return story.plan.topology.world_size


def places(story: Story) -> tuple[int, ...]:
    return story.plan.topology.nodes[0].places


def test_a_slot_that_fails_twice_in_a_row_gets_no_worker_any_more() -> None:
    story = elastic().begins()
    dies(story, 1, checkpoint(10))
    assert (size(story), places(story)) == (4, ())
    dies(story, 1, checkpoint(20))
    assert (size(story), places(story)) == (3, (0, 2, 3))
    slots = story.plan.slots
    assert slots is not None
    assert [(one.slot, one.why) for one in slots.aside] == [
        (1, "it failed 2 times in a row while others worked")
    ]
    assert story.performed(Spawn)[-1].ranks == (0, 1, 2)
    assert story.plan.point is not None
    assert [file.rank for file in story.plan.point.files] == [0, 1, 2]
    assert story.plan.ledger.total_restarts == 2  # a smaller world is charged like any restart


def test_another_slot_that_fails_in_between_clears_the_first() -> None:
    story = elastic().begins()
    for rank in (1, 2, 1, 0):
        dies(story, rank, checkpoint(10))
    assert size(story) == 4


@pytest.mark.parametrize("signum", [None, 9, 15, 2, 1, 10, 11, 6])
@pytest.mark.parametrize("further", [0, 1, 370])
def test_only_what_breaks_again_and_again_at_one_place_is_in_a_row(signum: int | None, further: int) -> None:
    story = elastic().begins()
    for step in (10, 10 + further):
        story.reported(**{f"r{one}": step for one in range(4)})
        if signum is None:
            story.returned(1, 1, after_s=1.0)
        else:
            story.killed(1, signum, after_s=1.0)
        for one in (0, 2, 3):
            story.returned(one, 143)
        story.drained().chose(checkpoint(10)).prepared()
    assert size(story) == (3 if not further and signum in (None, 11, 6) else 4)


@pytest.mark.parametrize("cause", [Cause.NODE, Cause.ELSEWHERE, Cause.SCHEDULER, Cause.FENCE, Cause.PLATFORM])
def test_whatever_else_fails_in_between_clears_who_failed_before(cause: Cause) -> None:
    accused = Accused(node=NODE, slot=1, failures=1, at_s=1.0)
    plan = replace(first_plan(4), slots=SlotLedger(accused=accused))
    between = Incident(number=2, incarnation=1, at_s=2.0, cause=cause, rank=None, status=None)
    told = accuse(plan, between, rule())
    assert told is not None
    assert (told.accused is None) is not between.ordered


def test_failures_that_lie_far_apart_are_not_in_a_row() -> None:
    story = elastic().begins()
    dies(story, 1, checkpoint(10))
    dies(story, 1, checkpoint(20), after_s=3601)
    assert size(story) == 4


def test_a_rank_is_accused_by_its_slot_also_in_a_smaller_world() -> None:
    story = elastic(at_least=1).begins()
    for _ in range(2):
        dies(story, 1, checkpoint(10))
    for _ in range(2):
        dies(story, 1, checkpoint(20))  # slot 2 by now
    assert places(story) == (0, 3)


def test_no_fewer_workers_than_were_asked_for_and_it_is_said() -> None:
    story = elastic(3, at_least=3).begins()
    dies(story, 1, checkpoint(10))
    dies(story, 1, checkpoint(20))
    assert size(story) == 3
    assert story.plan.slots is not None
    refused = "slot 1 keeps its worker: 2 workers would be left, and --min_worker_num=3"
    assert story.plan.slots.refused == refused


def test_never_from_a_point_that_depends_on_the_number_and_it_is_said_by_name() -> None:
    story = elastic().begins()
    dies(story, 1, FIXED)
    dies(story, 1, FIXED)
    assert size(story) == 4
    assert story.plan.slots is not None
    assert story.plan.slots.refused == f"slot 1 keeps its worker: {FIXED.fixed_by}"


def test_an_older_point_that_serves_any_number_is_taken_instead() -> None:
    story = elastic().begins()
    dies(story, 1, FIXED)
    story.returned(1, 1, after_s=1)
    for rank in (0, 2, 3):
        story.returned(rank, 143)
    story.drained().now(
        RecoveryPointChosen, point=FIXED, refused=(), more_points=(replace(checkpoint(7), files=()),)
    ).prepared()
    assert places(story) == (0, 2, 3)
    assert story.plan.point is not None
    assert story.plan.point.global_step == 7
    assert [file.rank for file in story.plan.point.files] == [0, 1, 2]


def test_whole_copies_leave_a_hybrid_plan() -> None:
    point = replace(checkpoint(10), restore_ranks_map='{"0,2": 0, "1,3": 1}')
    story = elastic().begins()
    dies(story, 1, point)
    dies(story, 1, point)
    assert places(story) == (2, 3)
    assert story.plan.slots is not None
    assert [(one.slot, one.well) for one in story.plan.slots.aside] == [(0, True), (1, False)]
    assert story.plan.slots.groups == ((0, 2), (1, 3))


def test_a_device_that_broke_is_not_tried_again_even_before_the_first_step() -> None:
    story = elastic().begins()
    story.killed(1)
    for rank in (0, 2, 3):
        story.returned(rank, 143)
    story.drained(DeathNote(rank=1, finding=ECC, reports=True)).chose(None).prepared()
    assert places(story) == (0, 2, 3)
    assert story.plan.slots is not None
    assert story.plan.slots.aside[0].why == "its device failed: uncorrectable memory error"


def test_what_the_program_raises_accuses_no_slot() -> None:
    story = elastic().begins()
    note = DeathNote(rank=1, raised=Raised(kind="KeyError", message="x", frame="a.py:1"))
    for step in (10, 20):
        dies(story, 1, checkpoint(step), note)
    assert size(story) == 4


def test_survivors_do_not_wait_for_a_worker_on_a_slot_that_is_given_up() -> None:
    story = elastic(3, stays=True).begins().can_rejoin(0, 1, 2)
    story.reported(r0=5, r1=5, r2=5).returned(1, 1, after_s=1).examined()
    assert story.plan.kept == {0, 2}
    story.rejoined(0, 1, 2, step=5).can_rejoin(1).now(FirstStep, step=6)
    story.returned(1, 1, after_s=1).examined()
    assert story.phase is Phase.DRAINING
    assert story.whys[-1].startswith("rank 1 is not replaced on its slot: it failed 2 times in a row")
    story.returned(0, 143).returned(2, 143).drained().chose(checkpoint(9)).prepared()
    assert places(story) == (0, 2)


def shrunken(world_size: int = 4) -> Story:
    story = elastic(world_size).begins()
    for step in (10, 20):
        dies(story, 1, checkpoint(step))
    assert size(story) == world_size - 1
    return story


def test_a_slot_that_is_well_again_gets_its_worker_back_and_nothing_is_charged() -> None:
    story = shrunken()
    charged = story.plan.ledger.restarts
    story.performed(Spawn)
    story.now(SlotsUsable, node=NODE, slots=(1,), path="ckpt/30")
    assert story.phase is Phase.DRAINING
    assert story.incident.cause is Cause.GROWTH
    for rank in (0, 1, 2):
        story.returned(rank, 143)
    story.drained()
    assert story.performed(FindRecoveryPoint)[-1].world_size == 3
    story.chose(checkpoint(31)).prepared()
    assert (size(story), places(story)) == (4, ())
    assert story.performed(Spawn)[-1].ranks == (0, 1, 2, 3)
    assert story.plan.ledger.restarts == charged
    assert story.plan.slots is not None
    assert story.plan.slots.aside == ()


def test_it_stays_small_where_the_point_does_not_serve_more() -> None:
    story = shrunken()
    story.now(SlotsUsable, node=NODE, slots=(1,), path="ckpt/30")
    for rank in (0, 1, 2):
        story.returned(rank, 143)
    story.drained().chose(FIXED).prepared()
    assert places(story) == (0, 2, 3)
    assert story.plan.slots is not None
    assert story.plan.slots.stays_small == f"no more workers: {FIXED.fixed_by}"
    story.now(SlotsUsable, node=NODE, slots=(1,), path="ckpt/40")
    assert story.phase is Phase.RUNNING, "all would start again at each save, for nothing"


def test_news_of_a_slot_that_has_its_worker_changes_nothing() -> None:
    story = shrunken()
    story.now(SlotsUsable, node=NODE, slots=(0,), path="ckpt/30")
    assert story.phase is Phase.RUNNING


def test_a_new_supervisor_goes_on_with_as_many() -> None:
    story = shrunken()
    story.starts().chose(checkpoint(25)).prepared()
    assert places(story) == (0, 2, 3)


def test_a_run_that_was_given_up_begins_again_with_all() -> None:
    story = shrunken()
    story.rules = replace(story.rules, policy=replace(story.rules.policy, max_restarts=0))
    story.killed(0)
    for rank in (1, 2):
        story.returned(rank, 143)
    story.drained().chose(checkpoint(25))
    assert story.state.given_up
    story.starts().chose(checkpoint(25)).prepared()
    assert (size(story), places(story)) == (4, ())


def test_without_the_option_nothing_is_ever_noted() -> None:
    story = Story(4, rule(max_restarts=9)).begins()
    for step in (10, 20, 30):
        dies(story, 1, checkpoint(step))
    assert (size(story), story.plan.slots) == (4, None)


@settings(max_examples=60, deadline=None)
@given(
    st.integers(2, 5),
    st.integers(1, 5),
    st.lists(st.tuples(st.integers(0, 4), st.booleans(), st.booleans()), max_size=8),
)
def test_never_fewer_than_asked_for_never_from_a_fixed_point_and_no_restart_is_won(
    world_size: int, at_least: int, faults: list[tuple[int, bool, bool]]
) -> None:
    at_least = min(at_least, world_size)
    story = elastic(world_size, at_least).begins()
    for rank, fixed, grows in faults:
        before, charged = size(story), story.plan.ledger.total_restarts
        dies(story, rank % size(story), FIXED if fixed else checkpoint(10))
        if story.state.done:
            return
        assert at_least <= size(story) <= world_size
        assert size(story) in ((before,) if fixed else (before, before - 1))
        assert set(places(story)) <= set(range(world_size))
        assert len(places(story)) in (0, size(story))
        assert story.plan.ledger.total_restarts == charged + 1
        slots = story.plan.slots
        if grows and slots is not None and slots.aside:
            before, left = size(story), story.plan.ledger.restarts
            story.now(SlotsUsable, node=NODE, slots=(slots.aside[0].slot,))
            for one in sorted(story.state.life.alive):
                story.returned(one, 143)
            story.drained().chose(checkpoint(50)).prepared()
            assert size(story) == before + 1
            assert story.plan.ledger.restarts == left


def held(story: Story, parts: int) -> list[int]:
    """Which part of the model each rank of now holds: that of its slot."""
    slots = places(story) or tuple(range(size(story)))
    return [slot % parts for slot in slots]


def saved_by(story: Story, parts: int) -> RecoveryPoint:
    """What the ranks of now have saved: a file for each part, that of its first rank."""
    parts_of = held(story, parts)
    groups = [[rank for rank, part in enumerate(parts_of) if part == one] for one in range(parts)]
    told = {",".join(map(str, group)): group[0] for group in groups}
    files = tuple(
        RankFile(rank=rank, path=f"part{part}", from_rank=part) for rank, part in enumerate(parts_of)
    )
    return replace(checkpoint(10), files=files, restore_ranks_map=json.dumps(told))


@settings(max_examples=60, deadline=None)
@given(
    st.integers(2, 3), st.integers(2, 3), st.lists(st.tuples(st.integers(0, 8), st.booleans()), max_size=8)
)
def test_in_a_hybrid_plan_each_rank_goes_on_with_its_part_whoever_leaves_and_comes_back(
    parts: int, copies: int, faults: list[tuple[int, bool]]
) -> None:
    whole = parts * copies
    story = elastic(whole, at_least=1, window_s=1.5).begins()
    for rank, grows in faults:
        before = size(story)
        point = saved_by(story, parts)
        for _ in range(2):
            if size(story) == before:
                dies(story, rank % before, point)
        if story.state.done:
            return
        assert size(story) in (before, before - parts)
        assert size(story) >= parts  # the last copy stays
        slots = story.plan.slots
        if grows and slots is not None and slots.aside:
            saved = saved_by(story, parts)
            story.now(SlotsUsable, node=NODE, slots=tuple(one.slot for one in slots.bad))
            for one in sorted(story.state.life.alive):
                story.returned(one, 143)
            story.drained().chose(saved).prepared()
            assert size(story) == whole
        assert held(story, parts) == list(range(parts)) * (size(story) // parts)
        assert story.plan.point is not None
        assert [story.plan.point.path_for(one) for one in range(size(story))] == [
            f"part{part}" for part in held(story, parts)
        ]


def test_who_starts_a_run_again_with_another_number_of_workers_is_asked_for_what_serves_it() -> None:
    for before, now in ((2, 3), (3, 2), (3, 3)):
        story = Story(before).begins(checkpoint(5))
        story.goes_on_from(replace(story.state, topology=topology(now))).starts()
        (look,) = story.performed(FindRecoveryPoint)
        assert (look.world_size, look.before) == (now, 0 if now == before else before)
    story = shrunken()
    story.starts()  # a supervisor is lost: the next one goes on with as many
    (look,) = story.performed(FindRecoveryPoint)[-1:]
    assert (look.world_size, look.before) == (3, 0)
