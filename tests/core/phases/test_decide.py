"""A worker fails: the stories of drain, recovery and restart."""

from dataclasses import replace

from faultrun.core.phases.decide import decide
from faultrun.model.actions import (
    FindRecoveryPoint,
    Kill,
    Prepare,
    Publish,
    RaiseAlarm,
    RequestGasp,
    RequestSave,
    Spawn,
    StartTimer,
    Sweep,
)
from faultrun.model.events import PrepareFailed, Timer
from faultrun.model.exits import Exited, Signaled
from faultrun.model.observed.agreement import IncarnationOver
from faultrun.model.observed.dying_gasp import SaveRequested
from faultrun.model.observed.evidence import DeathNote
from faultrun.model.observed.node_fact import NodeStatus
from faultrun.model.plan import Reason
from faultrun.model.run import Phase
from faultrun.model.spec.windows import NO_DEADLINE, Deadline
from faultrun.model.topology import NodeId
from support.stories.story import NODE, SIGKILL, SIGSEGV, SIGTERM, Story, checkpoint, rule


def test_a_run_looks_for_checkpoints_agrees_prepares_and_then_starts_every_rank() -> None:
    story = Story(3).starts()
    assert story.performed(FindRecoveryPoint) == [
        FindRecoveryPoint(incarnation=-1, continuing=False, world_size=3)
    ]
    story.chose(None)
    assert [action.plan.incarnation for action in story.performed(Prepare)] == [0]
    assert story.phase is Phase.PREPARING

    story.prepared(port=4711)

    (spawn,) = story.performed(Spawn)
    assert (spawn.ranks, spawn.master_port) == ((0, 1, 2), 4711)
    assert spawn.plan.reason is Reason.FIRST
    assert story.state.life.alive == {0, 1, 2}


def test_survivors_are_asked_first_and_then_get_the_grace_window() -> None:
    story = Story(3).begins()

    story.killed(1, after_s=100)

    assert story.actions == [
        RequestGasp(ranks=frozenset({0, 2}), deadline=Deadline(at_s=130), peers_lost=True),
        RaiseAlarm(incarnation=0, why="rank 1 killed by SIGKILL"),
        StartTimer(timer=Timer.GRACE, at_s=130, incarnation=0),
    ]
    assert story.whys[-1] == "rank 1: killed by SIGKILL; 2 get 30 s to save"


def test_a_save_is_asked_for_while_training_runs_and_not_while_everybody_saves_to_leave() -> None:
    story = Story(2).begins()
    asked = SaveRequested(at_s=1.0, incarnation=0, window_s=12.0)
    assert story.tell(asked).performed(RequestSave) == [RequestSave(window_s=12.0)]
    assert not story.killed(1).tell(asked).performed(RequestSave)


def test_whoever_outlives_the_window_is_killed_and_nobody_else() -> None:
    story = Story(3).begins().killed(1, after_s=100).killed(0, SIGTERM, after_s=1)
    story.actions.clear()

    story.rang(Timer.GRACE, after_s=29)

    assert story.actions == [
        Kill(ranks=frozenset({2})),
        StartTimer(timer=Timer.REAP, at_s=140, incarnation=0),
    ]
    assert story.phase is Phase.KILLING


def test_the_sweep_waits_for_the_last_death_and_the_survey_for_the_sweep() -> None:
    story = Story(3).begins().killed(1).killed(0, SIGTERM)
    assert story.performed(Sweep) == []

    story.killed(2, SIGTERM)
    assert story.performed(Sweep) == [Sweep(incarnation=0, dead=(1, 0, 2), write_by=NO_DEADLINE)]
    assert story.performed(FindRecoveryPoint) == []

    story.drained()
    (survey,) = story.performed(FindRecoveryPoint)
    assert (survey.continuing, survey.fault_at_s) == (True, 0.0)


def test_after_a_fault_all_ranks_start_again_from_the_recovery_point() -> None:
    story = Story(3).begins().killed(1).killed(0, SIGTERM).killed(2, SIGTERM)

    story.recovers(checkpoint(1200))

    (spawn,) = story.performed(Spawn)
    assert spawn.ranks == (0, 1, 2)
    assert spawn.plan.incarnation == 1
    assert spawn.plan.reason is Reason.FAULT
    assert spawn.plan.point == checkpoint(1200)
    assert story.state.life.incident is None


def test_a_run_is_done_when_every_rank_returned_zero() -> None:
    story = Story(2).begins().returned(1)
    assert (story.phase, story.whys[-1]) == (Phase.RUNNING, "rank 1 finished; 1 still run")

    story.returned(0).drained()

    assert (story.phase, story.state.exit_code) == (Phase.FINISHED, 0)


def test_a_rank_that_fails_after_others_finished_restarts_all_of_them() -> None:
    story = Story(2).begins().returned(0).returned(1, 3).recovers()
    (spawn,) = story.performed(Spawn)
    assert spawn.ranks == (0, 1)


def test_a_signal_that_ends_a_rank_which_was_done_is_no_failure_and_a_code_it_returns_is() -> None:
    story = Story(2).begins()
    story.ended(0, Signaled(signum=SIGSEGV), done=True).ended(
        1, Signaled(signum=SIGKILL), done=True
    ).drained()
    assert (story.state.exit_code, story.state.incidents) == (0, 0)
    story = Story(2).begins().ended(0, Exited(code=3), done=True)


def test_a_survivor_that_leaves_with_zero_inside_the_window_does_not_finish_the_run() -> None:
    assert Story(2).begins().killed(0).returned(1).drained().phase is Phase.SURVEYING


def test_the_newest_step_and_the_incident_number_are_those_of_the_first_death() -> None:
    story = Story(2).begins().reported(r0=1214, r1=1215).killed(1)
    incident = story.incident
    assert (incident.number, incident.rank, incident.step, incident.epoch) == (1, 1, 1215, 2)

    story.killed(0, SIGTERM).recovers().killed(0)
    assert story.state.incidents == 2


def test_steps_that_only_a_log_mentions_are_taken_from_the_death_notes() -> None:
    story = Story(2).begins().killed(1).killed(0, SIGTERM)
    story.drained(DeathNote(rank=1, last_line="boom", logged_step=40), DeathNote(rank=0, logged_step=41))
    incident = story.incident
    assert (incident.step, incident.step_from_log, incident.last_line) == (41, True, "boom")


def test_mindspores_scheduler_may_leave_but_not_fall() -> None:
    story = Story(2).begins()
    story.scheduler_ended(Exited(code=0))
    assert (story.actions, story.whys[-1]) == ([], "scheduler left; its end never decides the run")

    story.scheduler_ended(Signaled(signum=SIGKILL))

    assert story.phase is Phase.DRAINING
    assert story.incident.rank is None


def test_the_scheduler_is_not_missed_once_a_rank_has_finished() -> None:
    story = Story(2).begins().returned(0).scheduler_ended(Signaled(signum=SIGKILL))
    assert story.phase is Phase.RUNNING
    story.returned(1).drained()
    assert story.state.exit_code == 0


def test_ranks_that_cannot_be_started_end_the_run_as_a_shell_would_say_it() -> None:
    story = Story(3).begins()
    story.never_started(1, errno=2, why="could not start train: No such file or directory")
    assert story.performed(RequestGasp) == [
        RequestGasp(ranks=frozenset({0, 2}), deadline=Deadline(at_s=30), peers_lost=True)
    ]
    story.never_started(2, errno=13, why="another reason")
    assert story.performed(Sweep) == []

    story.killed(0, SIGTERM)
    assert len(story.performed(Sweep)) == 1
    story.drained()

    assert (story.phase, story.state.exit_code) == (Phase.FINISHED, 127)
    assert story.state.failure == (127, "could not start train: No such file or directory")
    assert not story.state.unfit, "the program is missing elsewhere, too"
    assert Story(2).begins().never_started(1, errno=28).never_started(0, errno=2).state.unfit


def test_nobody_is_waited_for_when_no_rank_could_be_started() -> None:
    story = Story(2).begins().never_started(0, errno=8).never_started(1, errno=8)
    assert story.phase is Phase.SWEEPING
    story.drained()
    assert story.state.exit_code == 126


def test_a_worker_that_sigkill_does_not_end_is_an_outcome_and_not_a_hang() -> None:
    story = Story(3).begins().killed(1).killed(0, SIGTERM).rang(Timer.GRACE, after_s=30)

    story.rang(Timer.REAP, after_s=10)
    assert story.performed(Sweep) == [Sweep(incarnation=0, dead=(1, 0, 2), write_by=NO_DEADLINE)]
    story.drained(stragglers=(102,))

    assert (story.phase, story.state.exit_code) == (Phase.FINISHED, 137)
    assert story.state.failure is not None
    assert story.state.failure[1] == "rank 2 did not end 10 s after SIGKILL (stuck in the kernel?)"


def test_nothing_is_started_beside_a_descendant_that_cannot_be_killed() -> None:
    story = Story(2).begins().killed(1).killed(0, SIGTERM).drained(stragglers=(4711,))
    assert story.performed(FindRecoveryPoint) == []
    assert (story.phase, story.state.exit_code) == (Phase.FINISHED, 137)
    assert "pid 4711" in story.whys[-1] or "pid 4711" in str(story.state.failure)


def test_a_finished_run_is_finished_even_if_a_descendant_hangs() -> None:
    assert Story(1).begins().returned(0).drained(stragglers=(4711,)).state.exit_code == 0


def test_when_no_checkpoint_is_whole_the_run_ends_with_65_instead_of_starting_from_zero() -> None:
    story = Story(2).begins().killed(1).killed(0, SIGTERM).drained().found_nothing_whole()
    assert story.performed(Prepare) == []
    assert (story.phase, story.state.exit_code) == (Phase.FINISHED, 65)


def test_a_plan_that_cannot_be_prepared_ends_the_run_with_its_own_code() -> None:
    story = Story(2).starts().chose().could_not_prepare(78, "config.yaml is gone")
    assert (story.phase, story.state.exit_code) == (Phase.FINISHED, 78)
    assert story.performed(Spawn) == []


def test_a_plan_that_is_over_may_still_turn_out_to_be_impossible_and_ends_nothing() -> None:
    story = Story(2).starts().chose()
    plan = story.state.plan
    assert plan is not None
    kept = replace(story.state.run, plan=replace(plan, kept=frozenset({0})))
    beside_survivors = replace(story.state, run=kept)
    life = beside_survivors.incarnation
    over = IncarnationOver(at_s=9, incarnation=life, why="the last survivor died", node=NodeId("b"))
    looking = decide(beside_survivors, over).state
    assert looking.phase is Phase.SURVEYING
    late = PrepareFailed(at_s=9, incarnation=life, exit_code=78, why="config.yaml is not there yet")
    assert decide(looking, late).state == looking
    assert decide(looking, replace(late, surveying=True)).state.failure is not None


def test_a_restart_that_must_wait_waits_for_its_timer_and_no_longer() -> None:
    story = Story(1, rule(backoff_min_s=8)).begins()
    story.killed(0).recovers()
    story.performed(StartTimer)

    story.killed(0, after_s=1).drained().chose()

    assert story.phase is Phase.BACKING_OFF
    (wait,) = story.performed(StartTimer)
    assert wait.timer is Timer.BACKOFF
    assert 4 <= wait.at_s - story.now_s <= 8
    story.now_s = wait.at_s
    assert story.rang(Timer.BACKOFF).phase is Phase.PREPARING


def test_a_save_that_is_reported_with_the_last_breath_still_counts() -> None:
    story = Story(2).begins().killed(1).returned(0, 143)
    assert story.phase is Phase.SWEEPING
    story.saved(0, 7).read_back(0)
    assert [(save.rank, save.step, save.verified) for save in story.state.life.saves] == [(0, 7, True)]
    assert story.state.run.high_step == 7


def test_how_far_training_had_come_never_goes_back() -> None:
    story = Story(2).begins(checkpoint(5))
    assert story.state.run.high_step == 5
    story.reported(r0=9, r1=8).reported(r0=3)
    assert story.state.run.high_step == 9
    story.killed(1).killed(0, SIGTERM).recovers(checkpoint(7))
    assert (story.state.run.high_step, story.plan.ledger.high_step) == (9, 9)


def test_every_statement_says_where_the_node_stands() -> None:
    story = Story(2).starts().chose(checkpoint(5))
    (told,) = story.performed(Publish)
    assert (told.fact.node, told.fact.word, told.fact.incarnation) == (NODE, NodeStatus.JOINED, -1)
    assert told.fact.resume.point == checkpoint(5)
    story.prepared(port=4711)
    ready, running = story.performed(Publish)
    assert (ready.fact.word, ready.fact.master_port) == (NodeStatus.READY, 4711)
    assert (running.fact.word, running.fact.master_port) == (NodeStatus.RUNNING, 4711)
