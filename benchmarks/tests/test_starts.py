"""The plan of the campaign of starts; a piece of the campaign itself is in ``test_ms_scheduler``."""

from benchmarks.campaigns.starts import plan


def test_a_plan_has_as_many_starts_as_were_asked_for_and_can_be_had_again() -> None:
    runs = plan(100, seed=3)
    assert sum(len(run.words) for run in runs) == 100
    assert runs == plan(100, seed=3) != plan(100, seed=4)
    assert {run.workers for run in runs} == {1, 2, 4, 8}
    words = {word.partition(":")[0] for run in runs for word in run.words}
    assert words == {"-", "late", "early", "meeting", "dies"}
    assert all(run.words[-1].partition(":")[0] in ("-", "late") for run in runs)
