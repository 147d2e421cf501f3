"""``python -m benchmarks.campaigns.matrix``: every fault, in every phase, on any rank.

For each cell a training of four ranks (with MindSpore two) with one fault, and a row: what was
told (cause, class, first rank), what was decided, how the run ended. Ends
with 1 when any cell differs from what is expected.
"""

import argparse
import sys
from collections.abc import Iterator, Sequence

from benchmarks.campaigns.matrix_run import HANGS, PHASES, TRAININGS, Cell, Outcome, run
from faultrun.testing import Kind, Moment

_ALL = tuple(kind for kind in Kind if kind not in (Kind.TORN, Kind.SLOW))
_HEAD = "| fault | phase | rank | blamed | class | cause | decision | exit | took | |"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the cells that were asked for."""
    asked = read_options(argv)
    training = TRAININGS[asked.framework]
    cells = list(choose(asked.kind or _ALL, asked.rank or training.ranks, every_rank=asked.every_rank))
    if not asked.hangs:
        cells = [cell for cell in cells if cell.kind not in HANGS]
    if asked.phase:
        cells = [cell for cell in cells if cell.phase in asked.phase]
    print(f"{len(cells)} cells, {training.workers} ranks over {training.meets}\n")
    print(f"{_HEAD}\n|{'---|' * 10}", flush=True)
    outcomes = []
    for cell in cells:
        outcomes.append(run(cell, asked.framework))
        print(row(outcomes[-1]), flush=True)
    wrong = [outcome for outcome in outcomes if outcome.wrong]
    print(f"\n{len(outcomes) - len(wrong)} of {len(outcomes)} cells as expected")
    return 1 if wrong else 0


def choose(kinds: Sequence[Kind], ranks: Sequence[int], *, every_rank: bool) -> Iterator[Cell]:
    """All cells, or each fault and phase once with the ranks taking turns."""
    turn = 0
    for kind in kinds:
        for phase in PHASES:
            if kind is Kind.DISK and phase is not Moment.SAVE:
                continue
            for rank in ranks if every_rank else (ranks[turn % len(ranks)],):
                for value in (0, 3) if kind is Kind.EXIT else (None,):
                    yield Cell(kind=kind, phase=phase, rank=rank, value=value)
            turn += 1


def row(outcome: Outcome) -> str:
    """One line of the table."""
    cell = outcome.cell
    verdict = "as expected" if not outcome.wrong else f"**{'; '.join(outcome.wrong)}** (see {outcome.folder})"
    cells = (
        cell.name,
        cell.phase.value,
        cell.rank,
        outcome.blamed,
        outcome.fault_class,
        outcome.cause[:60].replace("|", "/"),
        outcome.decision,
        outcome.exit_code,
        f"{outcome.took_s:.1f} s",
        verdict,
    )
    return f"| {' | '.join(map(str, cells))} |"


def read_options(argv: Sequence[str] | None) -> argparse.Namespace:
    """What to run."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.campaigns.matrix", description=__doc__)
    parser.add_argument("--framework", choices=tuple(TRAININGS), default="torch")
    parser.add_argument("--kind", type=Kind, action="append", help="this fault alone (repeatable)")
    parser.add_argument("--rank", type=int, action="append", help="this rank alone (repeatable)")
    parser.add_argument("--phase", type=Moment, action="append", help="this phase alone (repeatable)")
    parser.add_argument("--every_rank", action="store_true", help="each cell with each rank, not one in turn")
    parser.add_argument("--hangs", action="store_true", help="also stop, spin and sleep")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
