"""What is announced of a story, and that nothing is announced twice."""

from dataclasses import replace
from typing import Any

from faultrun.core.recovery.resume_verdict import check
from faultrun.model.events import FirstStep, Timer
from faultrun.model.incident import Cause
from faultrun.model.observed.recovery import RecoveryTimed
from faultrun.model.observed.rejoin import RankCanRejoin
from faultrun.model.observed.standby import StandbyChanged, StandbyPhase
from faultrun.model.spec.run_spec import Recovery
from faultrun.model.stop import StopSource
from faultrun.observe.outlets.messages import Announcer
from support.stories.account_stories import decoded, lines_of
from support.stories.story import POLICY, SIGTERM, STAYING, Story, checkpoint, rule
from support.stories.survivors import training


def announced(story: Story) -> list[dict[str, Any]]:
    announcer = Announcer("r", "/logs")
    return [one for line in decoded(lines_of(story)) for one in announcer.take(line)]


def test_a_fault_a_restart_and_the_end() -> None:
    story = Story(2).begins().all_run().reported(r0=12).killed(1, after_s=5).killed(0, SIGTERM)
    story.now_s += 2
    story.recovers(checkpoint(10)).all_run()
    first = FirstStep(at_s=11.5, incarnation=1, step=1, began=1)
    story.tell(first).tell(check(first, checkpoint(10), Recovery(resume_args=("--resume",)), None))
    story.tell(RecoveryTimed(at_s=11.5, incarnation=1, total_s=6.5, first_step_s=4.5))
    told = announced(story.returned(0).returned(1).drained())
    assert [one["kind"] for one in told] == ["incident", "restart", "finished"]
    incident, restart, finished = told
    assert (incident["number"], incident["rank"], incident["step"]) == (1, 1, 12)
    assert incident["text"] == "faultrun r: incident 1: rank 1: killed by SIGKILL at step 12 (epoch 2)"
    assert (restart["resumed_step"], restart["began_step"], restart["after_s"]) == (10, 1, 6.5)
    assert restart["text"] == (
        "faultrun r: incarnation 1 runs: the script began at step 1 although step 10 was handed over: "
        "does it act on --resume?, training again 6.5 s after the fault"
    )
    assert finished["text"] == "faultrun r: finished: every rank finished; exit code 0"


def test_a_restart_whose_first_step_nobody_knows_has_no_time_of_a_recovery() -> None:
    story = Story(1).begins().all_run().killed(0, after_s=5).recovers().all_run()
    running = RecoveryTimed(at_s=story.now_s, incarnation=1, total_s=0.25)
    (restart,) = [one for one in announced(story.tell(running)) if one["kind"] == "restart"]
    assert (restart["after_s"], restart["running_after_s"]) == (None, 0.25)
    assert restart["text"].endswith("runs from the beginning, workers running again 250 ms after the fault")


def test_that_workers_were_taken_back_is_no_fault() -> None:
    story = Story(1).begins().all_run().killed(0, after_s=5).recovers().all_run()
    story.tell(RecoveryTimed(at_s=story.now_s, incarnation=1, total_s=0.25))
    announcer = Announcer("r", "/logs")
    told: list[dict[str, Any]] = []
    for line in decoded(lines_of(story)):
        grown = None if line.judged is None else replace(line.judged, cause=Cause.GROWTH)
        told += announcer.take(replace(line, judged=grown))
    (restart,) = [one for one in told if one["kind"] == "restart"]
    assert restart["text"].endswith("workers running again 250 ms after they were told to save")


def test_survivors_that_go_on_begin_nothing_anew() -> None:
    story = training().killed(1).examined().all_run().rejoined(0, 1, 2)
    story.now(RecoveryTimed, total_s=0.25, first_step_s=0.1)
    (restart,) = [one for one in announced(story) if one["kind"] == "restart"]
    assert (
        restart["text"] == "faultrun r: incarnation 1 runs in the memory of ranks 0 2, which stayed, "
        "training again 250 ms after the fault"
    )


def test_a_restart_that_dies_before_a_step_is_told_before_its_own_incident() -> None:
    story = Story(1).begins().all_run().killed(0, after_s=5).recovers().all_run()
    story.killed(0, after_s=5).recovers()
    kinds = [(one["kind"], one["incarnation"]) for one in announced(story)]
    assert kinds == [("incident", 0), ("restart", 1), ("incident", 1)]


def test_a_warning_of_a_hang_and_that_it_was_none() -> None:
    story = Story(2).begins().all_run().is_silent(1).is_warned_of(1).goes_on(1, paused_s=4.0)
    story.goes_on(0, paused_s=40.0, warned=False)
    warned, over = announced(story)
    assert (warned["kind"], warned["rank"], warned["silent_s"]) == ("hang-warning", 1, 1.2)
    assert warned["text"].startswith("faultrun r: rank 1 may hang after step 41: sleeps (state S)")
    assert warned["stacks"] == "incarnation_0/warning_1"
    assert (over["kind"], over["paused_s"]) == ("hang-over", 4.0)
    assert over["text"] == "faultrun r: rank 1 goes on after 4 s; longest pause so far 4 s"


def test_a_rank_that_comes_back_to_a_place_that_was_empty() -> None:
    windows = replace(STAYING, trains_from=2)
    story = Story(3, POLICY, windows).begins(checkpoint(30))
    for rank in range(3):
        story.now(RankCanRejoin, rank=rank, trains_on="")
    story.reported(r0=41, r1=41, r2=41).killed(1).examined().rejoined(0, 2, step=42)
    story.now(RankCanRejoin, rank=0, trains_on="").now(RankCanRejoin, rank=2, trains_on="")
    story.now(FirstStep, step=43).now(StandbyChanged, rank=1, state=StandbyPhase.PARKED).rang(Timer.HEAL)
    story.now(RankCanRejoin, rank=0, trains_on="", waits=True).rejoined(0, 1, 2).now(FirstStep, step=50)
    told = announced(story)[-1]
    assert (told["kind"], told["ranks"], told["missing"]) == ("healed", [1], [])
    assert told["text"] == "faultrun r: rank 1 came back while the others trained; 3 train"


def test_a_run_that_gives_up() -> None:
    story = Story(1, rule(max_restarts=0)).begins().all_run().returned(0, 3).drained().chose(None)
    kinds = [one["kind"] for one in announced(story)]
    assert kinds == ["incident", "give-up"]
    assert announced(story)[-1]["exit_code"] == 3


def test_a_stop_is_an_end_and_no_giving_up() -> None:
    story = Story(1).begins().all_run().told_to_stop(StopSource.SIGTERM).killed(0, SIGTERM).drained()
    (told,) = announced(story)
    assert (told["kind"], told["stopped"], told["exit_code"]) == ("finished", True, 143)


def test_lines_of_any_shape_announce_nothing() -> None:
    announcer = Announcer("r", "/logs")
    shapes: list[dict[str, Any]] = [
        {},
        {"event": 7, "actions": 3},
        {"event": "PlanAdopted", "plan": []},
        {"actions": [{"fact": 1}]},
    ]
    for line in decoded([{"event": "RunStarted", "run_s": 0.0, **shape} for shape in shapes]):
        assert list(announcer.take(line)) == []
