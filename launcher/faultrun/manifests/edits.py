"""Patches: a value replaced, an entry put into a mapping, lines put before or after another."""

from faultrun.text.patch import Patch, appended, line_break, line_end, next_line
from faultrun.text.yaml_scalar import quoted, spelled
from faultrun.text.yaml_tree import MappingNode, ScalarNode


def replaced(old: ScalarNode, value: str | int) -> Patch:
    """Write ``value`` in the place of a scalar, in the old one's quotes if it has double ones."""
    text = quoted(value, value) if old.style == '"' and isinstance(value, str) else spelled(value)
    return Patch(start=old.start, end=old.end, new=text)


def first_entry(text: str, parent: MappingNode, entry: str) -> Patch | None:
    """Put one-line ``entry`` into a mapping, before its first pair. None if it has no pair of its own."""
    if not parent.entries or parent.entries[0][0].start < parent.start:
        return None
    if parent.flow:
        return Patch(start=parent.start + 1, end=parent.start + 1, new=f"{entry}, ")
    return before(text, parent.entries[0][0], entry)


def before(text: str, key: ScalarNode, entry: str) -> Patch:
    """Put the lines of ``entry`` before the pair of ``key``, at its indentation."""
    indented = entry.replace("\n", line_break(text) + " " * key.column)
    return Patch(start=key.start, end=key.start, new=indented + line_break(text) + " " * key.column)


def after_line(text: str, value: ScalarNode, column: int, entry: str) -> Patch | None:
    """Put ``entry`` below the line of a one-line scalar. None if the scalar goes over several lines."""
    if value.style in {"|", ">"} or line_end(text, value.start) < value.end:
        return None
    indented = " " * column + entry.replace("\n", line_break(text) + " " * column)
    return appended(text, next_line(text, value.end), indented)


def inside(text: str, value: ScalarNode, position: int, piece: str) -> Patch | None:
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


def _in_block(text: str, value: ScalarNode, position: int) -> int:
    """Where ``value[position]`` of a literal block stands in the text, if nothing indents it further."""
    at = value.start
    for _ in range(1 + value.value.count("\n", 0, position)):
        at = next_line(text, at)
    while text[at : at + 1] == " ":
        at += 1
    return at + position - (value.value.rfind("\n", 0, position) + 1)
