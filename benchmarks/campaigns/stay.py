"""``python -m benchmarks.campaigns.stay --deaths 500 --seed 1``: deaths in trainings whose survivors stay.

Three in five over DistributedDataParallel, the others over fully_shard, many in one job; with ``--phases``
instead a second death in every phase of a repair, once each. ``--keep`` holds a line a death; a session that
was cut off is run again as a whole. Ends with 1 when a promise was broken; what such a session had written is
below ``--see``.
"""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.campaigns import kept
from benchmarks.campaigns.promises import Row
from benchmarks.campaigns.stay_page import HEAD, page, shown, summary
from benchmarks.campaigns.stay_plan import A_SESSION, STEPS_A_DEATH, of_phases, sessions
from benchmarks.campaigns.stay_run import run
from benchmarks.campaigns.stay_site import undisturbed


def main(argv: Sequence[str] | None = None) -> int:
    """Run what is missing; the exit code says whether every promise was kept."""
    asked = read_options(argv)
    planned = of_phases() if asked.phases else sessions(asked.deaths, asked.seed)
    rows = kept.read(asked.keep, asked.seed)
    ended = {row["session"] for row in rows if row["place"] < 0}
    see = asked.see or Path(tempfile.gettempdir(), f"stay-see-{os.getpid()}")
    until_s = time.monotonic() + asked.minutes * 60
    deaths = sum(len(session.deaths) for session in planned)
    print(f"{deaths} deaths, seed {asked.seed}; {len(ended)} of {len(planned)} sessions done\n\n{HEAD}")
    truths = {}
    with tempfile.TemporaryDirectory(prefix="stay-") as name:
        folder = Path(name)
        for session in planned:
            if session.number in ended or (asked.only and session.number not in asked.only):
                continue
            if time.monotonic() > until_s:
                break
            if session.mode not in truths:
                steps = max(STEPS_A_DEATH * (A_SESSION + 1), session.steps)
                truths[session.mode] = undisturbed(session.mode, steps, folder / f"truth_{session.mode}")
            own: list[Row] = []
            for row in run(session, truths[session.mode], folder, see):
                own.append({"seed": asked.seed, **row})
                print(shown(row), flush=True)
            rows += own
            kept.add(asked.keep, own)
    print(f"\n{summary(rows)}")
    if asked.page is not None:
        asked.page.write_text(page(rows, asked.seed, asked.deaths), encoding="utf-8")
    return 1 if any(row["broken"] for row in rows) else 0


def read_options(argv: Sequence[str] | None) -> argparse.Namespace:
    """How many, and where the rows go."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.campaigns.stay", description=__doc__)
    parser.add_argument("--deaths", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--phases", action="store_true", help="a second death in every phase of a repair")
    parser.add_argument("--only", type=int, action="append", help="this session alone (repeatable)")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin no session after that")
    parser.add_argument("--keep", type=Path, default=None, help="a file of rows, to go on from")
    parser.add_argument("--page", type=Path, default=None, help="where the result is written")
    parser.add_argument("--see", type=Path, default=None, help="where is kept what broke a promise")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
