"""The rows of the matrix of codes: kept as they are made, judged against the undisturbed run."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from enum import Enum
from pathlib import Path

from benchmarks.campaigns.codes_plan import CODES, TORCHRUN, YARDSTICK, Cell, Code, Contender, Fault
from benchmarks.campaigns.codes_run import Seen


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

    @property
    def key(self) -> tuple[str, str, str, int]:
        """Which attempt it was."""
        return self.code, self.fault, self.contender, self.round


def row(cell: Cell, seen: Seen, *, load: str, took_s: float) -> Row:
    """What is kept of an attempt."""
    return Row(
        code=cell.code.name,
        fault=cell.fault.value,
        contender=cell.contender.name,
        round=cell.round,
        steps=cell.contender.size.steps,
        stamp=cell.code.stamp,
        load=load,
        took_s=round(took_s, 1),
        **{**asdict(seen), "codes": tuple(seen.codes)},
    )


class Rows:
    """All rows of a file; of the same attempt the last counts, and none of an older version of an example."""

    def __init__(self, path: Path | None = None, codes: Sequence[Code] = CODES) -> None:
        stamps = {code.name: code.stamp for code in codes}
        self._path = path
        kept = [] if path is None else _read(path)
        self._rows = {one.key: one for one in kept if stamps.get(one.code) == one.stamp}

    def has(self, cell: Cell) -> bool:
        """Whether that attempt was made, and nothing of it is missing."""
        kept = self._rows.get((cell.code.name, cell.fault.value, cell.contender.name, cell.round))
        return kept is not None and kept.steps == cell.contender.size.steps

    def add(self, new: Row) -> None:
        """Keep one more."""
        self._rows[new.key] = new
        if self._path is not None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(asdict(new)) + "\n")

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


def _read(path: Path) -> Iterable[Row]:
    if not path.exists():
        return
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            fields = json.loads(line)
        except ValueError:  # cut in the middle: an attempt that was not made
            continue
        yield Row(**{**fields, "codes": tuple(fields["codes"])})
