"""``python -m benchmarks.codes``: the codes that people train with, each with each fault, beside torchrun.

Attempts are kept in ``attempts/codes.jsonl`` beside the page; the same command runs
what is missing, so that it can be done in pieces (``--minutes 20``).
"""

import argparse
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.campaigns.codes_page import page, versions
from benchmarks.campaigns.codes_plan import CODES, CONTENDERS, Cell, Code, Fault, cells
from benchmarks.campaigns.codes_rows import Row, Rows, row
from benchmarks.campaigns.codes_run import run
from benchmarks.harness import machine

_TRIES = 3
_PAGE = Path(__file__).parent / "results" / "codes.md"


def main(argv: Sequence[str] | None = None) -> int:
    """Run what is missing, then write the page of all that was measured."""
    asked = read_options(argv)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # what runs is ended, too
    until_s = time.monotonic() + asked.minutes * 60
    rows = Rows(asked.out.parent / "attempts" / "codes.jsonl")
    missing = {code.name: why for code in CODES if (why := absent(code))}
    for name in set(asked.codes) & missing.keys():
        _say(f"without {name}: {missing[name]}")
    codes = [code for code in CODES if code.name in asked.codes and code.name not in missing]
    contenders = [one for one in CONTENDERS if one.name in asked.launchers]
    wanted = list(cells(codes, asked.cases, contenders, rounds=asked.rounds))
    left = [cell for cell in wanted if asked.again or not rows.has(cell)]
    _say(f"{len(left)} of {len(wanted)} attempts to make")
    for cell in left:
        if time.monotonic() > until_s:
            _say("out of time; the same command goes on")
            break
        one = attempt(cell, asked.keep)
        rows.add(one)
        _say(f"{' '.join(map(str, one.key))}: {rows.verdict(one).value}, {one.twice} twice, {one.took_s} s")
    asked.out.write_text(page(rows, CODES, missing), encoding="utf-8")
    _say(f"{asked.out} is written")
    return 0


def attempt(cell: Cell, keep: Path | None = None) -> Row:
    """Carry one cell out; once more if its save was over too soon. Folders are gone then, unless ``keep``."""
    for _ in range(_TRIES):
        load, began_s = machine.load(), time.monotonic()
        folder = Path(tempfile.mkdtemp(prefix=f"codes-{cell.code.name}-{cell.fault.value}-", dir=keep))
        seen = run(cell, folder)
        if keep is None:
            shutil.rmtree(folder)
        one = row(cell, seen, load=load, took_s=time.monotonic() - began_s)
        if not one.late:
            break
    return one


def absent(code: Code) -> str:
    """Why a code cannot run here; empty when it can."""
    if not code.script.exists():
        return f"{code.script.parent.name}/{code.script.name} is not there"
    try:
        versions([code])
    except ImportError as missing:
        return str(missing)
    return ""


def read_options(argv: Sequence[str] | None) -> argparse.Namespace:
    """What to run."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.codes", description=__doc__)
    names = tuple(code.name for code in CODES)
    launchers = tuple(contender.name for contender in CONTENDERS)
    parser.add_argument("--codes", type=_some(names), default=names, help=f"of {','.join(names)} [all]")
    parser.add_argument(
        "--cases",
        type=_faults,
        default=tuple(Fault),
        help=f"of {','.join(fault.value for fault in Fault)} [all]",
    )
    parser.add_argument("--launchers", type=_some(launchers, ";"), default=launchers, help="separated by ;")
    parser.add_argument("--rounds", type=int, default=3, help="of the kill, which is timed [3]")
    parser.add_argument("--again", action="store_true", help="also what was measured before")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin nothing after that")
    parser.add_argument("--out", type=Path, default=_PAGE, help="the page [benchmarks/results/codes.md]")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep the folder of each run there")
    return parser.parse_args(argv)


def _some(known: Sequence[str], mark: str = ",") -> Callable[[str], tuple[str, ...]]:
    def read(text: str) -> tuple[str, ...]:
        words = tuple(word.strip() for word in text.split(mark))
        if unknown := [word for word in words if word not in known]:
            raise argparse.ArgumentTypeError(f"{unknown[0]!r} is none of {mark.join(known)}")
        return words

    return read


def _faults(text: str) -> tuple[Fault, ...]:
    return tuple(Fault(word) for word in _some(tuple(fault.value for fault in Fault))(text))


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
