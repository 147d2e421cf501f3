"""What every campaign is made of: options, rows that are kept and gone on behind, a table, an exit code.

A campaign draws cases from a seed, carries each out in a folder of its own, and judges what it saw. A folder
is removed unless a promise was broken: then the row tells where it is.
"""

import argparse
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from benchmarks.harness import kept, machine
from benchmarks.harness.benchmark import NotMeasured

Row = dict[str, Any]

NOT_POSSIBLE = 77
"""The exit code where this machine lacks what a campaign needs."""

_TRIES = 3


class TooLate(Exception):
    """The training was over before it was disturbed: the case proves nothing, and is carried out again."""


class NotPossible(Exception):
    """This machine lacks what the case needs; the text says what."""


class Numbered(Protocol):
    """A case, by the number that its row has."""

    @property
    def number(self) -> Any:
        """Another for each case of a campaign."""


Case = TypeVar("Case", bound=Numbered)
Seen = TypeVar("Seen")


@dataclass(frozen=True, slots=True, kw_only=True)
class Campaign(Generic[Case, Seen]):
    """``columns``: what a row holds of a case and of what was seen, by name; seconds end with ``_s``.

    ``numbered``: whether the number of a case is worth showing. ``summary`` are lines about all rows.
    """

    name: str
    cases: str
    run: Callable[[Case, Path], Seen]
    judge: Callable[[Case, Seen], Sequence[str]]
    columns: Mapping[str, Callable[[Case, Seen], object]]
    numbered: bool = True
    read: Callable[[Path | None, int], Sequence[Row]] = kept.read
    summary: Callable[[Sequence[Row]], Sequence[str]] = lambda _: ()

    def carry_out(self, drawn: Sequence[Case], asked: argparse.Namespace) -> list[Row]:
        """Run what is missing or was broken; the rows of all cases that were ever run, by their number."""
        kept_rows = () if asked.again else self.read(asked.keep, asked.seed)
        own = [row for row in kept_rows if row.get("campaign", self.name) == self.name]
        rows: dict[Any, Row] = {_key(row["number"]): row for row in own if not row["broken"]}
        wanted = [case for case in drawn if not asked.only or case.number in asked.only]
        left = [case for case in wanted if _key(case.number) not in rows]
        to_do = f"{len(wanted)} {self.cases}, seed {asked.seed}; {len(left)} to do"
        print(f"{to_do}\n\n{self._head()}", flush=True)
        for row in self._each(left, asked):
            rows[_key(row["number"])] = row
            print(self._line(row), flush=True)
            kept.add(asked.keep, asked.seed, row)
        done = [rows[key] for case in wanted if (key := _key(case.number)) in rows]
        fine = sum(not row["broken"] for row in done)
        print(f"\n{fine} of {len(done)} {self.cases} kept every promise")
        for line in self.summary(done) if done else ():
            print(line)
        print(f"load average {machine.load()} on {machine.describe()['cores']} cores")
        return done

    def row(self, case: Case, folder: Path) -> Row:
        """Carry one case out and judge it; ``folder`` is where it is done."""
        began_s, load = time.monotonic(), machine.load()
        told: Row = {"campaign": self.name, "number": case.number}
        try:
            seen = self.run(case, folder)
            told |= {name: of(case, seen) for name, of in self.columns.items()}
            broken = list(self.judge(case, seen))
        except NotMeasured as trouble:
            told |= {name: _of_case_alone(of, case) for name, of in self.columns.items()}
            broken = [str(trouble)]
        return {**told, "took_s": round(time.monotonic() - began_s, 1), "load": load, "broken": broken}

    def _each(self, left: Sequence[Case], asked: argparse.Namespace) -> Iterator[Row]:
        until_s = time.monotonic() + asked.minutes * 60
        over = threading.Event()

        def one(case: Case) -> Row | None:
            if over.is_set() or time.monotonic() > until_s:
                return None
            try:
                return self._one(case)
            except NotPossible as why:
                print(f"| {_name(case.number)} | not run: {why} |", flush=True)
                return None

        if asked.beside == 1:
            yield from (row for case in left if (row := one(case)) is not None)
            return
        with ThreadPoolExecutor(asked.beside) as threads:
            try:
                running = [threads.submit(one, case) for case in left]
                yield from (row for done in as_completed(running) if (row := done.result()) is not None)
            finally:
                over.set()

    def _one(self, case: Case) -> Row:
        for _ in range(_TRIES):
            folder = Path(tempfile.mkdtemp(prefix=f"{self.name}-{_name(case.number)}-"))
            try:
                row = self.row(case, folder)
            except (TooLate, NotPossible) as why:
                shutil.rmtree(folder)
                if isinstance(why, NotPossible):
                    raise
                continue
            if row["broken"]:
                return {**row, "see": folder.name}
            shutil.rmtree(folder, ignore_errors=True)
            return row
        raise SystemExit(f"{self.name} {case.number}: it was over before it was disturbed, {_TRIES} times")

    @property
    def _cells(self) -> tuple[str, ...]:
        return (*(("number",) if self.numbered else ()), *self.columns, "took_s")

    def _head(self) -> str:
        names = (*self._cells, "promises")
        heads = (name.removesuffix("_s").replace("_", " ") for name in names)
        return f"| {' | '.join(heads)} |\n|{'---|' * len(names)}"

    def _line(self, row: Row) -> str:
        cells = (shown(name, row[name]) for name in self._cells)
        see = f" (see {row['see']})" if "see" in row else ""
        verdict = f"**{'; '.join(row['broken'])}**{see}" if row["broken"] else "kept"
        return f"| {' | '.join(cells)} | {verdict} |"


def _of_case_alone(of: Callable[[Any, Any], object], case: Any) -> object:
    """What a column has where nothing was seen."""
    with suppress(AttributeError):
        return of(case, None)
    return None


def of_case(*names: str) -> dict[str, Callable[[Any, Any], object]]:
    """Columns that are fields of the case; an Enum is its value."""
    return {name: _field(name, of_case=True) for name in names}


def of_seen(*names: str) -> dict[str, Callable[[Any, Any], object]]:
    """Columns that are fields of what was seen."""
    return {name: _field(name, of_case=False) for name in names}


def _field(name: str, *, of_case: bool) -> Callable[[Any, Any], object]:
    def read(case: Any, seen: Any) -> object:
        value = getattr(case if of_case else seen, name)
        return value.value if isinstance(value, Enum) else value

    return read


def options(name: str, about: str | None, *, beside: int = 1) -> argparse.ArgumentParser:
    """What every campaign can be told; ``beside``: so many cases at once if nothing else is said."""
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks.campaigns.{name}", description=about)
    parser.add_argument("--seed", type=int, default=1, help="of all that is drawn [1]")
    parser.add_argument("--only", type=int, action="append", help="this one alone (repeatable)")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin nothing after that")
    parser.add_argument("--keep", type=Path, help="a file of rows, to go on from and to add to")
    parser.add_argument("--page", type=Path, help="where the result is written")
    parser.add_argument("--again", action="store_true", help="also what is kept")
    parser.add_argument("--beside", type=int, default=beside, help=f"so many at the same time [{beside}]")
    return parser


def main(
    campaign: Campaign[Case, Seen],
    draw: Callable[[int, int], Sequence[Case]],
    parser: argparse.ArgumentParser,
    argv: Sequence[str] | None,
    many: int,
) -> int:
    """Carry out what ``draw`` gives for how many (``many``) and the seed; the exit code."""
    parser.add_argument(f"--{campaign.cases}", type=int, default=many, help=f"so many [{many}]")
    asked = parser.parse_args(argv)
    ends_with_us()
    return exit_code(campaign.carry_out(draw(getattr(asked, campaign.cases), asked.seed), asked))


def exit_code(rows: Sequence[Row], *, also: bool = True) -> int:
    """0 if every promise was kept, ``also`` that of all together."""
    return 0 if also and not any(row["broken"] for row in rows) else 1


def impossible(why: str) -> int:
    """Say so; the exit code."""
    print(f"not possible here: {why}", file=sys.stderr)
    return NOT_POSSIBLE


def ends_with_us() -> None:
    """On SIGTERM end in good order: what runs must not outlive us."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)


def shown(name: str, value: object) -> str:
    """A cell of a table."""
    if value is None or value in ("", []):
        return "-"
    if isinstance(value, float):
        return f"{value:.2f} s" if name.endswith("_s") else f"{value:g}"
    return str(value).replace("|", "/")


def _key(number: Any) -> Any:
    """A number of several parts, as JSON gives it back."""
    return tuple(number) if isinstance(number, list) else number


def _name(number: Any) -> str:
    return "-".join(map(str, number)).replace(" ", "_") if isinstance(number, tuple) else str(number)
