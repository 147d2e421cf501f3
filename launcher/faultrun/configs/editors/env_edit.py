"""One value of a ``.env`` file changed; every other character stays.

Lines are ``[export ]NAME=VALUE``. A value is in single or double quotes, which may
hold line breaks, or the rest of its line up to `` #``. Files for ``docker --env-file``
keep working while paths need no quotes: then none are written.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from faultrun.configs.editors.edited import Edited, EditRefused, edited, prove, replaced, twice
from faultrun.configs.editors.value_types import as_spelled, plain
from faultrun.model.edit import Key, Scalar
from faultrun.text.patch import appended, line_of, next_line

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SAFE = re.compile(r"[A-Za-z0-9_@%+=:,./-]+")
_ENTRY = re.compile(r"[ \t]*(?P<export>export[ \t]+)?(?P<name>[^\s=#'\"]+)[ \t]*=")
_EMPTY = re.compile(r"[ \t]*(?:[\r\n]|$)|[ \t]+#")
_SPACE = re.compile(r"[ \t]*")
_QUOTED = re.compile(r"'[^']*'|\"(?:\\.|[^\"\\])*\"", re.DOTALL)
_BARE = re.compile(r"[^\r\n]*?(?=[ \t]*(?:[ \t]#[^\r\n]*)?(?:[\r\n]|$))")
_REST = re.compile(r"[ \t]*(?:#[^\r\n]*)?(?:[\r\n]|$)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """``NAME=VALUE``; ``start`` and ``end`` are the value's. ``simple``: it sets one value, and all of it."""

    name: str
    start: int
    end: int
    spelled: str
    export: str
    simple: bool = True


def edit(text: str, key: Key, value: Scalar) -> Edited:
    """Set the variable ``key`` to ``value``; EditRefused with the reason where that cannot be done safely."""
    return edit_variable(text, key, value, _assignments)


def edit_variable(
    text: str, key: Key, value: Scalar, read: Callable[[str], Sequence[Assignment]], export: str = ""
) -> Edited:
    """Set ``key`` in any text of assignments; if it is missing, append it, exported as the last one is."""
    name = variable(key)
    before = read(text)
    found = [one for one in before if one.name == name]
    if len(found) > 1:
        raise twice([line_of(text, one.start) for one in found])
    if found and not found[0].simple:
        where = f"line {line_of(text, found[0].start)}"
        hint = f"write {name}=VALUE there"
        raise EditRefused(f"{where} sets an array, or adds to what is there", hint=hint)
    expected = [(one.name, one.spelled) for one in before]
    if found:
        spelled = _word(value, found[0].spelled)
        result = replaced(text, found[0].start, found[0].end, spelled)
        expected[before.index(found[0])] = (name, spelled)
    else:
        spelled = _word(value, "")
        entry = f"{before[-1].export if before else export}{name}={spelled}"
        result = edited(text, [appended(text, len(text), entry)], before=None, after=spelled)
        expected.append((name, spelled))
    prove(lambda: [(one.name, one.spelled) for one in read(result.text)] == expected, result.line)
    return result


def variable(key: Key) -> str:
    """The name ``key`` gives to an environment variable. EditRefused if it cannot be one."""
    name = ".".join(str(step) for step in key.steps)
    if key.document or not _NAME.fullmatch(name):
        hint = "letters, digits and _, such as PRE_TRAINED"
        raise EditRefused(f"{key.text!r} is not the name of a variable", hint=hint)
    return name


def _word(value: Scalar, old: str) -> str:
    """``value`` as one word of the shell: bare if that is safe, else in single quotes, in double ones last.

    The quotes of ``old``, the text it replaces, are kept where they can hold it.
    """
    mark = old[:1] if old[:1] in {"'", '"'} and old[-1:] == old[:1] and len(old) > 1 else ""
    text = as_spelled(value, old.strip("\"'")) if isinstance(value, bool) else plain(value)
    if _SAFE.fullmatch(text):
        return mark + text + mark
    if "'" not in text:
        return f"'{text}'"
    return '"' + re.sub(r'(["\\$`])', r"\\\1", text) + '"'


def _assignments(text: str) -> list[Assignment]:
    found: list[Assignment] = []
    position = 0
    while position < len(text):
        if (head := _ENTRY.match(text, position)) is not None:
            start, position = _value(text, head.end())
            spelled, export = text[start:position], head["export"] or ""
            found.append(
                Assignment(name=head["name"], start=start, end=position, spelled=spelled, export=export)
            )
        position = next_line(text, position)
    return found


def _value(text: str, at: int) -> tuple[int, int]:
    """Where the value behind the ``=`` before ``at`` starts and ends."""
    if (space := _SPACE.match(text, at)) is None or _EMPTY.match(text, at):
        return at, at
    start = space.end()
    if (quoted := _QUOTED.match(text, start)) and _REST.match(text, quoted.end()):
        return start, quoted.end()
    if quoted is None and text[start] in {"'", '"'}:
        raise EditRefused(f"line {line_of(text, start)}: the quote is not closed", hint="close it")
    bare = _BARE.match(text, start)
    return start, bare.end() if bare else start
