"""Three things that run out for real; all of them: ``python -m benchmarks.campaigns.resources``."""

import pytest
from benchmarks.campaigns.resources_run import CASES, Case, run
from benchmarks.harness.benchmark import NotMeasured

pytestmark = pytest.mark.slow

DEEDS = ("bytes", "wait", "shm-nameless")


@pytest.mark.parametrize(
    "case", [case for case in CASES if case.deed in DEEDS], ids=lambda case: case.name.replace(" ", "-")
)
def test_the_run_ends_with_its_reason_or_goes_on_and_the_journal_is_whole(case: Case) -> None:
    try:
        outcome = run(case)
    except NotMeasured as reason:
        pytest.skip(str(reason))
    assert outcome.wrong == ()
