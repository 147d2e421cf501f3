"""Three things that run out for real; all of them: ``python -m benchmarks.campaigns.resources``."""

from pathlib import Path

import pytest
from benchmarks.campaigns.engine import NotPossible
from benchmarks.campaigns.resources import CASES, Case, run

pytestmark = pytest.mark.slow

DEEDS = ("bytes", "wait", "shm-nameless")


@pytest.mark.parametrize(
    "case", [case for case in CASES if case.deed in DEEDS], ids=lambda case: case.name.replace(" ", "-")
)
def test_the_run_ends_with_its_reason_or_goes_on_and_the_journal_is_whole(case: Case, tmp_path: Path) -> None:
    try:
        outcome = run(case, tmp_path)
    except NotPossible as reason:
        pytest.skip(str(reason))
    assert outcome.wrong == ()
