"""One YAML scalar: how a value is written so that every reader takes it for the same, and how Go types it."""

import json
import re

from faultrun.model.edit import ScalarKind

_NULLS = frozenset({"", "~", "null", "Null", "NULL"})
_WORDS = ("y", "n", "yes", "no", "on", "off", "true", "false")
_BOOLEANS = frozenset(form for word in _WORDS for form in (word, word.capitalize(), word.upper()))
_INTEGER = re.compile(r"[-+]?(0b[01_]+|0o?[0-7_]+|0x[0-9a-fA-F_]+|[0-9][0-9_]*)")
_FLOAT = re.compile(
    r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"
)
_NOT_ASCII = re.compile(r"[^ -~]")
_UNPRINTABLE = re.compile("[\x7f-\x9f\u2028\u2029\ud800-\udfff\ufeff\ufffe\uffff]")
_PLAIN = re.compile(r"(?:--?(?=[A-Za-z]))?[A-Za-z0-9_./$][A-Za-z0-9_./$(){}=@%+:,\- ]*")
_ELSEWHERE_A_NUMBER = re.compile(r"[0-9]{4}-[0-9]|[0-9_]+:[0-9]|-+$")


def go_kind(plain: str) -> ScalarKind:
    """The type of a scalar without quotes as Kubernetes' reader sees it: YAML 1.1 in Go.

    ``off`` and ``yes`` are booleans, ``1e3`` is a number, a date is a text.
    """
    if plain in _NULLS:
        return ScalarKind.NULL
    if plain in _BOOLEANS:
        return ScalarKind.BOOL
    if _INTEGER.fullmatch(plain):
        return ScalarKind.INT
    return ScalarKind.FLOAT if _FLOAT.fullmatch(plain) else ScalarKind.STR


def spelled(value: str | int | bool) -> str:
    """``value`` as YAML: a string is written plainly where it cannot be mistaken, else in double quotes."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    plain = (
        _PLAIN.fullmatch(value)
        and go_kind(value) is ScalarKind.STR
        and not value.endswith((" ", ":"))
        and ": " not in value
        and not _ELSEWHERE_A_NUMBER.match(value)
    )
    return value if plain else quoted(value, value)


def quoted(value: str, text: str) -> str:
    """``value`` in double quotes on one line of ``text``, as YAML and TOML read it alike.

    An all-ASCII text stays all-ASCII. What either may not hold, or takes for a line break, is escaped.
    """
    odd = _NOT_ASCII if text.isascii() else _UNPRINTABLE
    return odd.sub(_escaped, json.dumps(value, ensure_ascii=False))


def _escaped(found: "re.Match[str]") -> str:
    code = ord(found.group())
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
