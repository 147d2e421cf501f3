"""When standbys are started, used and given up: stories without a process."""

from dataclasses import dataclass, field

from faultrun.core.standby import (
    ASKED_SETTLE_S,
    READY_S,
    SETTLE_S,
    UNSEEN_SETTLE_S,
    Dismiss,
    GiveUpHandover,
    LookAlive,
    StandbyAction,
    StandbyState,
    StartStandby,
    TurnOff,
    Wake,
    decide_standbys,
)
from faultrun.model.events import (
    Event,
    FirstStep,
    IncarnationStarted,
    Signaled,
    Timer,
    TimerFired,
    WorkerExit,
    WorkerStarted,
)
from faultrun.model.run import Phase
from faultrun.model.standby import EVERY_RANK, StandbyChanged, StandbyPhase
from support.story import NODE


@dataclass(slots=True)
class Tale:
    """Tells ``advise`` what happens, and keeps what it answered last."""

    care: StandbyState = field(default_factory=lambda: StandbyState(ranks=(0, 1)))
    now_s: float = 100.0
    said: tuple[StandbyAction, ...] = ()

    def hears(self, event: Event, phase: Phase = Phase.RUNNING) -> "Tale":
        self.care, self.said = decide_standbys(self.care, event, phase)
        return self

    def workers_start(self, *standbys: int) -> "Tale":
        for rank in standbys:
            self.hears(
                WorkerStarted(at_s=self.now_s, incarnation=0, node=NODE, rank=rank, pid=1, standby=True)
            )
        return self.hears(IncarnationStarted(at_s=self.now_s, incarnation=0, ranks=(0, 1), master_port=20000))

    def train(self) -> "Tale":
        return self.hears(FirstStep(at_s=self.now_s, incarnation=0, step=1))

    def time_comes(self, timer: Timer = Timer.STANDBY) -> "Tale":
        return self.hears(TimerFired(at_s=self.now_s, incarnation=0, timer=timer))

    def standby(self, rank: int, state: StandbyPhase, phase: Phase = Phase.RUNNING) -> "Tale":
        changed = StandbyChanged(at_s=self.now_s, incarnation=0, rank=rank, state=state, why="because")
        return self.hears(changed, phase)

    def a_worker_dies(self) -> "Tale":
        exit_ = WorkerExit(
            at_s=self.now_s, incarnation=0, node=NODE, rank=1, pid=1, status=Signaled(signum=9)
        )
        return self.hears(exit_, Phase.DRAINING)

    def has_two_ready(self) -> "Tale":
        self.workers_start().train().time_comes()
        for rank in (0, 1):
            self.standby(rank, StandbyPhase.STARTING).standby(rank, StandbyPhase.READY)
        return self


def test_without_a_wish_nothing_is_ever_ordered() -> None:
    tale = Tale(StandbyState())
    assert tale.workers_start().said == tale.train().said == tale.a_worker_dies().said == ()


def test_auto_lets_training_settle_and_a_number_does_not_wait_for_more_than_the_first_step() -> None:
    assert Tale().workers_start().said == (Wake(at_s=100.0 + UNSEEN_SETTLE_S),)
    assert Tale().workers_start().train().said == (Wake(at_s=100.0 + SETTLE_S),)
    asked = Tale(StandbyState(ranks=(0, 1), asked=True))
    assert asked.workers_start().said == (Wake(at_s=100.0 + ASKED_SETTLE_S),)
    assert asked.train().said == (Wake(at_s=100.0),)


def test_they_are_started_one_after_the_other() -> None:
    tale = Tale().workers_start().train().time_comes()
    assert tale.said == (StartStandby(rank=0),)
    assert tale.standby(0, StandbyPhase.STARTING).said == (Wake(at_s=100.0 + READY_S),)
    assert tale.standby(0, StandbyPhase.READY).said == (StartStandby(rank=1),)
    tale.standby(1, StandbyPhase.STARTING)
    assert tale.standby(1, StandbyPhase.READY).said == ()
    assert tale.care.usable == {0, 1}


def test_a_fault_wakes_those_that_are_ready_and_dismisses_the_one_that_is_not() -> None:
    tale = Tale().workers_start().train().time_comes().standby(0, StandbyPhase.STARTING)
    tale.standby(0, StandbyPhase.READY).standby(1, StandbyPhase.STARTING)
    wakes, dismisses = tale.a_worker_dies().said
    assert wakes == LookAlive()
    assert isinstance(dismisses, Dismiss)
    assert (dismisses.ranks, dismisses.state) == ((1,), StandbyPhase.DISMISSED)
    assert tale.standby(1, StandbyPhase.DISMISSED, Phase.DRAINING).care.usable == {0}


def test_those_that_became_workers_are_replaced_once_training_goes_on() -> None:
    tale = Tale().has_two_ready().a_worker_dies().workers_start(0, 1)
    assert tale.care.usable == frozenset()
    assert tale.train().time_comes().said == (StartStandby(rank=0),)


def test_a_standby_that_is_never_ready_is_lost() -> None:
    tale = Tale().workers_start().train().time_comes().standby(0, StandbyPhase.STARTING)
    tale.now_s += 1
    assert tale.time_comes().said == (Wake(at_s=100.0 + READY_S),)
    tale.now_s += READY_S
    (lost,) = tale.time_comes().said
    assert isinstance(lost, Dismiss)
    assert (lost.ranks, lost.state) == ((0,), StandbyPhase.LOST)


def test_three_that_are_lost_in_a_row_are_the_last_and_a_success_in_between_counts_anew() -> None:
    tale = Tale().workers_start().train().time_comes()
    for attempt in range(2):
        tale.standby(0, StandbyPhase.STARTING).standby(0, StandbyPhase.LOST)
        assert tale.said == (Wake(at_s=100.0 + 10.0 * (attempt + 1)),)
    tale.standby(1, StandbyPhase.TAKEN)
    for _ in range(2):
        assert isinstance(tale.standby(0, StandbyPhase.LOST).said[0], Wake)
    (off,) = tale.standby(0, StandbyPhase.LOST).said
    assert isinstance(off, TurnOff)
    tale.standby(EVERY_RANK, StandbyPhase.OFF)
    assert tale.workers_start().said == ()


def test_a_warm_start_that_fails_before_its_first_step_is_followed_by_a_cold_one() -> None:
    tale = Tale().has_two_ready().a_worker_dies().workers_start(0)
    tale.a_worker_dies()
    assert tale.care.usable == frozenset(), "rank 1 has one, and it is not to be used"
    assert tale.workers_start().care.usable == {1}, "the cold start is under way: later ones may"


def test_three_such_starts_and_there_are_no_more_standbys() -> None:
    tale = Tale()
    for _ in range(3):
        tale.has_two_ready().a_worker_dies().workers_start(0, 1).a_worker_dies()
    assert any(isinstance(order, TurnOff) for order in tale.said)


def test_a_warm_start_that_lives_long_enough_is_proved_without_anybody_reporting_steps() -> None:
    tale = Tale().has_two_ready().a_worker_dies().workers_start(0, 1)
    tale.time_comes().a_worker_dies()
    assert not tale.care.cold_next
    assert tale.care.suspicions == 0


def test_whoever_does_not_answer_the_hand_over_is_given_up_when_its_time_is_over() -> None:
    assert Tale().has_two_ready().a_worker_dies().time_comes(Timer.HANDOVER).said == (GiveUpHandover(),)


def test_nothing_is_started_while_workers_do_not_run() -> None:
    tale = Tale().workers_start().train().a_worker_dies()
    assert tale.hears(TimerFired(at_s=130.0, incarnation=0, timer=Timer.STANDBY), Phase.SWEEPING).said == ()
