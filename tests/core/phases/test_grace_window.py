"""When the window of a dying gasp ends before its time: stories about who had come how far."""

import pytest

from faultrun.core.phases.drain import READ_BACK_S
from faultrun.model.actions import Kill, StartTimer, Sweep, VerifySave
from faultrun.model.events import Timer
from faultrun.model.run import Phase
from faultrun.model.spec.windows import Deadline
from support.stories.notice_stories import told as notice
from support.stories.story import Story


def early(ranks: set[int], until_s: float = 30.0) -> Kill:
    """Before the window's end: who has a checkpoint open to be written may go on until then."""
    return Kill(ranks=frozenset(ranks), writers_until=Deadline(at_s=until_s))


def story(world_size: int = 4) -> Story:
    story = Story(world_size).begins()
    story.reported(**{f"r{rank}": 7 for rank in range(world_size)})
    story.actions.clear()
    return story


def test_one_verified_save_of_the_newest_step_ends_it() -> None:
    told = story().killed(1).heard(0, 7).heard(2, 7).heard(3, 7).saved(2, 7)
    assert not told.performed(Kill)
    assert told.read_back(2).performed(Kill) == [early({0, 2, 3})]


def test_a_rank_that_promised_a_newer_step_is_waited_for() -> None:
    told = story().killed(1).heard(3, 8).saved(2, 7).read_back(2)
    assert not told.performed(Kill)
    assert told.saved(3, 8).read_back(3).performed(Kill) == [early({0, 2, 3})]


def test_a_rank_that_is_further_by_the_progress_page_is_waited_for_although_it_has_not_answered() -> None:
    told = story().told_to_stop().heard(2, 7).saved(2, 7).reported(r3=8).read_back(2)
    assert told.phase is Phase.DRAINING
    assert told.saved(3, 8).read_back(3).performed(Kill) == [early({0, 1, 2, 3}, until_s=20)]


def test_a_rank_that_finished_another_step_after_it_answered_is_waited_for() -> None:
    told = story().told_to_stop().heard(3, 7).saved(2, 7).reported(r3=8).read_back(2)
    assert told.phase is Phase.DRAINING


def test_what_only_a_dead_rank_had_is_not_waited_for() -> None:
    told = story().reported(r0=8).killed(1).killed(0).saved(2, 7)
    assert told.read_back(2).performed(Kill) == [early({2, 3})]


def test_the_death_of_the_only_rank_that_was_further_ends_it() -> None:
    told = story().reported(r0=8).killed(1).saved(2, 7).read_back(2)
    assert not told.performed(Kill)
    assert told.killed(0).performed(Kill) == [early({2, 3})]


def test_a_rank_that_cannot_save_after_all_is_not_waited_for() -> None:
    told = story().killed(1).heard(3, 8).saved(2, 7).read_back(2)
    assert not told.performed(Kill)
    assert told.could_not_save(3).performed(Kill) == [early({0, 2, 3})]


def test_a_save_that_is_not_whole_ends_nothing() -> None:
    assert story().killed(1).saved(2, 7).read_back(2, whole=False).phase is Phase.DRAINING


def test_the_first_groups_save_does_not_end_the_window_of_the_others() -> None:
    told = story().killed(1).saved(0, 7, group=(0, 2)).read_back(0)
    assert not told.performed(Kill)
    told.saved(3, 7, group=(1, 3)).read_back(3)
    assert told.performed(Kill) == [early({0, 2, 3})]


def test_a_group_that_is_a_step_behind_is_waited_for_until_it_has_its_own_newest() -> None:
    told = story().reported(r0=8, r2=8).killed(1).saved(0, 8, group=(0, 2)).read_back(0)
    assert not told.performed(Kill)
    told.heard(3, 7).saved(3, 7, group=(1, 3)).read_back(3)
    assert told.performed(Kill) == [early({0, 2, 3})]


def test_one_copy_of_a_replica_group_is_read_back_and_another_only_where_that_one_is_torn() -> None:
    told = story().told_to_stop().saved(1, 7).saved(0, 7).saved(2, 6).saved(3, 7)
    assert [action.rank for action in told.performed(VerifySave)] == [1]
    assert [one.rank for one in told.read_back(1, whole=False).performed(VerifySave)] == [0]
    assert told.read_back(0, whole=False).performed(VerifySave)[0].rank == 3
    assert told.read_back(3).performed(VerifySave) == []


def test_a_newer_save_is_read_back_beside_an_older_one_and_so_is_each_group() -> None:
    told = (
        story().told_to_stop().saved(0, 6, group=(0, 1)).saved(1, 7, group=(0, 1)).saved(2, 6, group=(2, 3))
    )
    assert [action.rank for action in told.performed(VerifySave)] == [0, 1, 2]


def test_a_save_of_a_faulty_device_ends_no_window_in_which_a_well_rank_of_its_group_can_still_save() -> None:
    faulty = story().reported(r0=8).noticed(notice({0: "unrecovered"})).saved(0, 8).read_back(0)
    assert not faulty.performed(Kill), "nobody resumes from it while another's is there"
    faulty.saved(2, 7)
    assert [action.rank for action in faulty.performed(VerifySave)] == [2]
    assert faulty.read_back(2).performed(Kill) == [early({0, 1, 2, 3})]


def test_a_save_of_a_faulty_device_serves_where_no_well_rank_of_its_group_can_save() -> None:
    faulty = story().noticed(notice({0: "unrecovered"})).saved(0, 7).read_back(0)
    for rank in (1, 2):
        assert not faulty.could_not_save(rank).performed(Kill)
    assert faulty.could_not_save(3).performed(Kill) == [early({0, 1, 2, 3})]
    alone = story().noticed(notice({0: "unrecovered"})).saved(0, 7, group=(0,)).read_back(0)
    assert alone.saved(1, 7, group=(1, 2, 3)).read_back(1).performed(Kill)


def test_of_well_ranks_that_have_saved_another_is_read_back_where_one_is_torn_or_found_faulty() -> None:
    torn = story().noticed(notice({0: "unrecovered"})).saved(1, 7).saved(0, 7).saved(2, 7).saved(3, 7)
    torn.performed(VerifySave)
    assert [action.rank for action in torn.read_back(1, whole=False).performed(VerifySave)] == [2]
    assert not torn.read_back(0).performed(Kill), "rank 1 may save once more"
    assert torn.read_back(2).performed(Kill) == [early({0, 1, 2, 3})]
    late = story().killed(3).saved(1, 7).saved(2, 7).noticed(notice({1: "unrecovered"}))
    late.performed(VerifySave)
    assert [action.rank for action in late.read_back(1).performed(VerifySave)] == [2]
    assert late.read_back(2).performed(Kill) == [early({0, 1, 2})]


def test_a_well_save_that_nobody_has_read_back_yet_is_on_the_disk_and_keeps_no_window_open() -> None:
    assert story().killed(3).saved(1, 7).saved(2, 7).read_back(1, whole=True).performed(Kill)
    faulty = story().noticed(notice({0: "unrecovered"})).saved(0, 7).read_back(0).saved(1, 7)
    faulty.could_not_save(2)
    assert not faulty.performed(Kill)
    assert faulty.could_not_save(3).performed(Kill) == [early({0, 1, 2, 3})]


def test_nobody_waits_for_a_save_to_be_read_back_before_what_is_left_of_the_workers_is_swept() -> None:
    told = leaving(story().told_to_stop().saved(0, 7))
    assert told.performed(Sweep)
    assert told.drained().phase is Phase.SWEEPING, "whether the save is whole is part of how the run ends"
    assert told.read_back(0).phase is Phase.FINISHED


def test_a_stopped_run_whose_processes_are_gone_waits_a_moment_for_a_save_to_be_read_back() -> None:
    told = leaving(story().told_to_stop().saved(0, 7)).drained()
    (timer,) = (one for one in told.performed(StartTimer)[-1:] if one.timer is Timer.GRACE)
    assert timer.at_s - told.now_s == pytest.approx(READ_BACK_S)


def test_a_stopped_run_ends_with_its_window_although_a_save_is_still_being_read_back() -> None:
    assert leaving(story().told_to_stop().saved(0, 7)).drained().rang(Timer.GRACE).phase is Phase.FINISHED
    late = leaving(story().told_to_stop().saved(0, 7))
    late.now_s += 20
    assert late.drained().phase is Phase.FINISHED
    impatient = leaving(story().told_to_stop().saved(0, 7)).drained().told_to_stop(after_s=3)
    assert impatient.phase is Phase.FINISHED


def test_after_a_fault_the_survey_does_not_wait_for_the_loop_to_hear_of_every_save() -> None:
    told = leaving(story().killed(1).saved(0, 7)).drained()
    assert told.phase is Phase.SURVEYING
    assert told.read_back(0).phase is Phase.SURVEYING


def leaving(told: Story) -> Story:
    """Every worker that lives leaves."""
    for rank in sorted(told.state.life.alive):
        told.returned(rank, 143)
    return told
