"""Decisions that were declined."""

from faultrun.model.restore import Declined


def why(decision: object) -> str:
    """The reason; fails the test when nothing was declined."""
    assert isinstance(decision, Declined), decision
    return decision.why
