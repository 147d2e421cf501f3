"""One value of a JSON text changed (RFC 8259); every other character stays.

Read by ``json`` itself before and after. A missing key is put behind the last one
of its object, laid out as its neighbours are. Comments are no JSON and are refused.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from faultrun.configs.edited import (
    Edited,
    EditRefused,
    edited,
    no_parent,
    not_a_value,
    prove,
    twice,
    unchanged,
)
from faultrun.configs.typed import plain, retyped
from faultrun.model.edit import Key, Scalar, ScalarKind
from faultrun.text.patch import Patch, line_of

_TOKEN = re.compile(r'[{}\[\],:]|"(?:\\.|[^"\\])*"|[^\s{}\[\],:"]+')


@dataclass(frozen=True, slots=True, kw_only=True)
class _Value:
    start: int
    end: int
    spelled: str

    @property
    def kind(self) -> ScalarKind:
        match self.spelled[:1]:
            case '"':
                return ScalarKind.STR
            case "t" | "f":
                return ScalarKind.BOOL
            case "n":
                return ScalarKind.NULL
        return ScalarKind.INT if self.spelled.lstrip("-").isdecimal() else ScalarKind.FLOAT


@dataclass(frozen=True, slots=True, kw_only=True)
class _Member:
    name: str
    start: int
    node: "_Node"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Object:
    start: int
    end: int
    members: tuple[_Member, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Array:
    start: int
    end: int
    items: tuple["_Node", ...]


_Node = _Value | _Object | _Array
_Trail = list[int]
"""Positions taken from the root: of members in objects, of items in arrays."""


class _Pairs(tuple[tuple[str, object], ...]):
    """An object as ``json`` read it, in order and with duplicates: not equal to a list of the same."""

    __slots__ = ()


def edit(text: str, key: Key, value: Scalar) -> Edited:
    """Set ``key`` to ``value``; EditRefused with the reason where that cannot be done safely."""
    if key.document:
        raise EditRefused("JSON has one document", hint="leave out the number before #")
    before = _load(text)
    trail, node = _find(text, _Spans(text).node(), key)
    if isinstance(node, _Object):
        name = str(key.steps[-1])
        spelled = _spelled(value, text)
        result = edited(text, [_insertion(text, node, name, spelled)], before=None, after=spelled)
        expected = _with_member(before, trail, (name, _exact(spelled)))
    else:
        spelled = _spelled(retyped(node.kind, value), text)
        if _exact(spelled) == _exact(node.spelled):
            return unchanged(text, node.start, node.spelled)
        patch = Patch(start=node.start, end=node.end, new=spelled)
        result = edited(text, [patch], before=node.spelled, after=spelled)
        expected = _put(before, trail, _exact(spelled))
    prove(lambda: _load(result.text) == expected, result.line)
    return result


def _find(text: str, root: _Node, key: Key) -> tuple[_Trail, _Value | _Object]:
    """The value ``key`` names, or the object that lacks it; and the way there."""
    node = root
    trail: _Trail = []
    for depth, step in enumerate(key.steps):
        match node:
            case _Object():
                found = [at for at, member in enumerate(node.members) if member.name == str(step)]
                if len(found) > 1:
                    raise twice([line_of(text, node.members[at].start) for at in found])
                if not found and depth == len(key.steps) - 1:
                    return trail, node
                if not found:
                    raise no_parent(str(step), [member.name for member in node.members])
                trail.append(found[0])
                node = node.members[found[0]].node
            case _Array():
                if not str(step).isdecimal() or int(step) >= len(node.items):
                    count = len(node.items)
                    raise EditRefused(
                        f"{step!r} is not a position in a list of {count}", hint="count from 0: KEY[0]"
                    )
                trail.append(int(step))
                node = node.items[int(step)]
            case _Value():
                raise EditRefused(
                    f"line {line_of(text, node.start)} holds a value, not {step!r}", hint="shorten the KEY"
                )
    match node:
        case _Object():
            raise not_a_value("an object", [f"{key.text}.{member.name}" for member in node.members])
        case _Array():
            raise not_a_value("a list", [f"{key.text}[{at}]" for at in range(len(node.items))])
        case _Value():
            return trail, node


def _insertion(text: str, node: _Object, name: str, spelled: str) -> Patch:
    key = _spelled(name, text)
    if not node.members:
        return Patch(start=node.start + 1, end=node.start + 1, new=f"{key}: {spelled}")
    last = node.members[-1]
    written_key = _TOKEN.match(text, last.start)
    colon = text[written_key.end() if written_key else last.start : last.node.start]
    gap_start = node.members[-2].node.end if len(node.members) > 1 else node.start
    gap = text[gap_start + 1 : last.start]
    comma = "," + gap if "\n" in gap or "\r" in gap else ", "
    return Patch(start=last.node.end, end=last.node.end, new=f"{comma}{key}{colon}{spelled}")


def _spelled(value: Scalar, text: str) -> str:
    """``value`` as JSON; an all-ASCII file stays all-ASCII."""
    return json.dumps(value, ensure_ascii=text.isascii()) if isinstance(value, str) else plain(value)


class _Spans:
    """Positions of everything in a text that ``json`` has already accepted."""

    def __init__(self, text: str) -> None:
        self._tokens = list(_TOKEN.finditer(text))
        self._next = 0

    def node(self) -> _Node:
        token = self._take()
        match token.group():
            case "{":
                members: list[_Member] = []
                while (name := self._take()).group() != "}":
                    if name.group() != ",":
                        self._take()
                        read = str(json.loads(name.group()))
                        members.append(_Member(name=read, start=name.start(), node=self.node()))
                return _Object(start=token.start(), end=name.end(), members=tuple(members))
            case "[":
                items: list[_Node] = []
                while (close := self._tokens[self._next]).group() != "]":
                    if close.group() == ",":
                        self._take()
                    else:
                        items.append(self.node())
                return _Array(start=token.start(), end=self._take().end(), items=tuple(items))
            case spelled:
                return _Value(start=token.start(), end=token.end(), spelled=spelled)

    def _take(self) -> "re.Match[str]":
        self._next += 1
        return self._tokens[self._next - 1]


def _load(text: str) -> object:
    try:
        return _exact(text)
    except json.JSONDecodeError as error:
        raise EditRefused(
            f"line {error.lineno}: {error.msg}", hint="make it JSON (no comments, no last comma)"
        ) from error


def _exact(text: str) -> object:
    """The value of ``text`` with its numbers as they are spelled, 1.0 apart from 1.00."""
    return json.loads(
        text,
        object_pairs_hook=_Pairs,
        parse_int=lambda digits: ("int", digits),
        parse_float=lambda digits: ("float", digits),
        parse_constant=lambda name: ("constant", name),
    )


def _put(tree: object, trail: _Trail, new: object) -> object:
    if not trail:
        return new
    at = trail[0]
    if isinstance(tree, _Pairs):
        name, child = tree[at]
        return _Pairs((*tree[:at], (name, _put(child, trail[1:], new)), *tree[at + 1 :]))
    items = cast("list[object]", tree)
    return [*items[:at], _put(items[at], trail[1:], new), *items[at + 1 :]]


def _with_member(tree: object, trail: _Trail, member: tuple[str, object]) -> object:
    holder = tree
    for at in trail:
        inner = cast("Sequence[object]", holder)[at]
        holder = cast("tuple[str, object]", inner)[1] if isinstance(holder, _Pairs) else inner
    return _put(tree, trail, _Pairs((*cast("_Pairs", holder), member)))
