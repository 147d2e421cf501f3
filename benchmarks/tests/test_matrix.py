"""A piece of the fault matrix and of the compressed day; whole: ``make matrix``, ``make soak-day``."""

from dataclasses import replace
from pathlib import Path

import pytest
from benchmarks.campaigns import day, matrix_page
from benchmarks.campaigns.matrix_run import Cell, Outcome, run

from faultrun.testing.fault import FaultKind, Trigger

pytestmark = pytest.mark.slow

CELLS = (
    Cell(kind=FaultKind.RAISE, phase=Trigger.STEP, rank=2),
    Cell(kind=FaultKind.EXIT, phase=Trigger.STEP, rank=1, value=0),
    Cell(kind=FaultKind.OOM, phase=Trigger.COMPILE, rank=3),
    Cell(kind=FaultKind.SEGV, phase=Trigger.STARTUP, rank=0),
    Cell(kind=FaultKind.DISK, phase=Trigger.SAVE, rank=0),
    Cell(kind=FaultKind.LOG, phase=Trigger.SAVE, rank=1),
)


@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: f"{cell.name} in {cell.phase.value}")
def test_the_right_cause_the_right_rank_and_the_right_decision(cell: Cell) -> None:
    assert run(cell, "plain").wrong == ()


def a_row(*, wrong: tuple[str, ...] = ()) -> matrix_page.Row:
    outcome = Outcome(
        cell=CELLS[0],
        blamed=2,
        fault_class="unknown",
        cause="InjectedError: a|b",
        decision="restart",
        exit_code=0,
        took_s=1.26,
        wrong=wrong,
        folder=Path("elsewhere"),
    )
    return matrix_page.row(outcome, "0.5")


def test_a_matrix_that_was_cut_off_goes_on_with_what_is_missing(tmp_path: Path) -> None:
    matrix_page.Kept("plain", tmp_path).add(a_row())
    (cut,) = (tmp_path / "attempts").iterdir()
    with cut.open("a") as file:
        file.write('{"fault": "oom", "pha')
    kept = matrix_page.Kept("plain", tmp_path)
    assert [kept.has(cell) for cell in CELLS] == [True, False, False, False, False, False]


def test_a_wrong_cell_is_run_again_and_its_last_row_counts(tmp_path: Path) -> None:
    kept = matrix_page.Kept("plain", tmp_path)
    kept.add(a_row(wrong=("rank 0 blamed",)))
    assert not kept.has(CELLS[0])
    assert matrix_page.right(kept.rows) == 0
    kept.add(a_row())
    assert kept.has(CELLS[0])
    assert matrix_page.Kept("plain", tmp_path).rows == [a_row()]


def test_the_page_counts_and_marks_what_was_wrong(tmp_path: Path) -> None:
    kept = matrix_page.Kept("plain", tmp_path)
    kept.add(replace(a_row(wrong=("rank 0 blamed",)), rank=1, blamed=0))
    kept.add(a_row())
    matrix_page.write(tmp_path)
    page = (tmp_path / "matrix.md").read_text()
    assert "## sockets, 4 ranks: 1 of 2 cells as expected" in page
    assert (
        "| raise | step | 1 | 0 | unknown | InjectedError: a/b | restart | 0 | 1.3 s | **rank 0 blamed** |"
        in page
    )
    assert page.count("as expected |") == 1


def test_a_few_minutes_of_the_compressed_day() -> None:
    job = day.run(0, seed=7, lives=5, workers=2)
    assert job.broken == ()
    assert job.restarts == 5
