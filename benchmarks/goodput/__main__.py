"""``make goodput``: simulate, then write record, page, plot and the numbers in docs/goodput.md."""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path

from benchmarks.goodput import page, recoveries
from benchmarks.goodput.assumptions import Assumptions, read, shown
from benchmarks.goodput.study import SIZES, Study

RESULTS = Path(__file__).parents[1] / "results"
DOCS = Path(__file__).parents[2] / "docs" / "goodput.md"


def main(argv: Sequence[str] | None = None) -> int:
    """Everything anew; with assumptions of your own, say where it goes: ``--results DIR``."""
    asked, assumed = arguments(argv)
    study = Study(
        assumed=assumed,
        measured=recoveries.read(asked.measured),
        over_nodes=recoveries.over_nodes(asked.measured),
        sizes=[int(size) for size in asked.devices.split(",")],
        faults=asked.faults,
        seed=asked.seed,
    )
    record = json.loads(json.dumps(rounded(study.record())))
    asked.results.mkdir(parents=True, exist_ok=True)
    (asked.results / "goodput.json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    (asked.results / "goodput.md").write_text(page.page(record), encoding="utf-8")
    from benchmarks.goodput.plot import draw

    draw(record, asked.results)
    if asked.results == RESULTS:
        DOCS.write_text(page.between_marks(DOCS.read_text(encoding="utf-8"), record), encoding="utf-8")
    sys.stderr.write(f"{asked.results / 'goodput.md'} is written\n")
    return 0


def arguments(argv: Sequence[str] | None) -> tuple[argparse.Namespace, Assumptions]:
    """What was asked, and the assumptions. Ends the program at a word that is none."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.goodput", description=__doc__)
    parser.add_argument(
        "--devices", default=",".join(map(str, SIZES)), help="sizes of the training [%(default)s]"
    )
    parser.add_argument(
        "--faults", type=int, default=5000, help="as many months as have so many faults [5000]"
    )
    parser.add_argument("--seed", type=int, default=1, help="of chance [1]")
    parser.add_argument("--measured", type=Path, default=RESULTS, help="results to read [benchmarks/results]")
    parser.add_argument(
        "--results", type=Path, default=RESULTS, help="where all is written [benchmarks/results]"
    )
    usual = Assumptions()
    for one in fields(Assumptions):
        words = one.metadata["what"].replace("%", "%%")
        parser.add_argument(
            f"--{one.name}", metavar="X", help=f"{words} [{shown(one.name, getattr(usual, one.name))}]"
        )
    asked = parser.parse_args(argv)
    try:
        chosen = {
            one.name: read(one.name, text)
            for one in fields(Assumptions)
            if (text := getattr(asked, one.name)) is not None
        }
        return asked, Assumptions(**chosen)  # type: ignore[arg-type]  # whole numbers are read as such
    except ValueError as wrong:
        parser.error(str(wrong))


def rounded(value: object) -> object:
    """Nine digits: enough for every table, and the same on every machine."""
    match value:
        case float():
            return float(f"{value:.9g}")
        case dict():
            return {key: rounded(one) for key, one in value.items()}
        case list():
            return [rounded(one) for one in value]
        case _:
            return value


if __name__ == "__main__":
    sys.exit(main())
