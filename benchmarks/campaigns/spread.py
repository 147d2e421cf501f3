"""How far values lie apart."""

from collections.abc import Sequence


def p95(values: Sequence[float]) -> float:
    """The value that 95 of 100 do not exceed; the largest of few."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * 0.95))]
