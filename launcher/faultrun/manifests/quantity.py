"""Kubernetes' quantities: ``500m``, ``16Gi``, ``1e3``."""

import re
from fractions import Fraction

_QUANTITY = re.compile(
    r"([+-]?[0-9]{1,40}(?:\.[0-9]{0,40})?|[+-]?\.[0-9]{1,40})(?:([eE][+-]?[0-9]{1,3})|(Ki|Mi|Gi|Ti|Pi|Ei|n|u|m|k|M|G|T|P|E)?)"
)
_POWERS = {"n": -3, "u": -2, "m": -1, "": 0, "k": 1, "M": 2, "G": 3, "T": 4, "P": 5, "E": 6}


def quantity(text: str) -> Fraction | None:
    """The number a quantity means; None if it is none."""
    match = _QUANTITY.fullmatch(text)
    if match is None:
        return None
    number, exponent, unit = match[1], match[2] or "", match[3] or ""
    if unit.endswith("i"):
        return Fraction(number) * (1 << 10 * ("KMGTPE".index(unit[0]) + 1))
    power = _POWERS[unit]
    scale = Fraction(1000**power) if power >= 0 else Fraction(1, 1000**-power)
    return Fraction(number + exponent) * scale
