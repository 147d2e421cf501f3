"""What a picture needs of a run: as much for a month with 10,000 incidents as for an hour."""

from typing import Any

from faultrun.observe.account.records import Account
from faultrun.observe.account.timeline import Spending, shares

_MOST_STRETCHES = 120
_BINS = 160
_MOST_POINTS = 240


def spent_over_time(account: Account) -> dict[str, Any]:
    """``stretches`` of few: ``[begin_s, end_s, kind, incarnation]``; else the ``shares`` of equal bins.

    The other of the two is empty. ``bin_s`` is the length of a bin in seconds, 0 without bins.
    """
    if len(account.segments) <= _MOST_STRETCHES:
        rows = [
            [round(one.begin_s, 3), round(one.end_s, 3), one.kind.value, one.incarnation]
            for one in account.segments
        ]
        return {"stretches": rows, "bin_s": 0.0, "shares": {}}
    found = shares(account.segments, account.wall_s, _BINS)
    rounded = {kind.value: [round(share, 4) for share in found[kind]] for kind in Spending if kind in found}
    return {"stretches": [], "bin_s": round(account.wall_s / _BINS, 3), "shares": rounded}


def progress(account: Account) -> list[tuple[float, int]]:
    """Steps over time ``(at_s, global step)``; of many points those that a line through all would touch.

    Of each equal stretch of time the first, the lowest, the highest and the last stay: every step back does.
    """
    points = account.steps
    if len(points) > _MOST_POINTS and account.wall_s > 0:
        width_s = account.wall_s / (_MOST_POINTS // 4)
        groups: dict[int, list[int]] = {}
        for at, (at_s, _) in enumerate(points):
            groups.setdefault(int(at_s / width_s), []).append(at)
        kept = sorted({at for group in groups.values() for at in _outline(account, group)})
        points = tuple(points[at] for at in kept)
    return [(round(at_s, 3), step) for at_s, step in points]


def _outline(account: Account, group: list[int]) -> set[int]:
    by_step = sorted(group, key=lambda at: account.steps[at][1])
    return {group[0], by_step[0], by_step[-1], group[-1]}
