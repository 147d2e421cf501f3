"""``python -m benchmarks.codes``: the codes that people train with, each with each fault, beside torchrun.

Attempts are kept in ``attempts/codes.jsonl`` beside the page; the same command runs
what is missing, so that it can be done in pieces (``--minutes 20``).
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.campaigns import engine
from benchmarks.campaigns.codes_page import page, versions
from benchmarks.campaigns.codes_plan import CODES, CONTENDERS, Cell, Code, Fault, cells
from benchmarks.campaigns.codes_rows import Rows, campaign, read
from benchmarks.campaigns.codes_run import Seen, run

_TRIES = 3
_RESULTS = Path(__file__).parent / "results"


def main(argv: Sequence[str] | None = None) -> int:
    """Run what is missing, then write the page of all that was measured."""
    asked = read_options(argv)
    engine.ends_with_us()
    missing = {code.name: why for code in CODES if (why := absent(code))}
    for name in set(asked.codes) & missing.keys():
        print(f"without {name}: {missing[name]}")
    codes = [code for code in CODES if code.name in asked.codes and code.name not in missing]
    contenders = [one for one in CONTENDERS if one.name in asked.launchers]
    wanted = list(cells(codes, asked.cases, contenders, rounds=asked.rounds))
    campaign(carried_out).carry_out(wanted, asked)
    asked.page.write_text(page(Rows(read(asked.keep)), CODES, missing), encoding="utf-8")
    print(f"{asked.page} is written")
    return 0


def carried_out(cell: Cell, folder: Path) -> Seen:
    """Carry one cell out; once more if its save was over too soon."""
    for number in range(_TRIES):
        own = folder / str(number)
        own.mkdir()
        seen = run(cell, own)
        if not seen.late:
            break
    return seen


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
    parser = engine.options("codes", __doc__)
    parser.prog = "python -m benchmarks.codes"
    names = tuple(code.name for code in CODES)
    launchers = tuple(contender.name for contender in CONTENDERS)
    parser.add_argument("--codes", type=_some(names), default=names, help=f"of {','.join(names)} [all]")
    faults = ",".join(fault.value for fault in Fault)
    parser.add_argument("--cases", type=_faults, default=tuple(Fault), help=f"of {faults} [all]")
    parser.add_argument("--launchers", type=_some(launchers, ";"), default=launchers, help="separated by ;")
    parser.add_argument("--rounds", type=int, default=3, help="of the kill, which is timed [3]")
    parser.set_defaults(keep=_RESULTS / "attempts" / "codes.jsonl", page=_RESULTS / "codes.md")
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


if __name__ == "__main__":
    sys.exit(main())
