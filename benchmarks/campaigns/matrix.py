"""``python -m benchmarks.campaigns.matrix``: every fault, in every phase, on any rank.

For each cell a training of four ranks (with MindSpore two) with one fault, and a row: what was
told (cause, class, first rank), what was decided, how the run ended. Ends
with 1 when any cell differs from what is expected.
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from functools import partial

from benchmarks.campaigns import engine, matrix_page
from benchmarks.campaigns.engine import Campaign, of_case, of_seen
from benchmarks.campaigns.matrix_run import HANGS, PHASES, TRAININGS, Cell, Outcome, judge, run
from faultrun.testing.fault import FaultKind, Trigger

_ALL = tuple(kind for kind in FaultKind if kind not in (FaultKind.TORN, FaultKind.SLOW))


def main(argv: Sequence[str] | None = None) -> int:
    """Run the cells that were asked for and, with ``--keep``, are not there already."""
    asked = read_options(argv)
    training = TRAININGS[asked.framework]
    print(f"{training.workers} ranks over {training.meets}")
    folder = asked.keep
    if folder is not None:
        asked.keep = matrix_page.kept_in(folder, asked.framework)
    cells = list(chosen(asked, training.ranks))
    rows = of(asked.framework).carry_out(cells, asked)
    if folder is not None:
        matrix_page.write(folder)
    return engine.exit_code(rows, also=len(rows) == len(cells))


def of(framework: str) -> Campaign[Cell, Outcome]:
    """The matrix of one framework."""
    return Campaign(
        name=f"matrix-{framework}",
        cases="cells",
        run=partial(run, framework=framework),
        judge=judge,
        columns={
            "fault": lambda cell, _: cell.name,
            **of_case("phase", "rank"),
            **of_seen("blamed", "fault_class", "cause", "decision", "exit_code"),
        },
        numbered=False,
        read=matrix_page.read,
    )


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
    parser = engine.options("matrix", __doc__)
    parser.add_argument("--framework", choices=tuple(TRAININGS), default="torch")
    parser.add_argument("--kind", type=FaultKind, action="append", help="this fault alone (repeatable)")
    parser.add_argument("--rank", type=int, action="append", help="this rank alone (repeatable)")
    parser.add_argument("--phase", type=Trigger, action="append", help="this phase alone (repeatable)")
    parser.add_argument("--every_rank", action="store_true", help="each cell with each rank, not one in turn")
    parser.add_argument("--hangs", action="store_true", help="also stop, spin and sleep")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
