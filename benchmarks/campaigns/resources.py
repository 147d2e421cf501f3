"""``python -m benchmarks.campaigns.resources``: what a training does when something runs out, for real.

Inodes and bytes (small tmpfs), descriptors (RLIMIT_NOFILE of the living
supervisor), ``/dev/shm`` (one of its own, in a mount namespace), and a worker that
prints as fast as it can. Needs the right to mount. Ends with 1 when anything is
not as it should be.
"""

import sys
from collections.abc import Sequence

from benchmarks.campaigns import engine
from benchmarks.campaigns.resources_run import Outcome, Trial, trials

_TOLD_CHARS = 160

CAMPAIGN: engine.Campaign[Trial, Outcome] = engine.Campaign(
    name="resources",
    cases="trials",
    run=lambda trial, folder: trial.run(folder),
    judge=lambda _, outcome: outcome.wrong,
    columns={
        "what_runs_out": lambda trial, _: trial.name,
        "told": lambda _, outcome: outcome.told[:_TOLD_CHARS],
        "exit": lambda _, outcome: outcome.code,
    },
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run those that were asked for."""
    asked = engine.options("resources", __doc__).parse_args(argv)
    return engine.exit_code(CAMPAIGN.carry_out(trials(), asked))


if __name__ == "__main__":
    sys.exit(main())
