"""What a worker says of itself in the progress page, as the supervisor reads it."""

from pathlib import Path

from faultrun.model.observed.progress import WorkPhase, phase_of
from faultrun.sdk.worker.progress_slot import ProgressSlot
from faultrun.supervisor.launch.progress_page import ProgressPage


def test_a_worker_is_heard_before_its_first_step_and_counts_only_steps(tmp_path: Path) -> None:
    page = ProgressPage(tmp_path / "progress", (0, 1))
    assert page.words() == {0: None, 1: None}
    slot = ProgressSlot(f"{page.path}:1")
    mute, word = page.words().values()
    assert mute is None
    assert word is not None
    assert (word.count, phase_of(word.phase)) == (0, WorkPhase.COMPUTING)
    assert slot.works_at(WorkPhase.EVALUATING) is WorkPhase.COMPUTING
    assert page.steps() == ()
    slot.stepped(7, -1)
    assert slot.works_at(WorkPhase.COLLECTIVE) is WorkPhase.COMPUTING
    word = page.words()[1]
    assert word is not None
    assert (word.step, word.count, phase_of(word.phase)) == (7, 1, WorkPhase.COLLECTIVE)
    page.close()


def test_every_word_is_news(tmp_path: Path) -> None:
    page = ProgressPage(tmp_path / "progress", (0,))
    slot = ProgressSlot(f"{page.path}:0")
    marks = []
    for _ in range(3):
        slot.works_at(WorkPhase.EVALUATING)
        word = page.words()[0]
        assert word is not None
        marks.append(word.at_monotonic_s)
    assert len(set(marks)) == 3
    page.close()


def test_a_save_of_the_helper_is_shown_until_it_ends_whatever_the_main_thread_says(tmp_path: Path) -> None:
    page = ProgressPage(tmp_path / "progress", (0,))
    slot = ProgressSlot(f"{page.path}:0")

    def phase() -> WorkPhase:
        word = page.words()[0]
        assert word is not None
        return phase_of(word.phase)

    slot.saves(1)
    slot.works_at(WorkPhase.UPDATING)
    slot.stepped(3, -1)
    assert phase() is WorkPhase.SAVING
    slot.saves(-1)
    assert phase() is WorkPhase.COMPUTING
    page.close()


def test_a_worker_that_is_done_stays_so_until_it_steps_again(tmp_path: Path) -> None:
    page = ProgressPage(tmp_path / "progress", (0, 1))
    slot = ProgressSlot(f"{page.path}:1")
    assert not page.done(0)
    assert not page.done(1)
    slot.works_at(WorkPhase.DONE)
    assert slot.works_at(WorkPhase.UNKNOWN) is WorkPhase.DONE
    assert not page.done(0)
    assert page.done(1)
    slot.stepped(1, -1)
    assert not page.done(1)
    page.close()
