"""What is announced of a story, and that nothing is announced twice."""

from typing import Any

from faultrun.core.announce import Announcer
from faultrun.journal.append import line_of
from faultrun.model.stop import StopSource
from support.story import SIGTERM, Story, checkpoint, rule


def announced(story: Story) -> list[dict[str, Any]]:
    announcer = Announcer("r", "/logs")
    return [one for event, step in story.steps for one in announcer.take(line_of(event, step, {}))]


def test_a_fault_a_restart_and_the_end() -> None:
    story = Story(2).begins().all_run().reported(r0=12).killed(1, after_s=5).killed(0, SIGTERM)
    story.now_s += 2
    story.recovers(checkpoint(10)).all_run().returned(0).returned(1).drained()
    told = announced(story)
    assert [one["kind"] for one in told] == ["incident", "restart", "finished"]
    incident, restart, finished = told
    assert (incident["number"], incident["rank"], incident["step"]) == (1, 1, 12)
    assert incident["text"] == "faultrun r: incident 1: rank 1: killed by SIGKILL at step 12"
    assert (restart["resumed_step"], restart["after_s"]) == (10, 2.0)
    assert finished["text"] == "faultrun r: finished: every rank finished; exit code 0"


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
    for line in (
        {},
        {"event": 7, "actions": 3},
        {"event": "PlanAdopted", "plan": []},
        {"actions": [{"fact": 1}]},
    ):
        assert list(announcer.take(line)) == []
