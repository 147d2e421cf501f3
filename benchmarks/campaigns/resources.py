"""``python -m benchmarks.campaigns.resources``: what a training does when something runs out, for real.

Inodes and bytes (small tmpfs), descriptors (RLIMIT_NOFILE of the living
supervisor), ``/dev/shm`` (one of its own, in a mount namespace), and a worker that
prints as fast as it can. Needs the right to mount. Ends with 1 when anything is
not as it should be.
"""

import argparse
import sys
from collections.abc import Sequence

from benchmarks.campaigns.resources_run import Outcome, trials
from benchmarks.harness import machine
from benchmarks.harness.benchmark import NotMeasured

_TOLD_CHARS = 160


def main(argv: Sequence[str] | None = None) -> int:
    """Run those that were asked for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.campaigns.resources", description=__doc__)
    parser.add_argument("--only", help="those whose name contains this")
    asked = parser.parse_args(argv)
    print("| what runs out | told | exit | took | |\n|---|---|---|---|---|", flush=True)
    wrong = 0
    for name, trial in trials().items():
        if asked.only is None or asked.only in name:
            try:
                outcome = trial()
            except NotMeasured as reason:
                print(f"| {name} | not run: {reason} | | | |", flush=True)
                continue
            wrong += bool(outcome.wrong)
            print(row(name, outcome), flush=True)
    print(f"\nload average {machine.load()} on {machine.describe()['cores']} cores")
    return 1 if wrong else 0


def row(name: str, outcome: Outcome) -> str:
    """One line of the table."""
    verdict = "as expected" if not outcome.wrong else f"**{'; '.join(outcome.wrong)}**"
    told = outcome.told[:_TOLD_CHARS].replace("|", "/")
    return f"| {name} | {told} | {outcome.code} | {outcome.took_s:.1f} s | {verdict} |"


if __name__ == "__main__":
    sys.exit(main())
