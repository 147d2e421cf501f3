"""What a text means as an option's value: durations, ranks, streams, templates.

Every reader raises ``ValueError`` with the reason as a phrase that follows "because:".
"""

import math
import os
import re
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

from faultrun.cli.options.choices import DryRun, meant, none_of, one_of
from faultrun.core.humanize import span
from faultrun.errors import ConfigError, UsageError
from faultrun.model.observed.hang import Span
from faultrun.model.spec.output import Stream
from faultrun.model.spec.run_spec import Rewrite, SignalAnswer
from faultrun.platforms.this_machine import is_address

N = TypeVar("N")
_T = TypeVar("_T")

DAY_S = 86_400.0
MOST_WORKERS = 1_000_000

_NONE = ("", "none")
_UNITS_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": DAY_S, "": 1.0}
_DURATION = r"(\d+(?:\.\d+)?)\s*(ms|s|min|m|h|d|)"
_SWITCHES = {
    **dict.fromkeys(("true", "1", "yes", "on"), True),
    **dict.fromkeys(("false", "0", "no", "off"), False),
}
_STREAM_MAP = r"\d{1,9}:[0-3](,\d{1,9}:[0-3])*"
_SIGNALS = {"TERM": 15, "INT": 2, "HUP": 1, "USR1": 10, "USR2": 12}
_HANG_PHASES = ("startup", "compile", "step", "checkpoint", "evaluation")
_NOT_LEARNT = ("startup", "compile")
_SHORTEST_HANG_S = 0.1
_MOST_STANDBYS = 1024


def as_text(value: object) -> str:
    """A default as a person would write it; times are floats, in seconds."""
    match value:
        case None | ():
            return ""
        case Enum():
            return str(value.value)
        case float():
            unit = next(unit for unit in ("h", "m", "s") if value % _UNITS_S[unit] == 0)
            return f"{value / _UNITS_S[unit]:g}{unit}"
        case _:
            return str(value)


def switch(text: str) -> bool:
    """True or False, in msrun's spelling or YAML's."""
    if (found := _SWITCHES.get(text.strip().lower())) is None:
        raise ValueError(f"{text!r} is neither True nor False")
    return found


def dry_run(text: str) -> DryRun:
    """``full``, or True for a plan that shows of many workers the first; False for none."""
    if text.strip().lower() == DryRun.FULL.value:
        return DryRun.FULL
    try:
        return DryRun.SHORT if switch(text) else DryRun.NONE
    except ValueError as error:
        raise ValueError(f"{error}, nor full") from None


def whole(low: int, high: int) -> Callable[[str], int]:
    """A reader of whole numbers from ``low`` to ``high``, both included."""

    def read(text: str) -> int:
        if not re.fullmatch(r"[+-]?\d{1,18}", text.strip(), re.ASCII):
            raise ValueError(f"{text!r} is not a whole number")
        number = int(text)
        if not low <= number <= high:
            raise ValueError(f"{number} is not between {low} and {high}")
        return number

    return read


def ports(text: str) -> tuple[int, int]:
    """The first and the last of a range of ports; one port alone is a range, too."""
    first, _, last = text.partition("-")
    low = whole(1, 65_535)(first)
    return low, whole(low, 65_535)(last or first)


def or_none(reads: Callable[[str], _T], nothing: N) -> Callable[[str], _T | N]:
    """A reader like ``reads``, to which an empty text and ``none`` mean ``nothing``."""
    return lambda text: nothing if text in _NONE else reads(text)


def seconds(longest_s: float = DAY_S, *, shortest_s: float = 0.0) -> Callable[[str], float]:
    """A reader of durations such as ``250ms``, ``30s``, ``5m``, ``1h`` or bare seconds."""

    def read(text: str) -> float:
        if (match := re.fullmatch(_DURATION, text.strip(), re.ASCII)) is None:
            raise ValueError(f"{text!r} is not a time such as 250ms, 30s, 5m, 1h or 30")
        length_s = float(match[1]) * _UNITS_S[match[2]]
        if length_s > longest_s:
            raise ValueError(f"{text} is longer than {longest_s:g} s")
        if length_s < shortest_s:
            raise ValueError(f"{text} is shorter than {span(shortest_s)}")
        return length_s

    return read


def leave_running(text: str) -> float:
    """A duration, ``forever`` or ``none``."""
    words = {"forever": math.inf, "none": 0.0}
    return words[text] if text in words else seconds()(text)


def size(text: str) -> int:
    """Bytes: ``200m``, ``1g``, ``64k`` or a plain number."""
    if (found := re.fullmatch(r"(\d{1,15})([kmgt]?)(?:i?b)?", text.strip().lower())) is None:
        raise ValueError(f"{text!r} is not a size such as 200m or 1g")
    return int(found[1]) << {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}[found[2]]


def span_s(text: str, length_s: Callable[[str], float]) -> tuple[float, float]:
    """``1s..60s`` as (1.0, 60.0); one time alone is both ends."""
    first, dots, last = text.partition("..")
    low_s = length_s(first)
    high_s = length_s(last) if dots else low_s
    if high_s < low_s:
        raise ValueError(f"{first.strip()} is longer than {last.strip()}")
    return low_s, high_s


def backoff(text: str) -> tuple[float, float]:
    """The shortest wait and the longest."""
    return span_s(text, seconds())


def patience_s(text: str) -> int:
    """MindSpore's cluster time-out in whole seconds; any negative number means for ever."""
    if text.strip().startswith("-"):
        return whole(-(10**9), -1)(text)
    return max(1, round(seconds(30 * DAY_S)(text)))


def ranks(text: str) -> tuple[int, ...]:
    """Ranks as msrun lists them, ``0,3``; empty for ``-1``, which means all."""
    return () if text.strip() == "-1" else tuple(whole(0, 10**6)(part) for part in text.split(","))


def streams(text: str) -> dict[int | None, Stream]:
    """Streams as torchrun writes them: ``3`` is {None: ALL}, ``0:1,1:2`` is {0: OUT, 1: ERR}."""
    written = text.strip()
    if re.fullmatch(r"[0-3]", written):
        return {None: Stream(int(written))}
    if not re.fullmatch(_STREAM_MAP, written, re.ASCII):
        raise ValueError(f"{text!r} is neither 0, 1, 2, 3 nor a list such as 0:1,1:3")
    pairs = (part.split(":") for part in written.split(","))
    return {int(rank): Stream(int(stream)) for rank, stream in pairs}


def standbys(text: str) -> int | None:
    """How many: ``none`` is 0, ``auto`` is None."""
    if (word := text.strip().lower()) in ("auto", "none"):
        return 0 if word == "none" else None
    try:
        return whole(0, _MOST_STANDBYS)(text)
    except ValueError:
        because = f"{text!r} is neither none, auto nor a number from 0 to {_MOST_STANDBYS}"
        raise ValueError(because + meant(text, ("none", "auto"))) from None


def signal_answers(text: str) -> tuple[tuple[int, SignalAnswer], ...]:
    """``USR1=save,HUP=ignore`` by signal number."""
    answers = []
    for part in _parts(text):
        name, _, answer = part.partition("=")
        if (number := _SIGNALS.get(name.strip().upper().removeprefix("SIG"))) is None:
            raise ValueError(none_of(name, [*_SIGNALS]))
        answers.append((number, one_of(SignalAnswer)(answer)))
    return tuple(answers)


def hang_timeout(text: str) -> float | None:
    """A duration in seconds, None for ``auto`` (once called ``learnt``), infinite for ``off``."""
    if (word := text.strip().lower()) in ("auto", "learnt"):
        return None
    if word == "off":
        return math.inf
    return _hang_limit_s(text, meant(text, ("auto", "off")))


def hang_factor(text: str) -> float:
    """A number above 1: at the usual length itself every second step would be a hang."""
    try:
        factor = float(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a number") from None
    if not 1 < factor <= 1e6:
        raise ValueError(f"{text} is not between 1 and 1000000")
    return factor


def hang_limits(text: str) -> dict[str, Span]:
    """``checkpoint=10m,step=2s..1h`` by name; one time alone is both bounds."""
    limits: dict[str, Span] = {}
    for part in _parts(text):
        phase, equals, times = part.partition("=")
        phase = phase.strip()
        if phase not in _HANG_PHASES or not equals:
            because = f"{part!r} is not one of {', '.join(_HANG_PHASES)}, '=' and a time"
            raise ValueError(because + (meant(phase, _HANG_PHASES) if phase not in _HANG_PHASES else ""))
        low_s, high_s = span_s(times, _hang_limit_s)
        if ".." in times and phase in _NOT_LEARNT:
            raise ValueError(f"{phase} is not learnt; it takes one time, not two")
        limits[phase] = Span(low_s=low_s, high_s=high_s)
    return limits


def template(text: str) -> str:
    """A text whose ``{fields}`` are all known; braces of its own are doubled."""
    from faultrun.core import template as templates

    try:
        return templates.parse(text).text
    except ConfigError as error:
        raise ValueError(f"{error.because}; {error.hint}") from None


def resume_arg(text: str) -> str:
    """A template of one argument of the script."""
    from faultrun.configs.argv import check_template

    found = template(text)
    check_template(found)
    return found


def checkpoint_pattern(text: str) -> str:
    """A regular expression that names checkpoints."""
    from faultrun.checkpoints.formats.user_pattern import Pattern

    try:
        Pattern(text)
    except UsageError as error:
        raise ValueError(f"{error.because}; {error.hint}") from None
    return text


def step_pattern(text: str) -> str:
    """A regular expression for the lines of a log that tell steps; empty: they are learnt."""
    try:
        groups = re.compile(text).groupindex
    except re.error as error:
        raise ValueError(f"it is no regular expression: {error}") from None
    if text and "step" not in groups:
        raise ValueError("it has no group (?P<step>...), which is the number of the step")
    return text


def rewrite(text: str) -> Rewrite:
    """``[FORMAT:]FILE:KEY[=TEMPLATE]``; see ``configs.target``."""
    from faultrun.configs.editors.registry import FORMATS
    from faultrun.configs.target import parse_rewrite

    found = parse_rewrite(text, os.path.lexists, FORMATS)
    template(found.template)
    return found


def folder(text: str) -> str:
    """A folder of checkpoints, which may come later."""
    if not text:
        raise ValueError("it is empty")
    if Path(text).is_file():
        raise ValueError(f"{text} is a file, not a folder of checkpoints")
    return text


def run_id(text: str) -> str:
    """A name that may be a folder: letters, digits, ``.``, ``_`` and ``-``, at most 128, no dot first."""
    if not re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}", text):
        raise ValueError(f"{text!r} is not a name of letters, digits, '.', '_' and '-' (at most 128)")
    return text


def address(text: str) -> str:
    """An address of IPv4 or IPv6."""
    if not is_address(text):
        raise ValueError(f"{text!r} is no address of IPv4 or IPv6")
    return text


def prom_file(text: str) -> str:
    """A file for node_exporter."""
    if not text.endswith(".prom"):
        raise ValueError(f"{text!r} does not end in .prom, and node_exporter reads no other file")
    return text


def webhook(text: str) -> str:
    """An address that takes a POST."""
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("a webhook is http://HOST/... or https://HOST/...")
    return text


def _parts(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _hang_limit_s(text: str, or_else: str = "") -> float:
    try:
        return seconds(7 * DAY_S, shortest_s=_SHORTEST_HANG_S)(text)
    except ValueError as error:
        raise ValueError(f"{error}{or_else}") from None
