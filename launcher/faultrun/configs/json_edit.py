"""One value of a JSON text changed (RFC 8259); every other character stays.

Read by ``json`` itself before and after. A missing key is put behind the last one
of its object, laid out as its neighbours are. Comments are no JSON and are refused.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

from faultrun.configs.edited import (
    Edited,
    EditRefused,
    edited,
    no_parent,
    no_position,
    not_a_value,
    only_document,
    prove,
    replaced,
    twice,
)
from faultrun.configs.typed import plain, retyped
from faultrun.model.edit import Key, Scalar, ScalarKind
from faultrun.text.patch import Patch, line_of

_TOKEN = re.compile(r'[{}\[\],:]|"(?:\\.|[^"\\])*"|[^\s{}\[\],:"]+')
_KINDS = {'"': ScalarKind.STR, "t": ScalarKind.BOOL, "f": ScalarKind.BOOL, "n": ScalarKind.NULL}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Node:
    """A value, object or array; each child of an object with its name and where that is written."""

    start: int
    end: int
    spelled: str
    children: tuple[tuple[str, int, "_Node"], ...] = ()


def edit(text: str, key: Key, value: Scalar) -> Edited:
    """Set ``key`` to ``value``; EditRefused with the reason where that cannot be done safely."""
    if key.document:
        raise only_document("JSON")
    before = _tokens(text)
    found = _find(text, _node(_TOKEN.finditer(text)), key)
    at = _TOKEN.findall(text, 0, found.start)
    if found.spelled == "{":
        spelled = _spelled(value, text)
        patch = _insertion(text, found, str(key.steps[-1]), spelled)
        result = edited(text, [patch], before=None, after=spelled)
        new = _TOKEN.findall(patch.new)
        at = _TOKEN.findall(text, 0, patch.start)
        expected = [*at, *new, *before[len(at) :]]
    else:
        spelled = _spelled(retyped(_kind(found.spelled), value), text)
        same = _meant(spelled) == _meant(found.spelled)
        result = replaced(text, found.start, found.end, found.spelled if same else spelled)
        expected = [*at, result.after, *before[len(at) + 1 :]]
    prove(lambda: _tokens(result.text) == expected, result.line)
    return result


def _kind(spelled: str) -> ScalarKind:
    number = ScalarKind.INT if spelled.lstrip("-").isdecimal() else ScalarKind.FLOAT
    return _KINDS.get(spelled[0], number)


def _meant(spelled: str) -> str:
    """The text of a string; numbers as they are spelled, 1.0 apart from 1.00."""
    return f'"{json.loads(spelled)}' if spelled.startswith('"') else spelled


def _find(text: str, node: _Node, key: Key) -> _Node:
    """The value ``key`` names, or the object that lacks it."""
    for depth, step in enumerate(key.steps):
        names = [name for name, _, _ in node.children]
        match node.spelled:
            case "{":
                found = [at for at, name in enumerate(names) if name == str(step)]
                if len(found) > 1:
                    raise twice([line_of(text, node.children[at][1]) for at in found])
                if not found and depth == len(key.steps) - 1:
                    return node
                if not found:
                    raise no_parent(str(step), names)
                node = node.children[found[0]][2]
            case "[":
                if not str(step).isdecimal() or int(step) >= len(names):
                    raise no_position(step, len(names))
                node = node.children[int(step)][2]
            case _:
                where = f"line {line_of(text, node.start)}"
                raise EditRefused(f"{where} holds a value, not {step!r}", hint="shorten the KEY")
    if node.spelled == "{":
        raise not_a_value("an object", [f"{key.text}.{name}" for name, _, _ in node.children])
    if node.spelled == "[":
        raise not_a_value("a list", [f"{key.text}[{at}]" for at in range(len(node.children))])
    return node


def _insertion(text: str, node: _Node, name: str, spelled: str) -> Patch:
    key = _spelled(name, text)
    if not node.children:
        return Patch(start=node.start + 1, end=node.start + 1, new=f"{key}: {spelled}")
    _, start, value = node.children[-1]
    written_key = _TOKEN.match(text, start)
    colon = text[written_key.end() if written_key else start : value.start]
    gap = text[node.children[-2][2].end + 1 if len(node.children) > 1 else node.start + 1 : start]
    comma = "," + gap if "\n" in gap or "\r" in gap else ", "
    return Patch(start=value.end, end=value.end, new=f"{comma}{key}{colon}{spelled}")


def _spelled(value: Scalar, text: str) -> str:
    """``value`` as JSON; an all-ASCII file stays all-ASCII."""
    return json.dumps(value, ensure_ascii=text.isascii()) if isinstance(value, str) else plain(value)


def _node(tokens: "Iterator[re.Match[str]]", token: "re.Match[str] | None" = None) -> _Node:
    """Where everything stands, from ``token`` on, in a text that ``json`` has already accepted."""
    token = token or next(tokens)
    children: list[tuple[str, int, _Node]] = []
    end = token
    if token.group() in {"{", "["}:
        while (end := next(tokens)).group() not in {"}", "]"}:
            if end.group() == ",":
                continue
            if token.group() == "[":
                children.append(("", end.start(), _node(tokens, end)))
            else:
                next(tokens)
                children.append((str(json.loads(end.group())), end.start(), _node(tokens)))
    return _Node(start=token.start(), end=end.end(), spelled=token.group(), children=tuple(children))


def _tokens(text: str) -> list[str]:
    """What a text says, but for its layout. EditRefused if it is not JSON."""
    try:
        json.loads(text)
    except json.JSONDecodeError as error:
        because = f"line {error.lineno}: {error.msg}"
        raise EditRefused(because, hint="make it JSON (no comments, no last comma)") from error
    return _TOKEN.findall(text)
