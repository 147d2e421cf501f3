"""``python -m benchmarks.campaigns.pauses --pauses 200 --hangs 60``: healthy pauses, and hangs with a limit.

Each is one real training. Nobody may be replaced for a pause, whatever it is;
each hang must be warned of soon, and its rank, no other, be replaced at the
limit. With ``--keep`` rows are kept, and only what is missing is run. Ends
with 1 when anything was wrong; the folder of such a run is kept.
"""

import argparse
import json
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from statistics import median

from benchmarks.campaigns.pauses_plan import Case, plan
from benchmarks.campaigns.pauses_run import Row, missing, run
from benchmarks.harness import machine

_TITLE = "# Pauses that are no hangs, and hangs that are"


def main(argv: Sequence[str] | None = None) -> int:
    """Run what was asked for and is not there already."""
    asked = read_options(argv)
    kept = _kept(asked.keep, asked.seed)
    cases = [case for case in plan(asked.pauses, asked.hangs, asked.seed) if case.number not in kept]
    until_s = time.monotonic() + asked.minutes * 60
    lock = threading.Lock()

    def one(case: Case) -> None:
        if time.monotonic() > until_s or missing(case):
            return
        folder = Path(tempfile.mkdtemp(prefix=f"pause-{case.number}-"))
        row = run(case, folder)
        with lock:
            kept[row.number] = row
            print(_line(row, folder), flush=True)
            if asked.keep is not None:
                with asked.keep.open("a") as file:
                    file.write(json.dumps({"seed": asked.seed, **asdict(row)}) + "\n")
        if not row.wrong:
            shutil.rmtree(folder)

    with ThreadPoolExecutor(asked.jobs) as pool:
        list(pool.map(one, cases))
    rows = [kept[number] for number in sorted(kept)]
    left_out = sorted({f"{case.kind}: {missing(case)}" for case in cases if missing(case)})
    text = page(rows, asked.seed, left_out)
    print(text)
    if asked.page is not None:
        asked.page.write_text(text)
    return 1 if any(row.wrong for row in rows) else 0


def page(rows: Sequence[Row], seed: int, left_out: Sequence[str] = ()) -> str:
    """The campaign in print: a row for each kind."""
    pauses, hangs = [row for row in rows if not row.limit_s], [row for row in rows if row.limit_s]
    killed = sum(row.killed for row in pauses)
    in_time = sum(not row.wrong for row in hangs)
    text = [
        _TITLE,
        "",
        f"{len(pauses)} healthy pauses, {killed} killed. {len(hangs)} hangs with a limit by the user,"
        f" {in_time} warned of soon and replaced in time with the right rank blamed.",
        f"Two ranks, steps of 50 ms, seed {seed}; {_machine()}.",
        "",
        "| pause | jobs | of MindSpore | on all ranks | seconds | warned of | killed | wrong |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for kind in dict.fromkeys(row.kind for row in pauses):
        of = [row for row in pauses if row.kind == kind]
        spread = f"{min(row.seconds for row in of):g} to {max(row.seconds for row in of):g}"
        jobs = (len(of), sum(row.framework == "mindspore" for row in of), sum(row.everybody for row in of))
        ends = (sum(row.warned_s is not None for row in of), sum(row.killed for row in of), _troubles(of))
        text.append(f"| {kind} | {' | '.join(map(str, (*jobs, spread, *ends)))} |")
    text += [
        "",
        "| hang | jobs | warned of after | replaced after the limit | wrong |",
        "|---|---|---|---|---|",
    ]
    for kind in dict.fromkeys(row.kind for row in hangs):
        of = [row for row in hangs if row.kind == kind]
        warned = _spread([row.warned_s for row in of if row.warned_s is not None])
        late = _spread([row.silent_s - row.limit_s for row in of if row.silent_s is not None])
        text.append(f"| {kind} | {len(of)} | {warned} | {late} | {_troubles(of)} |")
    text += ["", *(f"Not run: {one}." for one in left_out)]
    counts = f"--pauses {len(pauses)} --hangs {len(hangs)} --seed {seed}"
    text.append(f"Again: `python -m benchmarks.campaigns.pauses {counts}`")
    return "\n".join(text) + "\n"


def _machine() -> str:
    return ", ".join(f"{name} {value}" for name, value in machine.describe().items())


def _spread(seconds: Sequence[float]) -> str:
    return f"{median(seconds):.2f} s, at most {max(seconds):.2f} s" if seconds else "-"


def _troubles(rows: Sequence[Row]) -> str:
    return "; ".join(sorted({trouble for row in rows for trouble in row.wrong})) or "-"


def _line(row: Row, folder: Path) -> str:
    what = f"hang, limit {row.limit_s:g} s" if row.limit_s else f"pause of {row.seconds:g} s"
    who = "all ranks" if row.everybody else "rank 1"
    warned = "not warned of" if row.warned_s is None else f"warned of after {row.warned_s:.2f} s"
    end = f"WRONG: {'; '.join(row.wrong)} (see {folder})" if row.wrong else "right"
    took = f"{row.took_s:g} s, load {row.load:g}"
    return f"{row.number} {row.kind}: {what}, {row.framework}, {who}; {warned}; {end} ({took})"


def _kept(path: Path | None, seed: int) -> dict[int, Row]:
    """Rows of the same plan; of one that was run twice the last. A line that was cut off is none."""
    kept: dict[int, Row] = {}
    if path is None or not path.exists():
        return kept
    for text in path.read_text().splitlines():
        try:
            line = json.loads(text)
        except ValueError:
            continue
        if line.pop("seed") == seed and not line["wrong"]:
            kept[line["number"]] = Row(**{**line, "wrong": ()})
    return kept


def read_options(argv: Sequence[str] | None) -> argparse.Namespace:
    """How many, and where the rows go."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.campaigns.pauses", description=__doc__)
    parser.add_argument("--pauses", type=int, default=200)
    parser.add_argument("--hangs", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=4, help="trainings side by side")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin nothing after that")
    parser.add_argument("--keep", type=Path, help="a file of rows to go on with and to add to")
    parser.add_argument("--page", type=Path, help="write the table there, too")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
