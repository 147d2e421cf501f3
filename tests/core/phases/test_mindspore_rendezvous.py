"""Our own scheduler as stories: it serves, or MindSpore's takes over for the rest of the run."""

from faultrun.core.phases.mindspore_rendezvous import FORMING_S
from faultrun.model.actions import RequestGasp, RestoreScheduling, Spawn, StartTimer
from faultrun.model.events import Timer
from faultrun.model.exits import Exited
from faultrun.model.incident import Cause
from faultrun.model.observed.mindspore_rendezvous import ClusterFormed, RankMissed, RanksMet, SchedulerFailed
from faultrun.model.run import Phase
from faultrun.model.spec.windows import Deadline
from faultrun.observe.card.card import render
from support.stories.story import SIGTERM, Story, checkpoint


def met() -> Story:
    """Both ranks have registered, and none is through ``init()``."""
    story = Story(2).begins()
    return story.tell(RanksMet(at_s=10, incarnation=0))


def failed(story: Story, why: str = "a message called b'13'") -> Story:
    return story.now(SchedulerFailed, why=why)


def test_a_cluster_that_forms_in_time_is_left_alone() -> None:
    story = met()
    assert story.performed(StartTimer) == [
        StartTimer(timer=Timer.FORMING, at_s=10 + FORMING_S, incarnation=0)
    ]
    story.tell(ClusterFormed(at_s=10.5, incarnation=0, took_s=0.5))
    story.rang(Timer.FORMING)
    assert story.phase is Phase.RUNNING
    assert story.actions == [RestoreScheduling(incarnation=0)]
    assert not story.state.run.native_scheduler


def test_an_init_that_does_not_end_is_started_again_with_the_other_scheduler_and_nobody_is_charged() -> None:
    story = met()
    story.rang(Timer.FORMING, after_s=25)

    assert story.performed(RequestGasp) == [
        RequestGasp(ranks=frozenset({0, 1}), deadline=Deadline(at_s=55), peers_lost=True)
    ]
    assert "MindSpore's own scheduler process serves the rest of the run" in story.whys[-1]
    story.killed(0, SIGTERM).killed(1, SIGTERM).recovers()

    assert [spawn.native_scheduler for spawn in story.performed(Spawn)] == [True]
    assert story.plan.ledger.restarts == ()


def test_what_it_does_not_understand_gives_it_up_for_the_rest_of_the_run() -> None:
    story = Story(2).begins().reported(r0=7, r1=8)
    failed(story)
    assert (story.incident.cause, story.incident.step) == (Cause.RENDEZVOUS, 8)
    story.killed(0, SIGTERM).killed(1, SIGTERM).recovers(checkpoint(7))
    story.killed(0).killed(1, SIGTERM).recovers(checkpoint(7))
    assert [spawn.native_scheduler for spawn in story.performed(Spawn)] == [True, True]


def test_a_failure_while_the_workers_leave_changes_the_next_start_only() -> None:
    story = Story(2).begins().killed(1)
    story.actions.clear()
    failed(story)
    assert story.actions == []
    assert story.phase is Phase.DRAINING
    story.killed(0, SIGTERM).recovers()
    assert [spawn.native_scheduler for spawn in story.performed(Spawn)] == [True]


def test_a_failure_is_acted_on_once() -> None:
    story = Story(2).begins()
    failed(failed(story))
    assert len(story.performed(RequestGasp)) == 1
    assert story.whys[-1] == "the built-in scheduler is given up already"


def test_an_error_inside_init_is_held_against_the_scheduler_and_a_kill_is_not() -> None:
    story = met().returned(1, 1)
    assert story.state.run.native_scheduler
    assert story.incident.explanation.startswith("rank 1 exited with code 1 in init()")
    story.killed(0, SIGTERM).recovers()
    assert [spawn.native_scheduler for spawn in story.performed(Spawn)] == [True]
    assert not met().killed(1).state.run.native_scheduler
    formed = met().tell(ClusterFormed(at_s=11, incarnation=0, took_s=1))
    assert not formed.returned(1, 1).state.run.native_scheduler
    assert not Story(2).begins().ended(1, Exited(code=1)).state.run.native_scheduler


def test_ranks_that_wait_in_init_for_one_that_died_say_nothing_against_the_scheduler() -> None:
    story = met().killed(1)
    story.rang(Timer.FORMING, after_s=20)
    assert story.phase is Phase.DRAINING
    assert not story.state.run.native_scheduler


def test_a_rank_that_left_well_while_the_others_wait_for_it_is_the_first_to_fail() -> None:
    story = Story(3).begins().returned(0, 0)
    assert story.phase is Phase.RUNNING
    story.tell(RankMissed(at_s=story.now_s, incarnation=0, rank=0))
    assert [request.ranks for request in story.performed(RequestGasp)] == [frozenset({1, 2})]
    story.killed(1, SIGTERM).returned(2, 1).drained()
    incident = story.incident
    assert (incident.cause, incident.rank, incident.status) == (Cause.EXIT, 0, Exited(code=0))
    assert incident.explanation == "left with exit code 0 while the others waited to meet it"
    assert incident.followers == (1, 2)
    assert not story.state.run.native_scheduler


def test_a_missed_rank_means_nothing_once_the_workers_leave() -> None:
    story = Story(3).begins().returned(0, 0).killed(1)
    story.actions.clear()
    story.tell(RankMissed(at_s=story.now_s, incarnation=0, rank=0))
    assert story.actions == []
    assert story.phase is Phase.DRAINING


def test_the_next_incarnation_meets_anew() -> None:
    story = met().killed(1).killed(0, SIGTERM).recovers()
    assert not story.state.life.forming
    story.rang(Timer.FORMING)
    assert story.phase is Phase.RUNNING


def test_the_card_says_that_nobody_failed() -> None:
    story = failed(Story(2).begins())
    card = story.card
    assert render(card).splitlines()[0] == "incident 1  all workers stopped to change the scheduler"
    assert "not counted" in render(card)
