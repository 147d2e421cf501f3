"""One value of a TOML text changed; every other character stays.

Read by ``tomllib`` before and after. A missing key goes behind the last one of its
table; a table that is not there is not invented.
"""

import re
import sys
from collections.abc import Callable
from importlib import import_module

from faultrun.configs.edited import Edited, EditRefused, edited, no_parent, not_a_value, prove, unchanged
from faultrun.configs.toml_tree import Group, Layout, Path, layout
from faultrun.configs.typed import plain, retyped
from faultrun.model.edit import Key, Scalar
from faultrun.text.patch import Patch, appended, line_break, next_line

_BARE = re.compile(r"[A-Za-z0-9_-]+")
_SHORT = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"}
_COMMENT_LINE = re.compile(r"[ \t]*#[^\r\n]*(?:\r\n|\n|\r)?")


def edit(text: str, key: Key, value: Scalar) -> Edited:
    """Set ``key`` to ``value``; EditRefused with the reason where that cannot be done safely."""
    if key.document:
        raise EditRefused("TOML has one document", hint="leave out the number before #")
    before = _load(text)
    found = layout(text)
    leaf = next((leaf for leaf in found.leaves if leaf.path == key.steps), None)
    if leaf is None:
        spelled = _spelled(value, text)
        result = edited(text, [_insertion(text, found, key, spelled)], before=None, after=spelled)
    else:
        spelled = _spelled(retyped(leaf.kind, value), text)
        if _read_alone(spelled) == _read_alone(leaf.spelled):
            return unchanged(text, leaf.start, leaf.spelled)
        patch = Patch(start=leaf.start, end=leaf.end, new=spelled)
        result = edited(text, [patch], before=leaf.spelled, after=spelled)
    expected = _put(before, key.steps, _read_alone(spelled))
    prove(lambda: _load(result.text) == expected, result.line)
    return result


def _insertion(text: str, found: Layout, key: Key, spelled: str) -> Patch:
    *parents, name = key.steps
    parent: Path = tuple(parents)
    _refuse_group(found, key)
    if not isinstance(name, str):
        raise EditRefused(f"{name} is not a position in that list", hint="count from 0: KEY[0]")
    table = next((group for group in found.groups if group.path == parent), None)
    if table is not None:
        return _into_inline(table, f"{_name(name, text)} = {spelled}")
    entry = f"{_name(name, text)} = {spelled}"
    if not parent:
        return _at_top(text, found, entry)
    header = next((header for header in found.headers if header.path == parent), None)
    own = [statement for statement in found.statements if statement.section == parent]
    if header is not None:
        last = own[-1].end if own else header.end
        return appended(text, next_line(text, last), _indent(text, own[-1].start if own else None) + entry)
    dotted = [own for own in found.statements if len(own.section) < len(parent) < len(own.path)]
    dotted = [own for own in dotted if own.path[: len(parent)] == parent]
    if not dotted:
        names = [str(header.path[0]) for header in found.headers]
        raise no_parent(key.text.rpartition(".")[0] or str(parent[0]), list(dict.fromkeys(names)))
    last_dotted = dotted[-1]
    relative = ".".join(_name(str(step), text) for step in parent[len(last_dotted.section) :])
    indent = _indent(text, last_dotted.start)
    return appended(text, next_line(text, last_dotted.end), f"{indent}{relative}.{entry}")


def _refuse_group(found: Layout, key: Key) -> None:
    inside = found.inside(key.steps)
    here = [group for group in found.groups if group.path == key.steps]
    headers = [header for header in found.headers if header.path == key.steps]
    if inside or here or headers:
        depth = len(key.steps)
        names = [f"[{path[depth]}]" if isinstance(path[depth], int) else f".{path[depth]}" for path in inside]
        what = "a list" if names and names[0].startswith("[") else "a table"
        raise not_a_value(what, [key.text + name for name in dict.fromkeys(names)])


def _into_inline(table: Group, entry: str) -> Patch:
    if not table.inline:
        raise EditRefused("it is to stand in a list, which has no keys", hint="name a position: KEY[0]")
    if table.last is None:
        return Patch(start=table.start + 1, end=table.start + 1, new=f" {entry} ")
    return Patch(start=table.last, end=table.last, new=f", {entry}")


def _at_top(text: str, found: Layout, entry: str) -> Patch:
    """Before the first ``[table]`` and the comments above it: behind it, the key would be the table's."""
    own = [statement for statement in found.statements if not statement.section]
    if own:
        return appended(text, next_line(text, own[-1].end), entry)
    if not found.headers:
        return appended(text, len(text), entry)
    lines = text[: found.headers[0].start].splitlines(keepends=True)
    while lines and (_COMMENT_LINE.fullmatch(lines[-1]) or not lines[-1].endswith(("\n", "\r"))):
        lines.pop()
    at = len("".join(lines))
    return Patch(start=at, end=at, new=entry + line_break(text))


def _indent(text: str, start: int | None) -> str:
    if start is None:
        return ""
    line_start = max(text.rfind("\n", 0, start), text.rfind("\r", 0, start)) + 1
    before = text[line_start:start]
    return before if not before.strip() else ""


def _name(name: str, text: str) -> str:
    return name if _BARE.fullmatch(name) else _spelled(name, text)


def _spelled(value: Scalar, text: str) -> str:
    """``value`` as TOML; an all-ASCII file stays all-ASCII."""
    if not isinstance(value, str):
        return plain(value)
    return '"' + "".join(_escaped(character, text.isascii()) for character in value) + '"'


def _escaped(character: str, ascii_only: bool) -> str:
    code = ord(character)
    if character in _SHORT:
        return _SHORT[character]
    if 0x20 <= code < 0x7F or (code >= 0xA0 and not ascii_only):
        return character
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _read_alone(spelled: str) -> object:
    return _load(f"v = {spelled}")["v"]


def _load(text: str) -> dict[str, object]:
    try:
        return _loads()(text, parse_float=lambda digits: ("float", digits))
    except ValueError as error:
        message = str(error)
        if "overwrite" in message:
            raise EditRefused(f"a key is there twice: {message}", hint="leave one of them") from error
        raise EditRefused(message, hint="make it TOML") from error


def _loads() -> "Callable[..., dict[str, object]]":
    """``tomllib``, which Python has since 3.11; ``tomli`` is the same for 3.10."""
    found: Callable[..., dict[str, object]] = import_module(
        "tomllib" if sys.version_info >= (3, 11) else "tomli"
    ).loads
    return found


def _put(tree: object, path: Path, new: object) -> object:
    if not path:
        return new
    step = path[0]
    if isinstance(tree, dict):
        return {**tree, step: _put(tree.get(step), path[1:], new)}
    assert isinstance(tree, list), "a path leads through tables and arrays"
    assert isinstance(step, int), "arrays have positions"
    return [*tree[:step], _put(tree[step], path[1:], new), *tree[step + 1 :]]
