"""What a text means as an option's value: durations, ranks, streams, templates.

Every reader raises ``ValueError`` with the reason as a phrase that follows "because:".
"""

import os
import re
from collections.abc import Callable

from faultrun.errors import ConfigError
from faultrun.model.spec import Rewrite, Stream

DAY_S = 86_400.0

_UNITS_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": DAY_S, "": 1.0}
_DURATION = r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d|)"
_WHOLE = r"[+-]?\d{1,18}"
_TRUE = frozenset({"true", "1", "yes", "on"})
_FALSE = frozenset({"false", "0", "no", "off"})
_STREAMS = r"[0-3]"
_STREAM_MAP = r"\d{1,9}:[0-3](,\d{1,9}:[0-3])*"


def switch(text: str) -> bool:
    """True or False, in msrun's spelling or YAML's."""
    word = text.strip().lower()
    if word in _TRUE:
        return True
    if word in _FALSE:
        return False
    raise ValueError(f"{text!r} is neither True nor False")


def whole(low: int, high: int) -> Callable[[str], int]:
    """A reader of whole numbers from ``low`` to ``high``, both included."""

    def read(text: str) -> int:
        if not re.fullmatch(_WHOLE, text.strip(), re.ASCII):
            raise ValueError(f"{text!r} is not a whole number")
        number = int(text)
        if not low <= number <= high:
            raise ValueError(f"{number} is not between {low} and {high}")
        return number

    return read


def seconds(longest_s: float = DAY_S) -> Callable[[str], float]:
    """A reader of durations such as ``250ms``, ``30s``, ``5m``, ``1h`` or bare seconds."""

    def read(text: str) -> float:
        match = re.fullmatch(_DURATION, text.strip(), re.ASCII)
        if match is None:
            raise ValueError(f"{text!r} is not a time such as 250ms, 30s, 5m, 1h or 30")
        length_s = float(match[1]) * _UNITS_S[match[2]]
        if length_s > longest_s:
            raise ValueError(f"{text} is longer than {longest_s:g} s")
        return length_s

    return read


def size(text: str) -> int:
    """Bytes: ``200m``, ``1g``, ``64k`` or a plain number."""
    found = re.fullmatch(r"(\d{1,15})([kmgt]?)(?:i?b)?", text.strip().lower())
    if found is None:
        raise ValueError(f"{text!r} is not a size such as 200m or 1g")
    return int(found[1]) << {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}[found[2]]


def backoff(text: str) -> tuple[float, float]:
    """``1s..60s`` as (1.0, 60.0); one time alone is both ends."""
    first, dots, last = text.partition("..")
    shortest_s = seconds()(first)
    longest_s = seconds()(last) if dots else shortest_s
    if longest_s < shortest_s:
        raise ValueError(f"{first.strip()} is longer than {last.strip()}")
    return shortest_s, longest_s


def patience_s(text: str) -> int:
    """MindSpore's cluster time-out in whole seconds; any negative number means for ever."""
    if text.strip().startswith("-"):
        return whole(-(10**9), -1)(text)
    return max(1, round(seconds(30 * DAY_S)(text)))


def ranks(text: str) -> tuple[int, ...]:
    """Ranks as msrun lists them, ``0,3``; empty for ``-1``, which means all."""
    if text.strip() == "-1":
        return ()
    return tuple(whole(0, 10**6)(part) for part in text.split(","))


def streams(text: str) -> dict[int | None, Stream]:
    """Streams as torchrun writes them: ``3`` is {None: ALL}, ``0:1,1:2`` is {0: OUT, 1: ERR}."""
    written = text.strip()
    if re.fullmatch(_STREAMS, written):
        return {None: Stream(int(written))}
    if not re.fullmatch(_STREAM_MAP, written, re.ASCII):
        raise ValueError(f"{text!r} is neither 0, 1, 2, 3 nor a list such as 0:1,1:3")
    pairs = (part.split(":") for part in written.split(","))
    return {int(rank): Stream(int(stream)) for rank, stream in pairs}


def endpoint(text: str) -> tuple[str, int | None]:
    """``host:port``, ``host`` or ``[v6]:port`` as (host, port)."""
    match = re.fullmatch(r"(\[[^\]]+\]|[^:\[\]]+)(?::(\d{1,5}))?", text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not HOST:PORT")
    return match[1], None if match[2] is None else whole(0, 65_535)(match[2])


def template(text: str) -> str:
    """A text whose ``{fields}`` are all known; braces of its own are doubled."""
    from faultrun.core import template as templates

    try:
        return templates.parse(text).text
    except ConfigError as error:
        raise ValueError(f"{error.because}; {error.hint}") from None


def rewrite(text: str) -> Rewrite:
    """``[FORMAT:]FILE:KEY[=TEMPLATE]``; see ``configs.target``."""
    from faultrun.configs.registry import FORMATS
    from faultrun.configs.target import parse_rewrite

    found = parse_rewrite(text, os.path.lexists, FORMATS)
    template(found.template)
    return found


def run_id(text: str) -> str:
    """A name that may be a folder: letters, digits, ``.``, ``_`` and ``-``, at most 128, no dot first."""
    if not re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}", text):
        raise ValueError(f"{text!r} is not a name of letters, digits, '.', '_' and '-' (at most 128)")
    return text
