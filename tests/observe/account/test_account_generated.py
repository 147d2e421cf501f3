"""Runs that are made up, told as a journal, and accounted for: the account knows what really happened.

A run here does one step a second, so whoever makes it up knows every number without any account.
"""

from dataclasses import dataclass, field, replace
from statistics import median

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from faultrun.model.events import FirstStep, Timer, WorkersLost
from faultrun.model.observed.evidence import DeathNote
from faultrun.model.observed.hang import Activity, HangSuspected, Suspicion
from faultrun.model.observed.progress import RankStep
from faultrun.model.observed.recovery import FirstStepLogged
from faultrun.model.run import Phase
from faultrun.observe.account.records import Account
from faultrun.observe.account.timeline import Spending
from faultrun.observe.report.document import document
from support.stories.account_stories import account_of, lines_of, passes
from support.stories.hang_stories import detected
from support.stories.story import SIGTERM, Story, checkpoint, rule

_LOOK_S = 0.5
"""How long it takes to look into a silence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """What one life does. ``back``: how many steps before the end of the last one it goes on; None: at zero.

    ``start_s`` until its first step, ``end`` after so many ``steps``, ``pause_s`` for whatever follows:
    silence before a hang is believed, workers that leave, or the time until somebody starts the run again.
    """

    start_s: int
    steps: int
    end: str
    back: int | None
    pause_s: int


@dataclass(slots=True)
class Truth:
    """What happened, counted while it is told."""

    reports: str
    story: Story = field(default_factory=lambda: Story(1, rule(max_restarts=1000)))
    reached: int = 0
    high: int = 0
    trained_s: int = 0
    silent_s: float = 0.0
    twice: int = 0
    again_s: int = 0
    unread: bool = False
    faults: int = 0
    stops: int = 0
    fault_s: float | None = None
    """Later by the time in which no supervisor lived since."""
    recoveries_s: list[float] = field(default_factory=list)

    def live(self, life: Life) -> None:
        """One life from the choice of its checkpoint to the moment when the next is chosen."""
        before = 0 if life.back is None else max(0, self.reached - life.back)
        self.story.chose(checkpoint(before) if before else None)
        if self.story.phase is Phase.BACKING_OFF:
            self.story.now_s = self.story.plan.start_at_s
            self.story.rang(Timer.BACKOFF)
        if self.story.phase is Phase.FINISHED:
            return
        passes(self.story.prepared(), 1).all_run()
        self.reached = before
        passes(self.story, life.start_s)
        if life.steps:
            self._train(before, life)
        self._end(life)

    def _train(self, before: int, life: Life) -> None:
        if self.reports == "sdk":
            self.story.now(FirstStep, step=before + 1, began=before + 1)
        elif self.reports == "log":
            self.story.now(FirstStepLogged, rank=0, step=before + 1)
        if self.fault_s is not None:
            self.recoveries_s.append(self.story.now_s - self.fault_s)
            self.fault_s = None
        passes(self.story, life.steps - 1)
        self.reached = before + life.steps
        self.trained_s += life.steps - 1
        twice = max(0, min(self.reached, self.high) - before)
        self.twice += twice
        self.again_s += max(0, twice - 1)  # the first step is a part of the start
        self.high = max(self.high, self.reached)

    def _end(self, life: Life) -> None:
        match life.end:
            case "killed":
                self._heartbeat(life)
                self._fails(life)
                self.story.killed(0)
                self._drained(life)
            case "hung":
                self._hangs(life)
                passes(self.story, 1).killed(0)
                self._drained(life)
            case "stopped":
                self._heartbeat(life)
                self.stops += 1
                self._away(5)
                passes(self.story.told_to_stop(), life.pause_s).killed(0, SIGTERM)
                self._drained(life)
                passes(self.story, 5).starts()
            case "finished":
                self._heartbeat(life)
                self.fault_s = None
                self.story.returned(0)
                self._drained(life)
            case _:
                self._is_lost(life)

    def _away(self, passed_s: float) -> None:
        if self.fault_s is not None:
            self.fault_s += passed_s

    def _fails(self, life: Life) -> None:
        self.faults += 1
        self.fault_s = self.story.now_s

    def _hangs(self, life: Life) -> None:
        self._fails(life)
        now_s, number = self.story.now_s + life.pause_s, self.story.state.incarnation
        self._heartbeat(life)
        silence = Suspicion(front=(0,), behind=(0,), silent_s=float(life.pause_s), limit_s=1.0)
        passes(self.story, life.pause_s).tell(
            HangSuspected(at_s=now_s, incarnation=number, suspicion=silence)
        )
        self.story.now_s += _LOOK_S
        self.silent_s += life.pause_s + _LOOK_S
        hang = detected(now_s + _LOOK_S, number, 0, step=self.reached, stance=Activity.SLEEPING, proved=False)
        self.story.tell(hang)

    def _is_lost(self, life: Life) -> None:
        """The supervisor is killed; the next reads what the workers left, unless that is gone, too."""
        number, alive_s = self.story.state.incarnation, self.story.now_s
        self._away(life.pause_s + (0 if life.end == "lost" else life.start_s))
        passes(self.story, life.pause_s).starts()
        if life.end == "lost":
            steps = (RankStep(rank=0, step=self.reached),) if life.steps and self.reports != "mute" else ()
            by_log = self.reports != "sdk"
            self.story.tell(
                WorkersLost(
                    at_s=self.story.now_s, incarnation=number, steps=steps, by_log=by_log, alive_s=alive_s
                )
            )
        else:
            self.unread = True

    def _heartbeat(self, life: Life) -> None:
        if life.steps and self.reports == "sdk":
            self.story.reported(r0=self.reached)

    def _drained(self, life: Life) -> None:
        logged = self.reached if life.steps and self.reports == "log" else None
        self.story.drained(DeathNote(rank=0, logged_step=logged))


_LIVES = st.builds(
    Life,
    start_s=st.integers(1, 20),
    steps=st.integers(0, 60),
    end=st.sampled_from(["killed", "hung", "stopped", "lost"]),
    back=st.none() | st.integers(0, 30),
    pause_s=st.integers(1, 90),
)
_LAST = st.builds(
    Life,
    start_s=st.integers(1, 20),
    steps=st.integers(1, 60),
    end=st.just("finished"),
    back=st.none() | st.integers(0, 30),
    pause_s=st.just(0),
)
_RUNS = st.tuples(st.lists(_LIVES, max_size=6), _LAST).map(lambda run: [*run[0], run[1]])


def told(reports: str, lives: list[Life]) -> tuple[Truth, Account]:
    truth = Truth(reports=reports)
    truth.story.starts()
    for life in lives:
        if truth.story.phase is Phase.FINISHED:  # it was given up
            break
        truth.live(life)
    return truth, account_of(lines_of(truth.story))


def every_second_has_its_name(truth: Truth, account: Account) -> None:
    assert account.wall_s == pytest.approx(truth.story.now_s)
    assert sum(account.spent.values()) == pytest.approx(account.wall_s, abs=1e-9)
    assert min(account.spent.values()) >= 0
    share = account.productive_share
    assert share is None or 0 <= share <= 1
    assert (share is None) == (account.unknown_because is not None)


@pytest.mark.parametrize("reports", ["sdk", "log"])
@example(
    lives=[
        Life(start_s=1, steps=1, end="killed", back=None, pause_s=1),
        Life(start_s=1, steps=0, end="stopped", back=None, pause_s=1),
        Life(start_s=1, steps=1, end="finished", back=None, pause_s=0),
    ]
)
@given(lives=_RUNS)
def test_every_number_is_what_happened_whoever_tells_of_the_steps(reports: str, lives: list[Life]) -> None:
    truth, account = told(reports, lives)
    every_second_has_its_name(truth, account)
    spent, known = account.spent, [fault.recovery_s for fault in account.faults]
    assert spent[Spending.UNREPORTED] == 0
    assert spent[Spending.TRAINING] + spent[Spending.RECOMPUTE] == pytest.approx(truth.trained_s)
    assert spent[Spending.RECOMPUTE] == pytest.approx(truth.again_s)
    assert spent[Spending.DETECT] == pytest.approx(truth.silent_s)
    assert (account.lost_steps, account.high_step or 0) == (truth.twice, truth.high)
    assert (len(account.faults), account.stops) == (truth.faults, truth.stops)
    assert [one for one in known if one is not None] == pytest.approx(truth.recoveries_s)
    recovery = document(account, {})["recovery"]
    assert recovery["count"] == len(truth.recoveries_s)
    if truth.recoveries_s:
        assert recovery["median_s"] == pytest.approx(median(truth.recoveries_s))
        assert recovery["worst_s"] == pytest.approx(max(truth.recoveries_s))


@given(lives=_RUNS)
def test_where_nobody_tells_of_steps_nothing_of_them_is_claimed(lives: list[Life]) -> None:
    truth, account = told("mute", lives)
    every_second_has_its_name(truth, account)
    assert (account.productive_share, account.high_step) == (None, None)
    assert account.spent[Spending.TRAINING] == account.spent[Spending.RECOMPUTE] == 0
    assert all(fault.recovery_s is None for fault in account.faults)
    assert len(account.faults) == truth.faults


@pytest.mark.parametrize("reports", ["sdk", "log"])
@given(lives=_RUNS, unread=st.sets(st.integers(0, 5), min_size=1))
def test_what_a_lost_supervisor_took_along_is_never_called_training_that_counts(
    reports: str, lives: list[Life], unread: set[int]
) -> None:
    lives = [
        replace(life, end="lost unread") if at in unread and life.end != "finished" else life
        for at, life in enumerate(lives)
    ]
    truth, account = told(reports, lives)
    every_second_has_its_name(truth, account)
    assert account.spent[Spending.TRAINING] + account.spent[Spending.RECOMPUTE] <= truth.trained_s + 1e-6
    assert (account.lost_steps or 0) <= truth.twice
    last = account.lives[-1]
    if reports == "log" and truth.unread and last.first_step_s is not None:
        assert account.lost_steps is None
        assert account.productive_share is None or last.end_s == last.first_step_s
