"""What must hold whatever is told, in whatever order: no history, however absurd, makes a decision unsafe."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from faultrun.core.phases.decide import decide
from faultrun.core.phases.platform_notices import hold
from faultrun.journal.append import line_of
from faultrun.journal.read import event_of
from faultrun.model.actions import FindRecoveryPoint, Kill, RequestGasp, Spawn, StartTimer
from faultrun.model.checkpoint import RecoveryPoint
from faultrun.model.events import (
    Event,
    FaultNotice,
    FirstStep,
    NothingWhole,
    PlanAdopted,
    RecoveryPointChosen,
    RunFinished,
    RunStarted,
    Timer,
)
from faultrun.model.exits import Exited, Signaled
from faultrun.model.observed.agreement import MembershipLost
from faultrun.model.observed.dying_gasp import SaveSeen
from faultrun.model.observed.platform_notice import Platform
from faultrun.model.observed.standby import StandbyChanged
from faultrun.model.run import Drain, Life, Phase, RunState, Step
from faultrun.model.stop import StopRequested, StopSource
from support.stories.generated import values
from support.stories.random_histories import WORLD_SIZE, Choose, absurd_histories
from support.stories.story import SIGKILL, Story, new_run
from support.stories.survivors import World, training

_WAITS = {
    Phase.DRAINING: Timer.GRACE,
    Phase.KILLING: Timer.REAP,
    Phase.BACKING_OFF: Timer.BACKOFF,
    Phase.HOLDING: Timer.HOLD,
}
_TIMELESS = (RunStarted, RunFinished, PlanAdopted, StopRequested, FaultNotice, SaveSeen, MembershipLost)
_OUTLIVES = (*_TIMELESS, StandbyChanged)
"""A newcomer that waits at its first step does so in the next incarnation, too."""

History = list[tuple[RunState, Event, Step]]


def every_answer_has_a_reason(told: History) -> None:
    for _, _, step in told:
        assert step.why.strip()


def a_finished_run_changes_only_if_it_is_started_again_and_had_not_trained_to_its_end(told: History) -> None:
    for before, event, step in told:
        if before.trained or (before.done and not isinstance(event, RunStarted)):
            assert (step.state, step.actions) == (before, ())


def a_run_that_was_given_up_goes_on_with_nothing_spent_or_held_against_it(told: History) -> None:
    for before, event, step in told:
        if not (before.given_up and isinstance(event, RunStarted)):
            continue
        assert step.state.phase is Phase.SURVEYING
        assert [action.quarantine for action in step.actions if isinstance(action, FindRecoveryPoint)] == [()]
        assert step.state.life == Life()
        assert (step.state.incarnation, step.state.incidents) == (before.incarnation, before.incidents)
        if step.state.plan is not None:
            ledger = step.state.plan.ledger
            assert (ledger.restarts, ledger.attempts) == ((), ())
            assert (ledger.last_signature, ledger.alike) == (None, 0)


def incarnations_only_grow_and_only_by_a_plan(told: History) -> None:
    for before, event, step in told:
        if step.state.incarnation != before.incarnation:
            assert isinstance(event, PlanAdopted)
            assert step.state.incarnation == event.plan.incarnation > before.incarnation


def a_fact_of_another_incarnation_changes_nothing(told: History) -> None:
    for before, event, step in told:
        if event.incarnation != before.incarnation and not isinstance(event, _OUTLIVES):
            assert (step.state, step.actions) == (before, ())


def workers_start_only_where_none_lives_and_once_an_incarnation(told: History) -> None:
    spawned: list[int] = []
    for before, _, step in told:
        for action in step.actions:
            if isinstance(action, Spawn):
                assert before.phase is Phase.AWAITING_GO
                assert not before.life.alive
                assert step.state.life.alive == frozenset(action.ranks)
                spawned.append(action.plan.incarnation)
    assert spawned == sorted(set(spawned))


def no_stop_request_is_lost_and_none_is_followed_by_a_start(told: History) -> None:
    stopped = False
    for before, event, step in told:
        every_rank_finished = before.phase is Phase.SWEEPING and before.life.incident is None
        if isinstance(event, StopRequested) and not (before.done or every_rank_finished):
            stopped = True
        if isinstance(event, RunStarted) and before.phase is not Phase.NEW:
            stopped = step.state.stop is not None
        if isinstance(event, RunFinished) and event.stopped is False and step.state.done:
            stopped = False  # it came when the end had been decided
        if stopped:
            assert step.state.stop is not None
            assert not any(isinstance(action, Spawn) for action in step.actions)


def a_life_begins_clean(told: History) -> None:
    """Nothing of a former life or stop is there, but its incident, how far it was, and what was found."""
    found: set[RecoveryPoint] = set()
    for before, event, step in told:
        begun = step.state
        if isinstance(event, RecoveryPointChosen):
            found.update((event.point, *event.more_points) if event.point else event.more_points)
        if isinstance(event, RunStarted) and begun != before:
            incident = None if before.given_up else before.life.incident
            steps = () if before.given_up else before.life.steps
            reached = max((-1 if before.given_up else before.life.reached, *(one.step for one in steps)))
            drain = None if incident is None else Drain(incident=incident)
            assert begun.life == Life(drain=drain, reached=reached)
            assert begun.stop == (before.stop if before.phase is Phase.NEW else None)
        elif isinstance(event, PlanAdopted) and begun.incarnation != before.incarnation:
            assert found.issuperset(begun.life.offered)
            assert replace(begun.life, offered=()) == Life(
                point=event.plan.point, topology=event.plan.topology
            )
            assert begun.stop is None
        else:
            continue
        assert (begun.failure, begun.exit_code) == (None, None)


def whoever_waits_has_a_timer_running(told: History) -> None:
    for before, _, step in told:
        timer = _WAITS.get(step.state.phase)
        if timer is not None and step.state.phase is not before.phase:
            started = [action for action in step.actions if isinstance(action, StartTimer)]
            assert [(one.timer, one.incarnation) for one in started] == [(timer, step.state.incarnation)]
        if step.state.phase is Phase.DRAINING:
            assert step.state.life.alive, "nobody is left to wait for"


def only_the_living_are_signalled(told: History) -> None:
    for _, _, step in told:
        for action in step.actions:
            if isinstance(action, Kill | RequestGasp):
                assert action.ranks
                assert action.ranks <= step.state.life.alive


def where_a_save_was_nothing_found_is_no_beginning(told: History) -> None:
    """Every look asks for what the run once resumed from, and finding nothing starts nobody."""
    had = False
    for before, event, step in told:
        point = step.state.life.point
        if isinstance(event, RecoveryPointChosen) and point is not None and point.path:
            had = had or step.state is not before
        for action in step.actions:
            if isinstance(action, FindRecoveryPoint):
                assert bool(action.expects) or not had
        if isinstance(event, NothingWhole):
            assert not any(isinstance(action, Spawn) for action in step.actions)


def the_journal_alone_gives_the_same_state(told: History) -> None:
    state = new_run(WORLD_SIZE)
    for _, event, step in told:
        text = json.dumps(line_of(event, step, {"node": "n", "boot": "b"}))
        read = event_of(json.loads(text))
        assert read == event
        state = decide(state, read).state
        assert state == step.state


LAWS: tuple[Callable[[History], None], ...] = (
    every_answer_has_a_reason,
    a_finished_run_changes_only_if_it_is_started_again_and_had_not_trained_to_its_end,
    a_run_that_was_given_up_goes_on_with_nothing_spent_or_held_against_it,
    incarnations_only_grow_and_only_by_a_plan,
    a_fact_of_another_incarnation_changes_nothing,
    workers_start_only_where_none_lives_and_once_an_incarnation,
    no_stop_request_is_lost_and_none_is_followed_by_a_start,
    a_life_begins_clean,
    whoever_waits_has_a_timer_running,
    only_the_living_are_signalled,
    where_a_save_was_nothing_found_is_no_beginning,
    the_journal_alone_gives_the_same_state,
)


@settings(max_examples=60)
@given(absurd_histories())
def test_no_history_breaks_a_law(choices: list[Choose]) -> None:
    told = play(choices)
    for law in LAWS:
        law(told)


@settings(max_examples=30)
@given(absurd_histories())
def test_after_any_history_a_preemption_has_its_whole_window(choices: list[Choose]) -> None:
    state = play(choices)[-1][2].state
    assume(not state.trained)
    quiet = replace(state, run=replace(state.run, platform=Platform()))
    story = Story(WORLD_SIZE).goes_on_from(quiet).starts().chose()
    if story.phase is Phase.SURVEYING:  # the other nodes had asked for one more look
        story.chose()
    assume(story.phase is not Phase.FINISHED)  # the incident of before may end the run
    story.now_s = max(story.now_s, story.plan.start_at_s)
    story.rang(Timer.BACKOFF).prepared()

    story.told_to_stop(StopSource.PRESTOP).told_to_stop(StopSource.SIGTERM, after_s=10)
    assert (story.phase, story.deadline.at_s) == (Phase.DRAINING, story.now_s + 10)


def play(choices: list[Choose]) -> History:
    """Tell each fact to the state that the ones before it led to."""
    state, told = new_run(WORLD_SIZE), []
    for choose in choices:
        event = choose(state)
        step = decide(state, event)
        told.append((state, event, step))
        state = step.state
    return told


_NOTICES = values(FaultNotice).map(lambda event: event.notice)


@settings(max_examples=60)
@given(st.lists(_NOTICES, max_size=6), st.lists(_NOTICES, max_size=6))
def test_whatever_the_platform_says_workers_start_only_when_it_has_nothing_against_it(
    first: list[Any], later: list[Any]
) -> None:
    story = Story(3).starts(notices=tuple(first)).chose(None)
    for notice in later:
        against = hold(story.state)
        if story.phase is Phase.PREPARING:
            story = story.prepared()
            assert (story.phase is Phase.RUNNING) == (not against)
        story.noticed(notice, after_s=1)
        if story.phase is Phase.RUNNING:
            assert "not recovered" not in hold(story.state)
            assert "marked as faulty" not in hold(story.state)
    assert all(spawn.plan.incarnation == 0 for spawn in story.performed(Spawn))


RANKS = st.integers(0, 2)


HAPPENINGS: "dict[str, Callable[[World, int], object]]" = {
    "killed": lambda world, rank: world.loses(rank, Signaled(signum=SIGKILL)),
    "failed": lambda world, rank: world.loses(rank, Exited(code=3)),
    "can rejoin": lambda world, rank: world.story.can_rejoin(rank),
    "rejoined": lambda world, rank: world.story.rejoined(rank),
    "hangs": lambda world, rank: world.hangs(rank),
    "has bad memory": lambda world, rank: world.story.has_bad_memory(rank),
    "cannot": lambda world, rank: world.story.cannot_rejoin(rank),
    "examined": lambda world, _: world.story.examined(),
    "late": lambda world, _: world.story.rang(Timer.REJOIN, after_s=20),
    "told to stop": lambda world, _: world.story.told_to_stop(),
    "finished": lambda world, rank: world.loses(rank, Exited(code=0)),
    "heard": lambda world, _: world.story.hears(),
    "stepped": lambda world, _: world.story.now(FirstStep, step=50),
}


@given(st.lists(st.tuples(st.sampled_from(sorted(HAPPENINGS)), RANKS), max_size=25), st.booleans())
def test_no_rank_lives_twice_and_the_end_is_reached(what: "list[tuple[str, int]]", waits: bool) -> None:
    world = World(training())
    world.story.answers_wait = waits
    for name, rank in what:
        HAPPENINGS[name](world, rank)
        world.obeys()
    world.ends()
