"""Checkpoints that are gone, or not whole yet: waited for, never begun without."""

from dataclasses import replace

import pytest

from faultrun.model.actions import FindRecoveryPoint, Prepare, Publish, StartTimer
from faultrun.model.events import NothingWhole, Timer
from faultrun.model.observed.dying_gasp import SaveSeen
from faultrun.model.plan import Plan
from faultrun.model.run import Phase
from faultrun.model.topology import NodeId, NodeSlots, Topology
from support.stories.story import NODE, Story, checkpoint, first_plan

WHY = "the checkpoints in mnt are gone\n  because: mnt does not exist\n  try:     bring them back"


def gone(story: Story, for_s: float) -> Story:
    return story.now(NothingWhole, refused=(), why=WHY, gone_s=for_s)


def asked(story: Story) -> FindRecoveryPoint:
    (survey,) = story.performed(FindRecoveryPoint)
    return survey


def test_a_run_that_had_nothing_expects_nothing() -> None:
    assert asked(Story(1).starts()).expects == ""
    assert asked(Story(1).begins().killed(0).drained()).expects == ""


def test_what_a_run_resumed_from_is_expected_ever_after() -> None:
    story = Story(1).begins(checkpoint(5, "p")).killed(0).drained()
    assert asked(story).expects == "p"
    gone(story, 0)
    assert asked(story.rang(Timer.LOOK, after_s=1)).expects == "p"
    assert asked(story.starts()).expects == "p", "the next supervisor knows it from the journal"


def test_so_is_what_a_rank_said_that_it_saved_whether_or_not_the_run_was_ending() -> None:
    story = Story(2).begins().saved(0, 7)
    assert story.phase is Phase.RUNNING
    survey = asked(story.killed(0).killed(1).drained())
    assert (survey.expects, survey.folders) == ("gasp_0", (".",))
    story = Story(2).begins().told_to_stop().saved(1, 7).read_back(1).killed(0).killed(1).drained()
    assert story.state.exit_code == 143
    survey = asked(story.starts())
    assert (survey.expects, survey.folders) == ("gasp_1", (".",))


def test_so_is_a_save_of_the_script_that_was_only_seen_also_by_the_next_supervisor() -> None:
    story = Story(1).begins()
    seen = SaveSeen(at_s=story.now_s, incarnation=0, path="mnt/ckpt/last.pt")
    assert asked(story.tell(seen).starts()).expects == "mnt/ckpt/last.pt"
    late = Story(1).begins().killed(0).recovers().tell(seen)  # of a life that is over: it is about the run
    late.performed(FindRecoveryPoint)
    assert asked(late.starts()).expects == "mnt/ckpt/last.pt"


def test_a_folder_that_is_gone_is_looked_for_again_ever_more_rarely_and_not_for_ever() -> None:
    story = Story(1).begins(checkpoint(5, "p")).killed(0).drained()
    began_s, looks = story.now_s, 0
    while not story.state.done:
        story.performed(FindRecoveryPoint)
        gone(story, story.now_s - began_s)
        for timer in story.performed(StartTimer):
            looks += 1
            story.now_s = timer.at_s
            story.rang(Timer.LOOK)
    assert 60 <= story.now_s - began_s <= 120
    assert looks < 10
    assert (story.state.exit_code, story.whys[-1]) == (65, f"the end: {WHY}")


def test_a_folder_that_comes_back_is_resumed_from() -> None:
    story = gone(Story(1).begins(checkpoint(5, "p")).killed(0).drained(), 0)
    story.rang(Timer.LOOK, after_s=1).chose(checkpoint(5, "p")).prepared()
    assert story.phase is Phase.RUNNING


def test_a_stop_ends_the_wait() -> None:
    story = gone(Story(1).begins(checkpoint(5, "p")).killed(0).drained(), 0).told_to_stop()
    assert story.state.exit_code == 143


@pytest.mark.parametrize("phase", [Phase.RUNNING, Phase.DRAINING])
def test_a_late_look_means_nothing(phase: Phase) -> None:
    story = Story(2).begins()
    if phase is Phase.DRAINING:
        story.killed(0)
    story.actions.clear()
    assert not story.rang(Timer.LOOK).actions


def test_a_survey_that_cannot_go_on_ends_the_run_with_its_own_code() -> None:
    story = Story(1).starts().could_not_prepare(71, "no room for the list", surveying=True)
    assert story.state.exit_code == 71


TWO = Topology(nodes=(NodeSlots(node=NODE, slots=2), NodeSlots(node=NodeId("other"), slots=2)))


def waiting_spare() -> Story:
    """A node of several, at its first look."""
    story = Story(2)
    story.agreement_is_silent = True
    story.state = replace(story.state, topology=TWO)
    return story.starts()


def planned(incarnation: int) -> Plan:
    return first_plan(4, incarnation=incarnation, topology=TWO)


def test_a_node_that_waits_with_nothing_whole_looks_again_by_itself_ever_more_rarely() -> None:
    story = waiting_spare()
    began_s, waits = story.now_s, []
    for _ in range(9):
        story.performed(StartTimer)
        story.found_nothing_whole()
        (timer,) = story.performed(StartTimer)
        assert timer.timer is Timer.LACK
        waits.append(timer.at_s - story.now_s)
        story.now_s = timer.at_s
        story.rang(Timer.LACK)
        assert story.phase is Phase.SURVEYING
    assert waits == [10, 10, 20, 40, 80, 160, 320, 600, 600]
    assert story.now_s - began_s == sum(waits)
    story.chose(checkpoint(5)).rang(Timer.LACK)
    assert (story.phase, story.performed(Publish)[-1].fact.resume.lacks) == (Phase.AWAITING_PLAN, "")


def test_a_spare_that_found_nothing_whole_begins_beside_survivors_and_never_at_zero() -> None:
    story = waiting_spare().found_nothing_whole().planned(planned(0))
    assert (story.phase, story.performed(Prepare)) == (Phase.AWAITING_PLAN, [])
    beside = replace(planned(1), kept=frozenset({2, 3}), since=0, meets_at="10.0.0.1:7000")
    story.planned(beside)
    (prepare,) = story.performed(Prepare)
    assert prepare.plan == beside
