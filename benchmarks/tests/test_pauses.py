"""The plan of the campaign of pauses, and a piece of it; whole: ``make soak-pauses``."""

from pathlib import Path

import pytest
from benchmarks.campaigns.pauses import CAMPAIGN, page
from benchmarks.campaigns.pauses_run import Case, plan
from benchmarks.jobs.pause_deed import HANGS, PAUSES

from support.lightly import lightly


@pytest.fixture(autouse=True)
def light(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in lightly().items():
        monkeypatch.setenv(name, value)


def test_a_plan_has_every_kind_and_can_be_had_again() -> None:
    cases = plan(200, 60, seed=1)
    assert cases == plan(200, 60, seed=1) != plan(200, 60, seed=2)
    assert [case.number for case in cases] == list(range(260))
    assert {case.kind for case in cases if not case.hangs} == set(PAUSES)
    assert {case.kind for case in cases if case.hangs} == set(HANGS)
    assert all(1.0 <= case.seconds <= 120.0 for case in cases if not case.hangs)
    assert {case.framework for case in cases} == {"torch", "mindspore"}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["kernel", "frozen"])
def test_a_pause_of_some_seconds_is_warned_of_at_most(kind: str, tmp_path: Path) -> None:
    case = Case(number=1, kind=kind, seconds=5.0, everybody=False, framework="torch")
    row = CAMPAIGN.row(case, tmp_path)
    assert row["broken"] == []
    assert "1 healthy pauses, 0 killed" in page([row], seed=1)


@pytest.mark.slow
def test_a_hang_is_warned_of_and_replaced_at_the_limit(tmp_path: Path) -> None:
    case = Case(number=2, kind="deadlock", seconds=0.0, everybody=False, framework="torch", limit_s=5.0)
    row = CAMPAIGN.row(case, tmp_path)
    assert row["broken"] == []
    assert "1 hangs with a limit by the user, 1 warned of" in page([row], seed=1)
