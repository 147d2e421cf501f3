"""One YAML scalar: how a value is written so that every reader takes it for the same, and how Go types it."""

import re

from faultrun.model.edit import ScalarKind

_NULLS = frozenset({"", "~", "null", "Null", "NULL"})
_WORDS = ("y", "n", "yes", "no", "on", "off", "true", "false")
_BOOLEANS = frozenset(form for word in _WORDS for form in (word, word.capitalize(), word.upper()))
_INTEGER = re.compile(r"[-+]?(0b[01_]+|0o?[0-7_]+|0x[0-9a-fA-F_]+|[0-9][0-9_]*)")
_FLOAT = re.compile(
    r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"
)
_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r", "\0": "\\0"}
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
    """``value`` as YAML: a string is written plainly where nobody can mistake it, else in double quotes."""
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
    """``value`` as a double-quoted scalar on one line of ``text``; an all-ASCII text stays all-ASCII."""
    pieces: list[str] = []
    for character in value:
        code = ord(character)
        if character in _ESCAPES:
            pieces.append(_ESCAPES[character])
        elif 0x20 <= code < 0x7F or (not text.isascii() and _printable(code)):
            pieces.append(character)
        elif code < 0x100:
            pieces.append(f"\\x{code:02x}")
        else:
            pieces.append(f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}")
    return '"' + "".join(pieces) + '"'


def _printable(code: int) -> bool:
    """Whether YAML 1.1 takes it as it is and no reader takes it for a line break or a byte order mark."""
    in_sets = 0xA0 <= code <= 0xD7FF or 0xE000 <= code <= 0xFFFD or code >= 0x10000
    return in_sets and code not in {0x2028, 0x2029, 0xFEFF}
