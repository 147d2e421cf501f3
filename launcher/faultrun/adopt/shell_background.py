"""Whether a command of a shell script is one that the script does not wait for."""

from collections.abc import Sequence

from faultrun.text.shell import Operator, Token

_ENDS = frozenset({"\n", "\r\n", "\r", ";", ";;", "&&", "||"})


def in_background(read: Sequence[Token], end: int) -> bool:
    """Whether ``&`` ends the command that ends at ``end``, or the parentheses that it stands in."""
    marks = [one for one in read if isinstance(one, Operator) and not one.redirects]
    depth = sum({"(": 1, ")": -1}.get(one.text, 0) for one in marks if one.end <= end)
    for one in marks:
        if one.start < end:
            continue
        if one.text == "&":
            return True
        depth += {"(": 1, ")": -1}.get(one.text, 0)
        if depth <= 0 and one.text in _ENDS:
            return False
    return False
