"""One value of a TOML text changed; every other character stays.

Read by ``tomllib`` before and after. A missing key goes behind the last one of its
table; a table that is not there is not invented.
"""

import re
import sys
from collections.abc import Callable
from importlib import import_module

from faultrun.configs.editors.edited import (
    Edited,
    EditRefused,
    edited,
    no_parent,
    not_a_value,
    only_document,
    prove,
    replaced,
)
from faultrun.configs.editors.toml_positions import KeyPath, Places, at
from faultrun.configs.editors.value_types import plain, retyped
from faultrun.model.edit import Key, Scalar, ScalarKind
from faultrun.text.patch import Patch, appended, line_break, next_line
from faultrun.text.yaml_scalar import quoted

_BARE = re.compile(r"[A-Za-z0-9_-]+")
_FIRST_HEADER = re.compile(r"^(?:[ \t]*#[^\n]*\n)*[ \t]*\[", re.MULTILINE)


def edit(text: str, key: Key, value: Scalar) -> Edited:
    """Set ``key`` to ``value``; EditRefused with the reason where that cannot be done safely."""
    if key.document:
        raise only_document("TOML")
    before = _load(text)
    if (old := at(before, key.steps)) is None:
        spelled = _spelled(value, text)
        result = edited(text, [_insertion(text, before, key, spelled)], before=None, after=spelled)
    else:
        _refuse_group(key, old)
        spelled = _spelled(retyped(_kind(old), value), text)
        place = Places(text, _load).of(key.steps)
        assert place is not None, "every value has a place"
        was = text[place.start : place.end]
        same = _read_alone(spelled) == old
        result = replaced(text, place.start, place.end, was if same else spelled)
    at(before, key.steps[:-1])[key.steps[-1]] = _read_alone(spelled)
    prove(lambda: _load(result.text) == before, result.line)
    return result


def _refuse_group(key: Key, old: object) -> None:
    if isinstance(old, dict):
        raise not_a_value("a table", [f"{key.text}.{name}" for name in old])
    if isinstance(old, list):
        raise not_a_value("a list", [f"{key.text}[{at}]" for at in range(len(old))])


def _insertion(text: str, before: dict[str, object], key: Key, spelled: str) -> Patch:
    *steps, name = key.steps
    parent = tuple(steps)
    if not isinstance(name, str):
        raise EditRefused(f"{name} is not a position in that list", hint="count from 0: KEY[0]")
    holder = at(before, parent)
    if isinstance(holder, list):
        raise EditRefused("it is to stand in a list, which has no keys", hint="name a position: KEY[0]")
    patch = _into_table(text, parent, name, spelled) if isinstance(holder, dict) else None
    if patch is not None:
        return patch
    tables = [name for name, value in before.items() if isinstance(value, dict | list)]
    raise no_parent(key.text.rpartition(".")[0] or str(key.steps[0]), tables)


def _into_table(text: str, parent: KeyPath, name: str, spelled: str) -> Patch | None:
    """Behind the last value of the table; None for one that only other tables' headers name."""
    places = Places(text, _load)
    table, found = places.of(parent), places.last_statement(parent)
    entry = f"{_name(name, text)} = {spelled}"
    if table is not None and table.opening == "{":
        if table.last is None:
            return Patch(start=table.start + 1, end=table.start + 1, new=f" {entry} ")
        return Patch(start=table.last, end=table.last, new=f", {entry}")
    if found is not None:
        statement, depth = found
        dotted = "".join(_name(str(step), text) + "." for step in parent[depth:])
        indent = _indent(text, statement.start)
        return appended(text, next_line(text, statement.end), f"{indent}{dotted}{entry}")
    if not parent:
        return _at_top(text, entry)
    return None if table is None else appended(text, next_line(text, table.end), entry)


def _indent(text: str, start: int) -> str:
    before = text[text.rfind("\n", 0, start) + 1 : start]
    return before if not before.strip() else ""


def _at_top(text: str, entry: str) -> Patch:
    """Before the first ``[table]`` and the comments above it: behind it, the key would be the table's."""
    if (header := _FIRST_HEADER.search(text)) is None:
        return appended(text, len(text), entry)
    return Patch(start=header.start(), end=header.start(), new=entry + line_break(text))


def _name(name: str, text: str) -> str:
    return name if _BARE.fullmatch(name) else _spelled(name, text)


def _spelled(value: Scalar, text: str) -> str:
    """``value`` as TOML; an all-ASCII file stays all-ASCII."""
    return quoted(value, text) if isinstance(value, str) else plain(value)


def _kind(old: object) -> ScalarKind:
    """Its type; dates count as strings."""
    kinds = {bool: ScalarKind.BOOL, int: ScalarKind.INT, tuple: ScalarKind.FLOAT}
    return kinds.get(type(old), ScalarKind.STR)


def _read_alone(spelled: str) -> object:
    return _load(f"v = {spelled}")["v"]


def _load(text: str) -> dict[str, object]:
    """What ``tomllib`` reads, with floats as ("float", digits)."""
    module = import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    loads: Callable[..., dict[str, object]] = module.loads
    try:
        return loads(text, parse_float=lambda digits: ("float", digits))
    except ValueError as error:
        message = str(error)
        if "overwrite" in message:
            raise EditRefused(f"a key is there twice: {message}", hint="leave one of them") from error
        raise EditRefused(message, hint="make it TOML") from error
