"""Lengths of time as people say them."""

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
