"""``python -m benchmarks.campaigns.hostile --histories 500 --seed 1``: all that may happen to a training.

Ranks, the shells around them and faultrun itself are killed, runs are stopped
twice, requeued and started without their checkpoints, files are renamed,
linked, cut, removed and dated anew. Each rank keeps a ledger; the last start
of each history must end with 0. ``--keep`` holds a line a history and goes on
where it was cut. Ends with 1 when a promise was broken; what such a history
left is kept, and the table says where.
"""

import argparse
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchmarks.campaigns.hostile_judge import broken
from benchmarks.campaigns.hostile_plan import draw
from benchmarks.campaigns.hostile_run import run
from benchmarks.harness import machine


def main(argv: Sequence[str] | None = None) -> int:
    """Run the campaign; the exit code says whether every promise was kept."""
    asked = read_options(argv)
    rows = _kept(asked.keep, asked.seed)
    missing = [number for number in range(asked.histories) if number not in rows]
    print(
        f"{asked.histories} histories, seed {asked.seed}; {len(missing)} to do\n\n"
        "| history | | took | |\n|---|---|---|---|"
    )
    with ThreadPoolExecutor(asked.beside) as threads:
        judgements = threads.map(lambda number: judged(number, asked.seed), missing)
        for number, row in zip(missing, judgements, strict=True):
            rows[number] = row
            print(_shown(row), flush=True)
            if asked.keep:
                with asked.keep.open("a", encoding="utf-8") as file:
                    file.write(json.dumps({"seed": asked.seed, **row}) + "\n")
    wanted = [rows[number] for number in range(asked.histories)]
    bad = [row for row in wanted if row["broken"]]
    print(f"\n{len(wanted) - len(bad)} of {len(wanted)} histories kept every promise")
    print(f"load average {machine.load()} on {machine.describe()['cores']} cores")
    return 1 if bad else 0


def judged(number: int, seed: int) -> dict[str, object]:
    """Live through history ``number`` and judge it; a row of the table."""
    history = draw(number, seed)
    folder = Path(tempfile.mkdtemp(prefix=f"hostile-{number}-"))
    began_s = time.monotonic()
    wrong = broken(run(history, folder), machine.crowding())
    if not wrong:
        shutil.rmtree(folder)
    place = [f"see {folder.name}"] if wrong else []
    return {
        "number": number,
        "told": history.told(),
        "took_s": round(time.monotonic() - began_s, 1),
        "broken": [*wrong, *place],
    }


def _shown(row: dict[str, object]) -> str:
    wrong = row["broken"]
    verdict = f"**{'; '.join(map(str, wrong))}**" if isinstance(wrong, list) and wrong else "kept"
    return f"| {row['number']} | {row['told']} | {row['took_s']} s | {verdict} |"


def _kept(path: Path | None, seed: int) -> dict[int, dict[str, object]]:
    """Rows of an earlier start with this seed; broken ones are done again."""
    if path is None or not path.exists():
        return {}
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.endswith("}")]
    return {row["number"]: row for row in rows if row["seed"] == seed and not row["broken"]}


def read_options(argv: Sequence[str] | None) -> argparse.Namespace:
    """How many, and where the rows go."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.campaigns.hostile", description=__doc__)
    parser.add_argument("--histories", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--beside", type=int, default=2, help="histories at the same time")
    parser.add_argument("--keep", type=Path, default=None, help="a file of rows, to go on from")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
