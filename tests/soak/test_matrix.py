"""A piece of the fault matrix and of the compressed day; whole: ``make matrix``, ``make soak-day``."""

import pytest
from benchmarks.campaigns import day
from benchmarks.campaigns.matrix_run import Cell, run

from faultrun.testing import Kind, Moment

pytestmark = pytest.mark.slow

CELLS = (
    Cell(kind=Kind.RAISE, phase=Moment.STEP, rank=2),
    Cell(kind=Kind.EXIT, phase=Moment.STEP, rank=1, value=0),
    Cell(kind=Kind.OOM, phase=Moment.COMPILE, rank=3),
    Cell(kind=Kind.SEGV, phase=Moment.STARTUP, rank=0),
    Cell(kind=Kind.DISK, phase=Moment.SAVE, rank=0),
    Cell(kind=Kind.LOG, phase=Moment.SAVE, rank=1),
)


@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: f"{cell.name} in {cell.phase.value}")
def test_the_right_cause_the_right_rank_and_the_right_decision(cell: Cell) -> None:
    assert run(cell, "plain").wrong == ()


def test_a_few_minutes_of_the_compressed_day() -> None:
    job = day.run(0, seed=7, lives=5, workers=2)
    assert job.broken == ()
    assert job.restarts == 5
