"""What the tests of savings assume, and a point that a dying gasp has saved."""

from dataclasses import replace

from faultrun.model.checkpoint import Kind, RecoveryPoint
from faultrun.model.spec.assumptions import Assumptions
from support.stories.story import checkpoint, rule

TORCH = Assumptions().settled("torch")
NO_WAIT = rule(max_restarts=10_000, backoff_min_s=0, backoff_max_s=0)


def gasp(step: int) -> RecoveryPoint:
    return replace(checkpoint(step), kind=Kind.GASP)
