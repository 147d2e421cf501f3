"""One variable of a shell script changed; every other character stays.

Understood: ``NAME=VALUE`` where a command may stand, alone, in front of a command or
behind ``export``, ``declare``, ``readonly``, ``local``. Quotes, ``${...}``, ``$(...)``, comments and
here-documents are skipped as the shell skips them. A missing name is appended only to
a script that does nothing but set variables: elsewhere it would come too late.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from faultrun.configs.edited import Edited, EditRefused, edited, prove, twice, unchanged
from faultrun.configs.env_edit import variable
from faultrun.configs.quoting import word
from faultrun.model.edit import Key, Scalar
from faultrun.text.patch import Patch, appended, line_of
from faultrun.text.shell import Word, tokens

_ASSIGNMENT = re.compile(r"(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?P<index>\[[^\]]*\])?(?P<sign>\+?=)")
_DECLARE = {"export", "declare", "typeset", "readonly", "local"}
_BEFORE_COMMAND = {"if", "then", "elif", "else", "do", "while", "until", "{", "!", "time"}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Assignment:
    name: str
    start: int
    end: int
    spelled: str
    simple: bool
    export: str


class _Command:
    """A word that runs something."""


def edit(text: str, key: Key, value: Scalar) -> Edited:
    """Set the variable ``key`` to ``value``; EditRefused with the reason where that cannot be done safely."""
    name = variable(key)
    before = list(_parts(text))
    assignments = _assignments(text)
    found = [assignment for assignment in assignments if assignment.name == name]
    if len(found) > 1:
        raise twice([line_of(text, assignment.start) for assignment in found])
    if found and not found[0].simple:
        where = f"line {line_of(text, found[0].start)}"
        raise EditRefused(
            f"{where} sets an array, or adds to what is there", hint=f"write {name}=VALUE there"
        )
    if found:
        result = _replaced(text, found[0], value)
        expected = [(a.name, result.after if a == found[0] else a.spelled) for a in assignments]
    elif len(assignments) < len(before):
        raise EditRefused(
            f"the script does not set {name}",
            hint=f"add a line {name}= where it belongs, or use --resume_arg",
        )
    else:
        spelled = word(value, "")
        export = assignments[-1].export if assignments else "export "
        patch = appended(text, len(text), f"{export}{name}={spelled}")
        result = edited(text, [patch], before=None, after=spelled)
        expected = [*((a.name, a.spelled) for a in assignments), (name, spelled)]
    prove(lambda: [(a.name, a.spelled) for a in _assignments(result.text)] == expected, result.line)
    return result


def _assignments(text: str) -> list[_Assignment]:
    return [part for part in _parts(text) if isinstance(part, _Assignment)]


def _replaced(text: str, old: _Assignment, value: Scalar) -> Edited:
    spelled = word(value, old.spelled)
    if spelled == old.spelled:
        return unchanged(text, old.start, spelled)
    patch = Patch(start=old.start, end=old.end, new=spelled)
    return edited(text, [patch], before=old.spelled, after=spelled)


def _parts(text: str) -> Iterator[_Assignment | _Command]:
    """Every assignment, and a mark for every other command, in order."""
    at_start, declaring = True, ""
    for token in tokens(text):
        if not isinstance(token, Word):
            if not token.redirects:
                at_start, declaring = True, ""
            continue
        head = _ASSIGNMENT.match(token.text)
        if head and (at_start or declaring):
            yield _assignment(text, token, head, declaring)
        elif at_start and token.text in _DECLARE:
            at_start, declaring = False, token.text + " "
        elif at_start and token.text not in _BEFORE_COMMAND:
            at_start = False
            yield _Command()


def _assignment(text: str, found: Word, head: "re.Match[str]", declaring: str) -> _Assignment:
    start = found.start + head.end()
    return _Assignment(
        name=head["name"],
        start=start,
        end=found.end,
        spelled=text[start : found.end],
        simple=not text.startswith("(", start) and head["sign"] == "=" and head["index"] is None,
        export=declaring if declaring == "export " else "",
    )
