"""When a rank of the hang benchmark does something else than its next step: once, in its first life."""

import argparse

from benchmarks.jobs.pause_deed import DEEDS, do
from benchmarks.jobs.tell import Teller, life, rank


def add_options(parser: argparse.ArgumentParser) -> None:
    """What is done, for how long, by whom and when."""
    parser.add_argument("--deed", default="stopped", choices=DEEDS)
    parser.add_argument("--seconds", type=float, default=3600.0)
    parser.add_argument("--everybody", action="store_true", help="all ranks, not rank 1 alone")
    parser.add_argument("--at_step", type=int, default=60)


class Deed:
    """Done before a step; told as ``hung``, and ``over`` if it ends."""

    def __init__(self, options: argparse.Namespace, tell: Teller) -> None:
        self._options = options
        self._tell = tell

    def before(self, step: int) -> None:
        """Do it now, if it is time to."""
        options = self._options
        if (life(), step) != (0, options.at_step) or not (options.everybody or rank() == 1):
            return
        self._tell("hung", step)
        do(options.deed, options.seconds)
        self._tell("over", step)
