"""What becomes of a suspicion: looked into first, then the ordinary gasp, and an end where nothing ends."""

from faultrun.core.card import render
from faultrun.model.actions import Inspect, Kill, RequestGasp
from faultrun.model.events import Timer
from faultrun.model.incident import Card, Cause
from faultrun.model.run import Phase
from support.story import Story


def test_nothing_is_killed_on_suspicion() -> None:
    story = Story(3).begins().is_silent(1)
    assert story.phase is Phase.RUNNING
    (order,) = story.performed(Inspect)
    assert (order.number, order.suspicion.behind) == (1, (1,))
    story.works_after_all()
    assert story.phase is Phase.RUNNING
    assert story.state.life.incident is None
    assert not story.actions


def test_a_hang_lets_everybody_save_the_hung_one_too_and_kills_what_is_left() -> None:
    story = Story(3).begins().is_silent(1).hangs(1)
    assert story.phase is Phase.DRAINING
    (request,) = story.performed(RequestGasp)
    assert request.ranks == {0, 1, 2}
    story.now_s += 30
    story.rang(Timer.GRACE)
    (kill,) = story.performed(Kill)
    assert kill.ranks == {0, 1, 2}


def test_the_hung_rank_is_to_blame_however_the_others_end() -> None:
    story = Story(3).begins().is_silent(1).hangs(1)
    story.returned(0, 143).killed(2).killed(1).drained()
    incident = story.state.life.incident
    assert incident is not None
    assert (incident.cause, incident.rank, incident.followers) == (Cause.HANG, 1, (0, 2))
    assert story.phase is Phase.SURVEYING


def test_a_death_while_the_suspects_are_looked_at_is_the_incident() -> None:
    story = Story(3).begins().is_silent(1).killed(2).hangs(1)
    incident = story.state.life.incident
    assert incident is not None
    assert (incident.cause, incident.rank) == (Cause.SIGNAL, 2)
    assert story.whys[-1] == "HangDetected means nothing while draining"


def test_a_hung_rank_that_nothing_kills_ends_the_run_with_a_reason() -> None:
    story = Story(2).begins().is_silent(1).hangs(1).returned(0, 143)
    story.now_s += 30
    story.rang(Timer.GRACE)
    story.now_s += 10
    story.rang(Timer.REAP).drained()
    assert story.state.exit_code == 1
    assert any("rank 1 did not end 10 s after SIGKILL" in why for why in story.whys)


def test_a_suspicion_of_an_earlier_life_changes_nothing() -> None:
    story = Story(2).begins()
    stale = Story(2).begins().is_silent(1).steps[-1][0]
    story.killed(0).killed(1).recovers()
    assert story.state.incarnation == 1
    phase = story.phase
    story.tell(stale)
    assert (story.phase, story.whys[-1]) == (phase, "stale: incarnation 0 is gone")


def test_the_card_says_who_hung_why_and_where() -> None:
    story = Story(2).begins().is_silent(1).hangs(1).returned(0, 143).killed(1).drained()
    assert story.state.life.incident is not None
    card = Card(
        incident=story.state.life.incident,
        world_size=2,
        saves=(),
        point=None,
        refused=0,
        restart=(1, 3),
        window_s=3600,
    )
    text = render(card)
    assert text.startswith("incident 1  rank 1 of 2 hung   first failure; rank 0 followed\n")
    assert "  cause     is stopped (state T: SIGSTOP)\n" in text
    assert "  stacks    rank 1 is at train.py:57 in forward; incident_1: 2 of the ranks\n" in text
