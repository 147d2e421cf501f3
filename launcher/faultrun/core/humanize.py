"""Lengths of time, counts and ranks as people say them."""

from collections.abc import Sequence

_LISTED = 8
_PAIRS = (("d", 86400, "h", 3600), ("h", 3600, "min", 60), ("min", 60, "s", 1))


def span(seconds: float) -> str:
    """``40 ms``, ``4.2 s``, ``12 s``, ``3 min 5 s``, ``2 h 10 min``, ``4 d 3 h``: two units at most."""
    if seconds < 9.95:
        if seconds == int(seconds):
            return f"{int(seconds)} s"
        return f"{seconds:.1f} s" if seconds >= 0.9995 else f"{seconds * 1000:.3g} ms"
    whole = round(seconds)
    for unit, size, below, part in _PAIRS:
        if whole >= size:
            rest = whole % size // part
            return f"{whole // size} {unit}" + (f" {rest} {below}" if rest else "")
    return f"{whole} s"


def several(count: int, name: str) -> str:
    """``1 incident``, ``10,000 incidents``."""
    return f"{count:,} {name}" if count == 1 else f"{count:,} {name}s"


def percent(share: float) -> str:
    """``98.2 %``; small shares keep a digit that is not zero, and nearly everything is not everything."""
    value = share * 100
    if 0 < value < 0.05:
        return "< 0.1 %"
    if 99.95 <= value < 100:
        return "> 99.9 %"
    return f"{value:.1f} %"


def node_names(nodes: Sequence[str]) -> str:
    """``node a``, ``nodes a b c``, and with many of them ``nodes a b c d e f g h and 92 more``."""
    more = f" and {len(nodes) - _LISTED} more" if len(nodes) > _LISTED else ""
    return f"{'node' if len(nodes) == 1 else 'nodes'} {' '.join(nodes[:_LISTED])}{more}"


def rank_names(ranks: Sequence[int]) -> str:
    """``rank 3``, ``ranks 0 1 2``, and with hundreds of them ``ranks 0-17 19-511``."""
    if isinstance(ranks, range) and ranks.step == 1 and ranks.stop - ranks.start > _LISTED:
        return f"ranks {ranks[0]}-{ranks[-1]}"  # a node's: nothing is to be looked for
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    if len(ranks) <= _LISTED:
        return "ranks " + " ".join(str(rank) for rank in ranks)
    return "ranks " + " ".join(rank_runs(ranks))


def rank_runs(ranks: Sequence[int]) -> list[str]:
    """``0-17`` and ``19`` for ranks in a row, and for one alone."""
    runs: list[list[int]] = []
    for rank in sorted(ranks):
        if runs and rank == runs[-1][-1] + 1:
            runs[-1] = [runs[-1][0], rank]
        else:
            runs.append([rank])
    return [f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs]
