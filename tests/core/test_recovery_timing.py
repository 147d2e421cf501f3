"""Each recovery is timed part by part: stories without a clock."""

from dataclasses import replace

import pytest

from faultrun.core.recovery_timing import Stopwatch, look
from faultrun.model.events import Event, FirstStep, PlanAdopted, WorkerStarted
from faultrun.model.observed.mindspore_rendezvous import ClusterFormed, RanksMet
from faultrun.model.observed.recovery import PARTS, FirstStepLogged, RecoveryTimed
from faultrun.model.run import Phase
from support.stories.story import NODE, Story


def timed(story: Story) -> list[RecoveryTimed]:
    """What the stopwatch said of everything that happened."""
    watch, said = Stopwatch(), []
    for event, step in story.steps:
        watch, one = look(watch, event, step.state.phase)
        said += [one] if one is not None else []
    return said


def parts(times: RecoveryTimed) -> dict[str, float]:
    """The known parts; with them nothing is left of the total."""
    known = {name: value for name in PARTS if (value := getattr(times, name)) is not None}
    assert sum(known.values()) == pytest.approx(times.total_s)
    return known


def at(story: Story, now_s: float) -> Story:
    story.now_s = now_s
    return story


def goes_on(story: Story, *told: Event) -> Story:
    """Dead at 10, drained at 10.5, chosen at 11, workers at 11.5; a cold one and a standby."""
    at(story, 10.0).killed(1).returned(0, 143)
    at(story, 10.5).drained()
    at(story, 11.0).chose()
    assert story.phase is Phase.PREPARING
    at(story, 11.25).prepared()
    for rank in range(2):
        warm = rank == 0
        story.tell(WorkerStarted(at_s=11.4, incarnation=1, node=NODE, rank=rank, pid=7, standby=warm))
    at(story, 11.5).all_run()
    for event in told:
        story.tell(event)
    return story


def trains(life: int, at_s: float) -> FirstStep:
    return FirstStep(at_s=at_s, incarnation=life, step=5)


def test_a_recovery_is_told_part_by_part_when_all_ranks_train_again() -> None:
    story = Story(2).begins().all_run()
    story.tell(trains(0, 2.0))
    met, formed = RanksMet(at_s=12.0, incarnation=1), ClusterFormed(at_s=12.75, incarnation=1, took_s=0.75)
    (times,) = timed(goes_on(story, met, formed, trains(1, 13.0)))
    assert parts(times) == {
        "detect_s": 0.0,
        "drain_s": 0.5,
        "choose_s": 0.5,
        "pause_s": 0.0,
        "rewrite_s": 0.25,
        "spawn_s": 0.25,
        "import_s": 0.5,
        "rendezvous_s": 0.75,
        "first_step_s": 0.25,
    }
    assert (times.incarnation, times.standbys, times.at_s) == (1, 1, 13.0)


def test_where_nobody_says_when_ranks_met_the_first_step_holds_all_of_it() -> None:
    story = Story(2).begins().all_run()
    story.tell(trains(0, 2.0))
    (times,) = timed(goes_on(story, trains(0, 12.0), trains(1, 13.0)))
    assert (times.import_s, times.rendezvous_s, times.first_step_s) == (None, None, 1.5)


def test_where_nobody_reports_steps_it_is_over_when_ranks_have_met_or_run() -> None:
    (times,) = timed(goes_on(Story(2).begins().all_run()))
    assert (times.at_s, times.first_step_s) == (11.5, None)
    story = Story(2).begins().all_run()
    story.tell(RanksMet(at_s=1.0, incarnation=0))
    met, formed = RanksMet(at_s=12.0, incarnation=1), ClusterFormed(at_s=12.75, incarnation=1, took_s=0.75)
    (times,) = timed(goes_on(story, met, formed))
    assert (times.at_s, times.rendezvous_s, times.first_step_s) == (12.75, 0.75, None)


def test_a_step_in_a_log_ends_a_recovery_and_one_that_nobody_expected_is_told_after_all() -> None:
    logged = FirstStepLogged(at_s=14.0, incarnation=1, rank=0, step=5)
    story = Story(2).begins().all_run()
    story.tell(FirstStepLogged(at_s=2.0, incarnation=0, rank=0, step=1))
    (times,) = timed(goes_on(story, logged))
    assert (times.total_s, times.first_step_s) == (4.0, 2.5)
    early, times = timed(goes_on(Story(2).begins().all_run(), logged, trains(1, 15.0)))
    assert (early.total_s, early.first_step_s) == (1.5, None)
    assert (times.total_s, times.first_step_s) == (4.0, 2.5)


def test_a_stop_is_no_recovery_and_a_hang_is_counted_from_the_last_step() -> None:
    story = Story(2).begins().all_run()
    story.told_to_stop().returned(0, 143).returned(1, 143).drained()
    assert timed(story) == []
    story = Story(2).begins().all_run()
    story.tell(trains(0, 2.0))
    at(story, 9.0).is_silent(1)
    at(story, 10.0).hangs(1).returned(0, 143).returned(1, 143).drained().chose().prepared().all_run()
    story.tell(trains(1, 12.0))
    (times,) = timed(story)
    assert times.detect_s == pytest.approx(1.2 + 1.0), "the silence, and the look into it"
    assert times.total_s == pytest.approx(times.detect_s + 2.0)


def test_a_suspicion_that_was_dismissed_says_nothing_of_a_later_hang() -> None:
    story = Story(2).begins().all_run()
    story.tell(trains(0, 2.0))
    at(story, 9.0).is_silent(1).works_after_all()
    at(story, 30.0).hangs(1).returned(0, 143).returned(1, 143).drained().chose().prepared().all_run()
    (times,) = timed(story.tell(trains(1, 32.0)))
    assert times.detect_s == pytest.approx(1.2)


@pytest.mark.parametrize(("incarnation", "times"), [(1, 1), (2, 0)])
def test_a_node_without_which_others_went_on_times_no_recovery_when_it_has_a_place_again(
    incarnation: int, times: int
) -> None:
    story = Story(2).begins().all_run()
    story.tell(trains(0, 2.0))
    goes_on(story, trains(1, 13.0))
    watch, said = Stopwatch(), []
    for told, step in story.steps:
        event = told
        if event.incarnation == 1:
            event = replace(event, incarnation=incarnation)
        if isinstance(event, PlanAdopted) and event.incarnation:
            event = replace(event, plan=replace(event.plan, incarnation=incarnation))
        watch, one = look(watch, event, step.state.phase)
        said += [one] if one is not None else []
    assert len(said) == times
