"""One variable of a shell script changed; every other character stays.

Understood: ``NAME=VALUE`` where a command may stand, alone, in front of a command or
behind ``export``, ``declare``, ``readonly``, ``local``. A missing name is appended only to
a script that does nothing but set variables: elsewhere it would come too late.
"""

import re
from collections.abc import Iterator

from faultrun.configs.editors.edited import Edited, EditRefused
from faultrun.configs.editors.env_edit import Assignment, edit_variable, variable
from faultrun.model.edit import Key, Scalar
from faultrun.text.shell import Word, tokens

_ASSIGNMENT = re.compile(r"(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?P<index>\[[^\]]*\])?(?P<sign>\+?=)")
_DECLARE = {"export", "declare", "typeset", "readonly", "local"}
_BEFORE_COMMAND = {"if", "then", "elif", "else", "do", "while", "until", "{", "!", "time"}


def edit(text: str, key: Key, value: Scalar) -> Edited:
    """Set the variable ``key`` to ``value``; EditRefused with the reason where that cannot be done safely."""
    name, parts = variable(key), list(_parts(text))
    if None in parts and not any(part is not None and part.name == name for part in parts):
        hint = f"add a line {name}= where it belongs, or use --resume_arg"
        raise EditRefused(f"the script does not set {name}", hint=hint)
    return edit_variable(text, key, value, lambda one: [*filter(None, _parts(one))], export="export ")


def _parts(text: str) -> Iterator[Assignment | None]:
    """Every assignment, and None for every other command, in order."""
    at_start, declaring = True, ""
    for token in tokens(text):
        if not isinstance(token, Word):
            if not token.redirects:
                at_start, declaring = True, ""
            continue
        if (head := _ASSIGNMENT.match(token.text)) and (at_start or declaring):
            yield _assignment(text, token, head, declaring)
        elif at_start and token.text in _DECLARE:
            at_start, declaring = False, token.text + " "
        elif at_start and token.text not in _BEFORE_COMMAND:
            at_start = False
            yield None


def _assignment(text: str, found: Word, head: "re.Match[str]", declaring: str) -> Assignment:
    start = found.start + head.end()
    return Assignment(
        name=head["name"],
        start=start,
        end=found.end,
        spelled=text[start : found.end],
        simple=not text.startswith("(", start) and head["sign"] == "=" and head["index"] is None,
        export=declaring if declaring == "export " else "",
    )
