"""The rows of the matrix of codes: kept as they are made, judged against the undisturbed run."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from enum import Enum
from pathlib import Path
from typing import Any

from benchmarks.campaigns.codes_plan import (
    CODES,
    CONTENDERS,
    TORCHRUN,
    YARDSTICK,
    Cell,
    Code,
    Contender,
    Fault,
)
from benchmarks.campaigns.codes_run import Seen
from benchmarks.campaigns.engine import Campaign, of_case, of_seen
from benchmarks.harness import kept


class Verdict(Enum):
    """How a cell ended, in the words of the page."""

    SAME = "same"
    FRESH = "silent fresh start"
    OTHER = "other result, exit 0"
    FAILED = "ended with"
    OVERDUE = "did not end"
    UNKNOWN = "ended, nothing to compare with"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One attempt, as it is kept; the meaning of each field is that of ``Seen``. ``stamp``: the example's."""

    code: str
    fault: str
    contender: str
    round: int
    steps: int
    stamp: str
    load: str
    took_s: float
    codes: tuple[int | None, ...]
    final: str
    twice: int
    anew: bool
    after_s: float | None
    harm: str
    late: bool
    why: str
    overdue: str

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> "Row":
        """As it was kept."""
        known = {field.name: row[field.name] for field in fields(cls)}
        return cls(**{**known, "codes": tuple(known["codes"])})

    @property
    def key(self) -> tuple[str, str, str, int]:
        """Which attempt it was."""
        return self.code, self.fault, self.contender, self.round


def read(path: Path | None, codes: Sequence[Code] = CODES) -> list[dict[str, Any]]:
    """The rows of a file, but for those of an older version of an example, and of another length."""
    current = {(code.name, code.stamp) for code in codes}
    lengths = {contender.name: contender.size.steps for contender in (*CONTENDERS, YARDSTICK)}
    rows = [row for row in kept.read(path) if (row["code"], row["stamp"]) in current]
    return [
        {**row, "number": Row.of(row).key, "broken": []}
        for row in rows
        if lengths.get(row["contender"]) == row["steps"]
    ]


def campaign(run: Callable[[Cell, Path], Seen], codes: Sequence[Code] = CODES) -> Campaign[Cell, Seen]:
    """The cells, as they are carried out, and what is kept of each: a verdict needs the others, too."""
    return Campaign(
        name="codes",
        cases="cells",
        run=run,
        judge=lambda _cell, _seen: (),
        columns={
            "code": lambda cell, _: cell.code.name,
            "fault": lambda cell, _: cell.fault.value,
            "contender": lambda cell, _: cell.contender.name,
            **of_case("round"),
            "steps": lambda cell, _: cell.contender.size.steps,
            "stamp": lambda cell, _: cell.code.stamp,
            **of_seen(*(field.name for field in fields(Seen))),
        },
        numbered=False,
        read=lambda path, _seed: read(path, codes),
    )


class Rows:
    """All attempts; of the same one the last counts."""

    def __init__(self, rows: Iterable[Mapping[str, Any]] = ()) -> None:
        self._rows = {one.key: one for one in map(Row.of, rows)}

    def all(self) -> list[Row]:
        """As they were made."""
        return list(self._rows.values())

    def of(self, code: Code, fault: Fault, contender: Contender) -> list[Row]:
        """The rounds of one cell."""
        named = (code.name, fault.value, contender.name)
        return sorted((one for one in self._rows.values() if one.key[:3] == named), key=lambda one: one.round)

    def verdict(self, one: Row) -> Verdict:
        """Judged by the last line of torchrun's undisturbed run of the same length."""
        if one.overdue and (not one.codes or one.codes[-1] is None):
            return Verdict.OVERDUE
        if one.codes[-1] != 0 or not one.final:
            return Verdict.FAILED
        if one.anew:
            return Verdict.FRESH
        right = self._undisturbed(one)
        if not right:
            return Verdict.UNKNOWN
        return Verdict.SAME if one.final == right else Verdict.OTHER

    def _undisturbed(self, one: Row) -> str:
        for name in (TORCHRUN.name, YARDSTICK.name):
            found = self._rows.get((one.code, Fault.NONE.value, name, 0))
            if found is not None and found.steps == one.steps:
                return found.final
        return ""
