"""``python -m benchmarks.campaigns.matrix``: every fault, in every phase, on any rank.

For each cell a training of four ranks (with MindSpore two) with one fault, and a row: what was
told (cause, class, first rank), what was decided, how the run ended. Ends
with 1 when any cell differs from what is expected.
"""

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.campaigns import matrix_page
from benchmarks.campaigns.matrix_run import HANGS, PHASES, TRAININGS, Cell, run
from benchmarks.harness import machine
from faultrun.testing.fault import FaultKind, Trigger

_ALL = tuple(kind for kind in FaultKind if kind not in (FaultKind.TORN, FaultKind.SLOW))


def main(argv: Sequence[str] | None = None) -> int:
    """Run the cells that were asked for and, with ``--keep``, are not there already."""
    asked = read_options(argv)
    until_s = time.monotonic() + asked.minutes * 60
    training = TRAININGS[asked.framework]
    kept = matrix_page.Kept(asked.framework, asked.keep)
    cells = [cell for cell in chosen(asked, training.ranks) if asked.again or not kept.has(cell)]
    print(f"{len(cells)} cells, {training.workers} ranks over {training.meets}\n")
    print(matrix_page.table(()), flush=True)
    made = []
    for cell in cells:
        if time.monotonic() > until_s:
            break
        load = machine.load()
        outcome = run(cell, asked.framework)
        made.append(matrix_page.row(outcome, load))
        if outcome.ran:
            kept.add(made[-1])
        print(made[-1].text, f"see {outcome.folder}" if outcome.wrong else "", flush=True)
    right = matrix_page.right(made)
    print(f"\n{right} of {len(made)} cells as expected, {len(cells) - len(made)} not run for want of time")
    if asked.keep:
        matrix_page.write(asked.keep)
    return 0 if right == len(cells) else 1


def chosen(asked: argparse.Namespace, ranks: Sequence[int]) -> Iterator[Cell]:
    """The cells that the options name."""
    for cell in choose(asked.kind or _ALL, asked.rank or ranks, every_rank=asked.every_rank):
        if (asked.hangs or cell.kind not in HANGS) and (not asked.phase or cell.phase in asked.phase):
            yield cell


def choose(kinds: Sequence[FaultKind], ranks: Sequence[int], *, every_rank: bool) -> Iterator[Cell]:
    """All cells, or each fault and phase once with the ranks taking turns."""
    turn = 0
    for kind in kinds:
        for phase in PHASES:
            if kind is FaultKind.DISK and phase is not Trigger.SAVE:
                continue
            for rank in ranks if every_rank else (ranks[turn % len(ranks)],):
                for value in (0, 3) if kind is FaultKind.EXIT else (None,):
                    yield Cell(kind=kind, phase=phase, rank=rank, value=value)
            turn += 1


def read_options(argv: Sequence[str] | None) -> argparse.Namespace:
    """What to run."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.campaigns.matrix", description=__doc__)
    parser.add_argument("--framework", choices=tuple(TRAININGS), default="torch")
    parser.add_argument("--kind", type=FaultKind, action="append", help="this fault alone (repeatable)")
    parser.add_argument("--rank", type=int, action="append", help="this rank alone (repeatable)")
    parser.add_argument("--phase", type=Trigger, action="append", help="this phase alone (repeatable)")
    parser.add_argument("--every_rank", action="store_true", help="each cell with each rank, not one in turn")
    parser.add_argument("--hangs", action="store_true", help="also stop, spin and sleep")
    parser.add_argument(
        "--keep",
        type=Path,
        metavar="DIR",
        help="keep the rows there, write DIR/matrix.md, run only what is missing",
    )
    parser.add_argument("--again", action="store_true", help="run what is kept once more")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin nothing after that")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
