"""Patches: a value replaced, an entry put into a mapping, lines put before or after another."""

import json
import re

from faultrun.manifests.finding import Patch
from faultrun.manifests.tree import Scalar, Table, Type, type_of

_UNPRINTABLE = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")
_BREAK = re.compile(r"\r\n|\n|\r")
_PLAIN = re.compile(r"(?:--?(?=[A-Za-z]))?[A-Za-z0-9_./$][A-Za-z0-9_./$(){}=@%+:,\- ]*")


def spelled(value: str | int | bool) -> str:
    """``value`` as YAML that every reader takes for the same string, number or boolean.

    A string is written plainly where nobody can mistake it, else as JSON does,
    which is YAML too.
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    plain = (
        _PLAIN.fullmatch(value)
        and type_of(value) is Type.TEXT
        and not value.endswith((" ", ":"))
        and ": " not in value
        and not re.match(r"[0-9]{4}-[0-9]|[0-9_]+:[0-9]|-+$", value)
    )
    return value if plain else in_quotes(value)


def in_quotes(value: str) -> str:
    """``value`` in double quotes, as JSON and YAML both read it."""
    return _UNPRINTABLE.sub(lambda match: f"\\u{ord(match[0]):04x}", json.dumps(value, ensure_ascii=False))


def quoted(old: Scalar) -> Patch:
    """Put quotes around a scalar as it is written."""
    return Patch(start=old.start, end=old.end, new=in_quotes(old.value))


def bare(old: Scalar) -> Patch:
    """Write a scalar without its quotes."""
    return Patch(start=old.start, end=old.end, new=old.value)


def replaced(old: Scalar, value: str | int) -> Patch:
    """Write ``value`` in the place of a scalar, in the old one's quotes if it has double ones."""
    text = in_quotes(value) if old.style == '"' and isinstance(value, str) else spelled(value)
    return Patch(start=old.start, end=old.end, new=text)


def first_entry(text: str, parent: Table, entry: str) -> Patch | None:
    """Put one-line ``entry`` into a mapping, before its first pair. None if it has no pair of its own."""
    if not parent.pairs or parent.pairs[0][0].start < parent.start:
        return None
    if parent.flow:
        return Patch(start=parent.start + 1, end=parent.start + 1, new=f"{entry}, ")
    return before(text, parent.pairs[0][0], entry)


def before(text: str, key: Scalar, entry: str) -> Patch:
    """Put the lines of ``entry`` before the pair of ``key``, at its indentation."""
    indented = entry.replace("\n", _line_break(text) + " " * key.column)
    return Patch(start=key.start, end=key.start, new=indented + _line_break(text) + " " * key.column)


def after_line(text: str, value: Scalar, column: int, entry: str) -> Patch | None:
    """Put ``entry`` below the line of a one-line scalar. None if the scalar goes over several lines."""
    if value.style in {"|", ">"} or _BREAK.search(text, value.start, value.end):
        return None
    newline = _line_break(text)
    indented = " " * column + entry.replace("\n", newline + " " * column)
    found = _BREAK.search(text, value.end)
    if found is None:
        return Patch(start=len(text), end=len(text), new=newline + indented)
    return Patch(start=found.end(), end=found.end(), new=indented + newline)


def inside(text: str, value: Scalar, position: int, piece: str) -> Patch | None:
    """Put ``piece`` at ``position`` of a scalar's value; None where value and text differ in front of it.

    Escapes and folding make the two differ.
    """
    if value.style == "|":
        at = _in_block(text, value, position)
    else:
        at = value.start + bool(value.style) + position
        if text[value.start + bool(value.style) : at] != value.value[:position]:
            return None
    rest = value.value[position:].partition("\n")[0]
    return Patch(start=at, end=at, new=piece) if text.startswith(rest, at) else None


def _in_block(text: str, value: Scalar, position: int) -> int:
    """Where ``value[position]`` of a literal block stands in the text, if nothing indents it further."""
    at = value.start
    for _ in range(1 + value.value.count("\n", 0, position)):
        found = _BREAK.search(text, at)
        at = found.end() if found else len(text)
    while text[at : at + 1] == " ":
        at += 1
    return at + position - (value.value.rfind("\n", 0, position) + 1)


def _line_break(text: str) -> str:
    found = _BREAK.search(text)
    return found.group() if found else "\n"
