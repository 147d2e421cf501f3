"""What becomes of a suspicion: looked into first, then the ordinary gasp, and an end where nothing ends."""

from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from faultrun.model.actions import Inspect, Kill, RequestGasp, Spawn, Wake
from faultrun.model.events import Timer
from faultrun.model.incident import Cause
from faultrun.model.observed.hang import Activity
from faultrun.model.run import Phase
from faultrun.observe.card.card import render
from support.stories.story import Story


def test_nothing_is_killed_on_suspicion() -> None:
    story = Story(3).begins().is_silent(1)
    assert story.phase is Phase.RUNNING
    (order,) = story.performed(Inspect)
    assert (order.number, order.suspicion.behind) == (1, (1,))
    story.works_after_all()
    assert story.phase is Phase.RUNNING
    assert story.state.life.incident is None
    assert not story.actions


def test_a_warning_kills_nobody_and_wakes_only_who_is_stopped() -> None:
    story = Story(3).begins().is_silent(1).is_warned_of(1)
    assert [type(action) for action in story.actions] == [Inspect]
    story.performed(Inspect)
    assert story.whys[-1] == "rank 1 may hang; it is replaced after 5 min if it does not go on"
    story.is_warned_of(1, Activity.STOPPED)
    assert story.actions == [Wake(ranks=frozenset({1}))]
    assert (story.phase, story.state.life.incident) == (Phase.RUNNING, None)


def test_the_longest_pause_is_known_to_every_later_life_and_to_the_next_supervisor() -> None:
    story = Story(2).begins().is_silent(1).is_warned_of(1).goes_on(1, paused_s=45.0).goes_on(0, paused_s=4.0)
    assert story.whys[-1] == "rank 0 goes on after 4 s; longest pause so far 45 s"
    story.killed(0).killed(1).recovers()
    assert [order.patience.longest_s for order in story.performed(Spawn)] == [45.0]
    story.starts().chose(None).prepared()
    assert [order.patience.longest_s for order in story.performed(Spawn)] == [45.0]


def test_the_life_after_a_hang_without_a_proof_has_more_time_at_that_step() -> None:
    for proved in (False, True):
        story = Story(2).begins().is_silent(1).hangs(1, step=41, proved=proved)
        story.returned(0, 143).killed(1).recovers()
        (order,) = story.performed(Spawn)
        assert (order.patience.hung_step, order.patience.hung_limit_s) == (
            (None, 0.0) if proved else (41, 1.0)
        )


SILENCES = st.sampled_from(
    [
        lambda story, rank: story.is_silent(rank),
        lambda story, rank: story.works_after_all(),
        lambda story, rank: story.is_warned_of(rank),
        lambda story, rank: story.is_warned_of(rank, Activity.STOPPED),
        lambda story, rank: story.goes_on(rank),
    ]
)


@given(facts=st.lists(st.tuples(SILENCES, st.integers(0, 2)), max_size=20))
def test_whatever_is_said_of_a_silence_nobody_is_asked_to_leave_before_a_limit_is_over(
    facts: list[tuple[Callable[[Story, int], Story], int]],
) -> None:
    story = Story(3).begins()
    for fact, rank in facts:
        fact(story, rank)
    assert story.phase is Phase.RUNNING
    assert not story.performed(RequestGasp)
    assert story.state.life.incident is None


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
    incident = story.incident
    assert (incident.cause, incident.rank, incident.followers) == (Cause.HANG, 1, (0, 2))
    assert story.phase is Phase.SURVEYING


def test_a_death_while_the_suspects_are_looked_at_is_the_incident() -> None:
    story = Story(3).begins().is_silent(1).killed(2).hangs(1)
    incident = story.incident
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
    text = render(story.card)
    assert text.startswith(
        "incident 1  rank 1 of 2 hung at step 41   failed first; rank 0 stopped because of it\n"
    )
    assert "  cause     is stopped (state T: SIGSTOP)\n" in text
    assert "  stacks    rank 1 is at train.py:57 in forward; incident_1: 2 of the ranks\n" in text
