"""The fault matrix on paper: rows kept line by line as they are made, and the page made of all of them."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from textwrap import shorten

from benchmarks.campaigns.matrix_run import PHASES, TRAININGS, Cell, Outcome
from benchmarks.harness import machine
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One outcome, as it is kept. ``wrong`` is empty when all was as expected; ``load``: before it."""

    fault: str
    phase: str
    rank: int
    blamed: int | None
    fault_class: str
    cause: str
    decision: str
    exit_code: int
    took_s: float
    wrong: tuple[str, ...]
    load: str

    @property
    def cell(self) -> tuple[str, str, int]:
        """Which cell of the matrix it fills."""
        return self.fault, self.phase, self.rank

    @property
    def text(self) -> str:
        """One line of the table."""
        columns = (
            *self.cell,
            "-" if self.blamed is None else self.blamed,
            self.fault_class,
            shorten(self.cause.replace("|", "/"), _CAUSE_CHARACTERS, placeholder=" …"),
            self.decision,
            self.exit_code,
            f"{self.took_s:.1f} s",
            f"**{'; '.join(self.wrong)}**" if self.wrong else "as expected",
        )
        return f"| {' | '.join(map(str, columns))} |"


def row(outcome: Outcome, load: str) -> Row:
    """What is kept of an outcome."""
    cell = outcome.cell
    return Row(
        fault=cell.name,
        phase=cell.phase.value,
        rank=cell.rank,
        blamed=outcome.blamed,
        fault_class=outcome.fault_class,
        cause=outcome.cause,
        decision=outcome.decision,
        exit_code=outcome.exit_code,
        took_s=round(outcome.took_s, 1),
        wrong=outcome.wrong,
        load=load,
    )


def table(rows: Iterable[Row]) -> str:
    """Head and lines."""
    return "\n".join((HEAD, f"|{'---|' * _COLUMNS}", *(one.text for one in rows)))


class Kept:
    """The rows of one framework; without a folder they last as long as the process."""

    def __init__(self, framework: str, folder: Path | None = None) -> None:
        self._path = None if folder is None else folder / "attempts" / f"matrix-{framework}.jsonl"
        self._rows: dict[tuple[str, str, int], Row] = {}
        for kept in () if self._path is None else _read(self._path):
            self._rows[kept.cell] = kept

    def has(self, cell: Cell) -> bool:
        """Whether that cell was run and came out right."""
        kept = self._rows.get((cell.name, cell.phase.value, cell.rank))
        return kept is not None and not kept.wrong

    def add(self, new: Row) -> None:
        """Keep one more; of the same cell the last counts."""
        self._rows[new.cell] = new
        if self._path is not None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(asdict(new)) + "\n")

    @property
    def rows(self) -> list[Row]:
        """By fault, phase and rank."""
        kinds = [kind.value for kind in FaultKind]
        phases = [phase.value for phase in PHASES]
        return sorted(
            self._rows.values(),
            key=lambda one: (
                kinds.index(one.fault.partition(" ")[0]),
                one.fault,
                phases.index(one.phase),
                one.rank,
            ),
        )


def write(folder: Path) -> None:
    """The page ``matrix.md``, from everything that is kept in the folder."""
    parts = [
        _TITLE,
        f"Machine: {', '.join(f'{name} {what}' for name, what in machine.describe().items())}.\n",
    ]
    for framework, training in TRAININGS.items():
        if rows := Kept(framework, folder).rows:
            title = f"{training.meets}, {training.workers} ranks"
            parts += [
                f"## {title}: {right(rows)} of {len(rows)} cells as expected\n",
                _loads(rows),
                table(rows),
                "",
            ]
    (folder / "matrix.md").write_text("\n".join(parts), encoding="utf-8")


def right(rows: Sequence[Row]) -> int:
    """How many were as expected."""
    return sum(not one.wrong for one in rows)


def _loads(rows: Sequence[Row]) -> str:
    loads = sorted(float(one.load) for one in rows)
    return f"Load average before a row: {loads[0]:.1f} to {loads[-1]:.1f}.\n"


def _read(path: Path) -> Iterable[Row]:
    if not path.exists():
        return
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            fields = json.loads(line)
        except ValueError:  # cut in the middle: a row that was not made
            continue
        yield Row(**{**fields, "wrong": tuple(fields["wrong"])})
