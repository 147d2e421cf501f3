"""One value of a ``.env`` file changed; every other character stays.

Lines are ``[export ]NAME=VALUE``. A value is in single or double quotes, which may
hold line breaks, or the rest of its line up to `` #``. Files for ``docker --env-file``
keep working while paths need no quotes: then none are written.
"""

import re
from dataclasses import dataclass

from faultrun.configs.edited import Edited, EditRefused, edited, prove, twice, unchanged
from faultrun.configs.quoting import word
from faultrun.model.edit import Key, Scalar
from faultrun.text.patch import Patch, appended, line_of, next_line

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ENTRY = re.compile(r"[ \t]*(?P<export>export[ \t]+)?(?P<name>[^\s=#'\"]+)[ \t]*=")
_EMPTY = re.compile(r"[ \t]*(?:[\r\n]|$)|[ \t]+#")
_SPACE = re.compile(r"[ \t]*")
_QUOTED = re.compile(r"'[^']*'|\"(?:\\.|[^\"\\])*\"", re.DOTALL)
_BARE = re.compile(r"[^\r\n]*?(?=[ \t]*(?:[ \t]#[^\r\n]*)?(?:[\r\n]|$))")
_REST = re.compile(r"[ \t]*(?:#[^\r\n]*)?(?:[\r\n]|$)")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entry:
    name: str
    start: int
    end: int
    spelled: str
    export: str


def edit(text: str, key: Key, value: Scalar) -> Edited:
    """Set the variable ``key`` to ``value``; EditRefused with the reason where that cannot be done safely."""
    name = variable(key)
    before = _entries(text)
    found = [entry for entry in before if entry.name == name]
    if len(found) > 1:
        raise twice([line_of(text, entry.start) for entry in found])
    if found:
        old = found[0]
        spelled = word(value, old.spelled)
        if spelled == old.spelled:
            return unchanged(text, old.start, spelled)
        result = edited(
            text, [Patch(start=old.start, end=old.end, new=spelled)], before=old.spelled, after=spelled
        )
        expected = [(entry.name, spelled if entry is old else entry.spelled) for entry in before]
    else:
        spelled = word(value, "")
        export = before[-1].export if before else ""
        patch = appended(text, len(text), f"{export}{name}={spelled}")
        result = edited(text, [patch], before=None, after=spelled)
        expected = [*((entry.name, entry.spelled) for entry in before), (name, spelled)]
    prove(lambda: [(entry.name, entry.spelled) for entry in _entries(result.text)] == expected, result.line)
    return result


def variable(key: Key) -> str:
    """The name ``key`` gives to an environment variable. EditRefused if it cannot be one."""
    name = ".".join(str(step) for step in key.steps)
    if key.document or not NAME.fullmatch(name):
        raise EditRefused(
            f"{key.text!r} is not the name of a variable", hint="letters, digits and _, such as PRE_TRAINED"
        )
    return name


def _entries(text: str) -> list[_Entry]:
    entries: list[_Entry] = []
    position = 0
    while position < len(text):
        head = _ENTRY.match(text, position)
        if head is None:
            position = next_line(text, position)
            continue
        start, end = _value(text, head.end())
        entries.append(
            _Entry(
                name=head["name"], start=start, end=end, spelled=text[start:end], export=head["export"] or ""
            )
        )
        position = next_line(text, end)
    return entries


def _value(text: str, at: int) -> tuple[int, int]:
    """Where the value behind the ``=`` before ``at`` starts and ends."""
    space = _SPACE.match(text, at)
    if space is None or _EMPTY.match(text, at):
        return at, at
    start = space.end()
    quoted = _QUOTED.match(text, start)
    if quoted and _REST.match(text, quoted.end()):
        return start, quoted.end()
    if quoted is None and text[start] in {"'", '"'}:
        raise EditRefused(f"line {line_of(text, start)}: the quote is not closed", hint="close it")
    bare = _BARE.match(text, start)
    return start, bare.end() if bare else start
