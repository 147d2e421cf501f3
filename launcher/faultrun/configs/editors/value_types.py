"""Which type a new value gets: the one the file already uses there, when the text allows it.

==========  =======================================  ====================
in file     new text                                 written as
==========  =======================================  ====================
string      anything                                 string
integer     ``12``                                   integer
float       ``0.5``, ``1e-3``, ``3``                 float
boolean     ``true``, ``False``                      boolean
null, none  anything                                 as the caller means it
otherwise   anything                                 as the caller means it
==========  =======================================  ====================

The caller means an integer by ``{epoch}`` and a string by ``{checkpoint}`` (core/template.py).
"""

import math
import re

from faultrun.model.edit import Scalar, ScalarKind

_INTEGER = re.compile(r"[+-]?(0|[1-9][0-9]{0,30})")
_FLOAT = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")


def retyped(kind: ScalarKind, new: Scalar) -> Scalar:
    """Return ``new`` as the type that stands in the file, or as it is where it cannot be that."""
    text = plain(new)
    match kind:
        case ScalarKind.STR:
            return text
        case ScalarKind.BOOL if text.lower() in {"true", "false"}:
            return text.lower() == "true"
        case ScalarKind.INT if _INTEGER.fullmatch(text):
            return int(text)
        case ScalarKind.FLOAT if _FLOAT.fullmatch(text) and math.isfinite(float(text)):
            return float(text)
        case _:
            return new


def plain(value: Scalar) -> str:
    """``value`` as text without any format's quotes."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return decimal(value)
    return str(value)


def decimal(value: float) -> str:
    """A float that YAML 1.1, JSON, TOML and Python all read as a float: always with a point."""
    mantissa, exponent, power = repr(value).partition("e")
    return mantissa + ("" if "." in mantissa else ".0") + exponent + power


def as_spelled(value: bool, old: str) -> str:
    """``value`` in the capitals of the boolean it replaces."""
    text = "true" if value else "false"
    if old[:1].isupper():
        return text.upper() if old.isupper() else text.capitalize()
    return text
