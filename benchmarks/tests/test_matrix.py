"""A piece of the fault matrix; whole: ``make matrix``."""

from dataclasses import replace
from pathlib import Path

import pytest
from benchmarks.campaigns import matrix_page
from benchmarks.campaigns.engine import options
from benchmarks.campaigns.matrix import of
from benchmarks.campaigns.matrix_run import Cell, Outcome, judge, run

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
def test_the_right_cause_the_right_rank_and_the_right_decision(cell: Cell, tmp_path: Path) -> None:
    assert judge(cell, run(cell, tmp_path, "plain")) == []


_SAID = {"fault_class": "unknown", "cause": "InjectedError: injected in a|b", "decision": "restart"}
OUTCOME = Outcome(blamed=2, **_SAID, exit_code=0, resumed_wrongly=False, orphans=frozenset())


def carried_out(folder: Path, *outcomes: Outcome) -> list[Cell]:
    """The cells of which each was run with one outcome, kept in ``folder``; those that were run."""
    ran: list[Cell] = []

    def run_it(cell: Cell, _folder: Path) -> Outcome:
        ran.append(cell)
        return outcomes[len(ran) - 1]

    asked = options("matrix", "").parse_args([f"--keep={matrix_page.kept_in(folder, 'plain')}"])
    replace(of("plain"), run=run_it).carry_out(CELLS[: len(outcomes)], asked)
    return ran


def test_a_matrix_that_was_cut_off_goes_on_with_what_is_missing_or_was_wrong(tmp_path: Path) -> None:
    assert carried_out(tmp_path, OUTCOME) == [CELLS[0]]
    with matrix_page.kept_in(tmp_path, "plain").open("a") as file:
        file.write('{"fault": "oom", "pha')
    assert carried_out(tmp_path, OUTCOME, OUTCOME) == [CELLS[1]]
    assert carried_out(tmp_path, OUTCOME, OUTCOME) == [CELLS[1]], "it was wrong"


def test_the_page_counts_and_marks_what_was_wrong(tmp_path: Path) -> None:
    carried_out(tmp_path, OUTCOME, OUTCOME)
    matrix_page.write(tmp_path)
    page = (tmp_path / "matrix.md").read_text()
    assert "## sockets, 4 ranks: 1 of 2 cells as expected" in page
    assert (
        "| raise | step | 2 | 2 | unknown | InjectedError: injected in a/b | restart | 0 | 0.0 s | as" in page
    )
    assert "**rank 2 blamed; wrong cause**" in page
