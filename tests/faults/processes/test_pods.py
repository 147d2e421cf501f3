"""A short piece of the campaign of deleted pods: faultrun as PID 1, a kubelet's hook and signals."""

from pathlib import Path

import pytest
from benchmarks.campaigns.pods import early
from benchmarks.campaigns.pods_run import EARLY_MS, Deletion, Hook, Left, broken, draw, run
from benchmarks.harness.pod import can_be_made

in_a_pod = pytest.mark.skipif(not can_be_made(), reason="no PID namespaces here, or an old env")

DELETION = Deletion(
    number=1, starting=False, at_s=0.5, hook=Hook.FIRST, overtakes_s=0.1, period_s=8.0, save_s=1.0
)
LEFT = Left(
    exit_code=143,
    came_up=True,
    hook_code=0,
    newest=7,
    granted_s=3.0,
    saves_begun=(1, 1),
    files=((0, 7),),
    torn=(),
    last_line="faultrun: stopped by the preStop hook; saved step 7; exit code 143, 0 restarts",
    took_s=1.2,
)


@in_a_pod
@pytest.mark.slow
@pytest.mark.parametrize("after_ms", EARLY_MS)
def test_a_sigterm_right_after_exec_is_not_lost(after_ms: int) -> None:
    assert early(after_ms) == 143


@in_a_pod
@pytest.mark.slow
@pytest.mark.parametrize("hook", Hook)
def test_a_deleted_pod_saves_once_and_says_143(hook: Hook, tmp_path: Path) -> None:
    deletion = Deletion(
        number=1, starting=False, at_s=0.1, hook=hook, overtakes_s=0.2, period_s=65.0, save_s=0.3
    )
    left = run(deletion, tmp_path)
    assert broken(deletion, left) == []
    assert left.files


def test_a_seed_draws_the_same_pods_and_some_are_deleted_while_they_start() -> None:
    assert draw(50, 3)[:5] == draw(5, 3)
    assert draw(5, 3) != draw(5, 4)
    assert {one.hook for one in draw(50, 3)} == set(Hook)
    assert sum(one.starting for one in draw(50, 3)) == 10
    assert {one.save_s < one.window_s for one in draw(50, 3)} == {True, False}


def test_every_broken_promise_of_a_pod_is_said() -> None:
    assert broken(DELETION, LEFT) == []
    assert said(exit_code=0) == ["exit code 0"]
    assert said(exit_code=137) == ["exit code 137"]
    assert said(hook_code=137) == ["the hook ended with 137"]
    assert said(saves_begun=(1, 2)) == ["saved more than once: (1, 2)"]
    assert said(torn=("rank_0/x",)) == ["torn: rank_0/x"]
    lengths = "a save of 1.0 s in a window of 3.0 s"
    assert said(files=()) == [f"step 7 was finished, steps [] saved; {lengths}"]
    assert said(newest=8) == [f"step 8 was finished, steps [7] saved; {lengths}"]
    silent = said(last_line="stopped by the preStop hook; no save was reported; exit code 143")
    assert [text.split(":")[0] for text in silent] == ["the last line does not tell what was saved"]
    late = said(last_line="stopped by SIGTERM; saved step 7; exit code 143")
    assert [text.split(":")[0] for text in late] == ["the hook did not stop it"]
    assert said(newest=-1, files=()) == []
    assert said(came_up=False, exit_code=137, newest=-1, files=(), hook_code=-9) == []


def said(**changed: object) -> list[str]:
    fields = {name: getattr(LEFT, name) for name in Left.__slots__}
    return broken(DELETION, Left(**{**fields, **changed}))
