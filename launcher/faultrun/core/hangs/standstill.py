"""Whether ranks worked while their supervisor stood still: by how much they had done of late. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

AWAKE_S = 1.0
"""Ranks may be awake for so long before the supervisor is, and after it fell asleep."""

_OF_LATE_S = 10.0
_SHARE = 0.25
"""The share of a standstill in which ranks that work as before have worked for certain."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """What each rank has ``done`` by ``at_s``, counted in several ways that only ever grow."""

    at_s: float
    done: Mapping[int, Sequence[float]]


def of_late(tallies: Sequence[Tally], newest: Tally) -> tuple[Tally, ...]:
    """The tallies to keep, a second apart."""
    if tallies and newest.at_s - tallies[-1].at_s < AWAKE_S:
        return tuple(tallies)
    return (*(one for one in tallies if newest.at_s - one.at_s <= _OF_LATE_S), newest)


def worked(tallies: Sequence[Tally], now: Tally, stood_s: float) -> bool:
    """Whether a rank did more in the last ``stood_s`` than it can have done just before and behind them.

    Where too little is known of what they had done, they may have worked.
    """
    if len(tallies) < 2:
        return True
    first, last = tallies[0], tallies[-1]
    awake_s = max(0.0, now.at_s - last.at_s - stood_s) + AWAKE_S
    for rank in first.done.keys() & last.done.keys() & now.done.keys():
        for began, slept, woke in zip(first.done[rank], last.done[rank], now.done[rank], strict=True):
            a_second = (slept - began) / (last.at_s - first.at_s)
            if a_second > 0 and woke - slept > a_second * (awake_s + _SHARE * stood_s):
                return True
    return False
