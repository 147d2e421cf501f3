"""One value of a JSON text changed (RFC 8259); every other character stays.

Read by ``json`` itself before and after. A missing key is put behind the last one
of its object, laid out as its neighbours are. Comments are no JSON and are refused.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import replace

from faultrun.configs.editors.edited import (
    Edited,
    EditRefused,
    edited,
    find,
    only_document,
    prove,
    put,
    replaced,
)
from faultrun.configs.editors.value_types import plain, retyped
from faultrun.model.edit import Key, Scalar
from faultrun.text.patch import Patch
from faultrun.text.yaml_tree import TAG_PREFIX, MappingNode, Node, ScalarNode, SequenceNode

_TOKEN = re.compile(r'[{}\[\],:]|"(?:\\.|[^"\\])*"|[^\s{}\[\],:"]+')
_TAGS = {'"': "str", "t": "bool", "f": "bool", "n": "null"}


def edit(text: str, key: Key, value: Scalar) -> Edited:
    """Set ``key`` to ``value``; EditRefused with the reason where that cannot be done safely."""
    if key.document:
        raise only_document("JSON")
    trail, node = find(text, _read(text), key, mapping="an object")
    if isinstance(node, ScalarNode):
        spelled = _spelled(retyped(node.kind, value), text)
        new = _scalar(spelled)
        result = replaced(text, node.start, node.end, text[node.start : node.end] if new == node else spelled)
        expected = put(trail, new)
    else:
        parent, _ = trail.pop()
        assert isinstance(parent, MappingNode), "nothing else lacks a name"
        name, spelled = _spelled(str(key.steps[-1]), text), _spelled(value, text)
        result = edited(text, [_insertion(text, parent, name, spelled)], before=None, after=spelled)
        expected = put(trail, replace(parent, pairs=(*parent.pairs, (_scalar(name), _scalar(spelled)))))
    prove(lambda: _read(result.text) == expected, result.line)
    return result


def _insertion(text: str, parent: MappingNode, name: str, spelled: str) -> Patch:
    if not parent.pairs:
        return Patch(start=parent.start + 1, end=parent.start + 1, new=f"{name}: {spelled}")
    key, value = parent.pairs[-1]
    gap_start = parent.pairs[-2][1].end if len(parent.pairs) > 1 else parent.start
    gap = text[gap_start + 1 : key.start]
    comma = "," + gap if "\n" in gap or "\r" in gap else ", "
    return Patch(start=value.end, end=value.end, new=f"{comma}{name}{text[key.end : value.start]}{spelled}")


def _spelled(value: Scalar, text: str) -> str:
    """``value`` as JSON; an all-ASCII file stays all-ASCII."""
    return json.dumps(value, ensure_ascii=text.isascii()) if isinstance(value, str) else plain(value)


def _read(text: str) -> Node:
    """What a text says and where, numbers as they are spelled. EditRefused if it is not JSON."""
    try:
        json.loads(text)
    except json.JSONDecodeError as error:
        because = f"line {error.lineno}: {error.msg}"
        raise EditRefused(because, hint="make it JSON (no comments, no last comma)") from error
    tokens = _TOKEN.finditer(text)
    return _node(next(tokens), tokens)


def _node(token: "re.Match[str]", rest: "Iterator[re.Match[str]]") -> Node:
    if token.group() not in {"{", "["}:
        return replace(_scalar(token.group()), start=token.start(), end=token.end())
    found: list[Node] = []
    while (inner := next(rest)).group() not in {"}", "]"}:
        if inner.group() not in {",", ":"}:
            found.append(_node(inner, rest))
    if token.group() == "[":
        return SequenceNode(items=tuple(found), start=token.start(), end=inner.end())
    pairs = tuple(zip(found[::2], found[1::2], strict=True))
    return MappingNode(pairs=pairs, start=token.start(), end=inner.end())


def _scalar(spelled: str) -> ScalarNode:
    number = "int" if spelled.lstrip("-").isdecimal() else "float"
    value = str(json.loads(spelled)) if spelled.startswith('"') else spelled
    return ScalarNode(tag=TAG_PREFIX + _TAGS.get(spelled[0], number), value=value)
