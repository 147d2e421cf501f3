"""The fault matrix on paper: the page made of all rows that are kept."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from textwrap import shorten

from benchmarks.campaigns.engine import Row
from benchmarks.campaigns.matrix_run import PHASES, TRAININGS
from benchmarks.harness import kept, machine
from faultrun.testing.fault import FaultKind

HEAD = "| fault | phase | rank | blamed | class | cause | decision | exit | took | |"
_COLUMNS = HEAD.count("|") - 1
_CAUSE_CHARACTERS = 60
_TITLE = """# Every fault, in every phase: what was told and decided

One real training a row, with one fault: who was blamed, the class and cause on the card, the decision, the
exit code of faultrun. `python -m benchmarks.campaigns.matrix --every_rank --hangs --keep benchmarks/results`
makes the rows of torch and this page, `--framework=mindspore` and `--framework=plain` the others. Of a cell
that was run again the last row counts.
"""


def kept_in(folder: Path, framework: str) -> Path:
    """The file of the rows of one framework."""
    return folder / "attempts" / f"matrix-{framework}.jsonl"


def read(path: Path | None, seed: int = 1) -> list[Row]:
    """The last row of each cell, by fault, phase and rank; nothing here is drawn from a seed."""
    del seed
    rows = {(row["fault"], row["phase"], row["rank"]): row for row in kept.read(path)}
    kinds, phases = [kind.value for kind in FaultKind], [phase.value for phase in PHASES]

    def order(cell: tuple[str, str, int]) -> tuple[int, str, int, int]:
        fault, phase, rank = cell
        return kinds.index(fault.partition(" ")[0]), fault, phases.index(phase), rank

    # rows of earlier commits call what is broken wrong, and have no number
    ordered = [(cell, rows[cell]) for cell in sorted(rows, key=order)]
    return [{"broken": row.get("wrong"), **row, "number": cell} for cell, row in ordered]


def table(rows: Iterable[Row]) -> str:
    """Head and lines."""
    return "\n".join((HEAD, f"|{'---|' * _COLUMNS}", *map(_line, rows)))


def write(folder: Path) -> None:
    """The page ``matrix.md``, from everything that is kept in the folder."""
    parts = [_TITLE, f"Machine: {machine.words()}.\n"]
    for framework, training in TRAININGS.items():
        if rows := read(kept_in(folder, framework)):
            title = f"{training.meets}, {training.workers} ranks"
            fine = f"{right(rows)} of {len(rows)} cells as expected"
            parts += [f"## {title}: {fine}\n", _loads(rows), table(rows), ""]
    (folder / "matrix.md").write_text("\n".join(parts), encoding="utf-8")


def right(rows: Sequence[Row]) -> int:
    """How many were as expected."""
    return sum(not row["broken"] for row in rows)


def _line(row: Row) -> str:
    cause = shorten((row["cause"] or "-").replace("|", "/"), _CAUSE_CHARACTERS, placeholder=" …")
    blamed = "-" if row["blamed"] is None else row["blamed"]
    verdict = f"**{'; '.join(row['broken'])}**" if row["broken"] else "as expected"
    cells = (*(row[name] for name in ("fault", "phase", "rank")), blamed, row["fault_class"], cause)
    ends = (row["decision"], row["exit_code"], f"{row['took_s']:.1f} s", verdict)
    return f"| {' | '.join(map(str, (*cells, *ends)))} |"


def _loads(rows: Sequence[Row]) -> str:
    loads = sorted(float(row["load"]) for row in rows)
    return f"Load average before a row: {loads[0]:.1f} to {loads[-1]:.1f}.\n"
