"""Causes, hangs, standbys and windows in the account of a run, and the advice that follows."""

import pytest

from faultrun.model.events import Timer, TimerFired
from faultrun.model.observed.dying_gasp import GaspRequested, GaspSaved, GaspVerified
from faultrun.model.observed.hang import Activity, HangSuspected, Suspicion
from faultrun.model.observed.standby import StandbyChanged, StandbyPhase
from faultrun.model.run import Phase
from faultrun.model.spec.windows import Deadline
from faultrun.observe.account.accountant import Accountant
from faultrun.observe.account.advice import advise, save_interval
from faultrun.observe.account.timeline import Spending
from support.stories.account_stories import (
    account_of,
    begins,
    decoded,
    first_step,
    lines_of,
    one_fault,
    passes,
    written,
)
from support.stories.hang_stories import detected
from support.stories.story import Story, checkpoint


def test_the_best_interval_is_youngs_and_advised_when_faults_lose_much_more() -> None:
    account = account_of(lines_of(one_fault(resume_at=61)))
    best = save_interval(account)
    assert best is not None
    assert best.save_s == 0.4
    assert best.between_faults_s == pytest.approx(300, abs=1)
    assert best.best_s == pytest.approx((2 * 0.4 * 300) ** 0.5, rel=0.01)
    texts = [one.what for one in advise(account, {})]
    assert any(text.startswith("save about every 15 s") for text in texts)


def test_a_run_without_faults_gets_no_advice_on_faults() -> None:
    story = begins(Story(2))
    passes(story, 100).returned(0).returned(1).drained()
    account = account_of(lines_of(story))
    assert account.faults == []
    assert advise(account, {}) == ()


def test_a_hang_began_when_the_last_step_was_done_and_not_when_it_was_noticed() -> None:
    lines = lines_of(begins(Story(2)))
    now_s = lines[-1]["run_s"]
    suspicion = Suspicion(front=(1,), behind=(1,), silent_s=40.0, limit_s=30.0)
    suspected = HangSuspected(at_s=now_s + 60, incarnation=0, suspicion=suspicion)
    found = detected(now_s + 61, 0, 1, step=1, stance=Activity.SLEEPING, proved=False)
    account = account_of([*lines, written(suspected, Phase.RUNNING), written(found, Phase.DRAINING)])
    assert account.spent[Spending.DETECT] == pytest.approx(41)
    assert account.spent[Spending.TRAINING] == pytest.approx(20)
    assert account.faults[0].at_s == pytest.approx(now_s + 20)
    assert sum(account.faults[0].spent.values()) == pytest.approx(41)
    assert account.faults[0].recovery_s is None


def test_hangs_of_one_kind_count_as_one_cause_whatever_their_numbers() -> None:
    story = begins(Story(2))
    story.is_silent(1).hangs(1).returned(0, 143).returned(1, 143).drained().chose()
    (fault,) = account_of(lines_of(story)).faults
    assert fault.what == "hung: is stopped"


def test_standbys_are_counted_by_what_became_of_them_and_their_doubts_are_told() -> None:
    lines = lines_of(one_fault(resume_at=101))
    taken = StandbyChanged(at_s=lines[-1]["run_s"], incarnation=1, rank=0, state=StandbyPhase.TAKEN)
    changed = written(taken, Phase.FINISHED)
    assert account_of([*lines, changed, changed]).standbys == {"taken": 2}
    story = begins(Story(1))
    for _ in range(3):
        story.killed(0).recovers(checkpoint(1)).all_run()
        first_step(passes(story, 60), 2)
    texts = [one.hint for one in advise(account_of(lines_of(story)), {"standby": {"doubts": ["no memory"]}})]
    assert any("--standby (off here: no memory)" in text for text in texts)


@pytest.mark.parametrize(
    ("saves", "kept"),
    [([(0, []), (3, [])], 1), ([(0, [0, 1]), (2, [2, 3])], 1), ([(0, [0, 1]), (1, [0, 1])], 0), ([], 0)],
    ids=["copies: one is enough", "a save of each group", "half of the shards", "nothing"],
)
def test_a_window_kept_all_progress_where_a_save_of_every_replica_group_is_left(
    saves: list[tuple[int, list[int]]], kept: int
) -> None:
    asked = written(
        GaspRequested(at_s=0.0, incarnation=0, ranks=(0, 1, 2, 3), deadline=Deadline(at_s=30.0), took_s=0.0),
        Phase.DRAINING,
    )
    told = [
        written(
            GaspSaved(
                at_s=0.0,
                incarnation=0,
                rank=rank,
                path=f"p{rank}",
                step=1,
                size_bytes=1,
                took_s=1.0,
                replica_group=tuple(group),
            ),
            Phase.DRAINING,
        )
        for rank, group in saves
    ]
    rang = written(TimerFired(at_s=0.0, incarnation=0, timer=Timer.GRACE), Phase.KILLING)
    found = account_of([asked, *told, rang]).saves
    assert (found.windows, found.kept, found.saved, found.asked, found.cut) == (1, kept, len(saves), 4, 1)
    torn = [
        written(
            GaspVerified(at_s=0.0, incarnation=0, rank=rank, path=f"p{rank}", whole=False, why="torn"),
            Phase.DRAINING,
        )
        for rank, _ in saves
    ]
    assert account_of([asked, *told, *torn, asked]).saves.kept == 0
    account_of([{**asked, "ranks": [[], {}]}, {**asked, "event": "GaspSaved", "rank": [], "path": {}}])


def test_asking_within_a_window_does_not_end_it() -> None:
    accountant = Accountant()
    (asked, saved) = decoded(
        [
            written(
                GaspRequested(
                    at_s=0.0, incarnation=0, ranks=(0, 1), deadline=Deadline(at_s=30.0), took_s=0.0
                ),
                Phase.DRAINING,
            ),
            lines_of(Story(2).begins().all_run().killed(1).saved(0, 3))[-1],
        ]
    )
    for line in (asked, saved, saved):
        accountant.take(line)
        assert accountant.account().saves.kept <= 1
