"""One value of a Python configuration changed; every other character stays.

KEY is the name of a value, with as much of what it is nested in as is needed to be
unique: ``restore_path``, ``config.restore_path``, ``Config.train.epochs``, ``stages[0].ckpt``. Values
are found by ``ast`` positions and replaced as text:

* assignments, plain, annotated, to attributes and to items: ``x = 1``, ``cfg.x = 1``, ``cfg["x"] = 1``
* keys of dictionary literals and keyword arguments: ``{"x": 1}``, ``dict(x=1)``
* attributes of classes, and everything of these inside functions

The file is never run. A name that is missing is refused: nothing says where it would belong.
"""

import ast
import re
import warnings
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

from faultrun.configs.editors.edited import (
    Edited,
    EditRefused,
    NoParent,
    not_a_value,
    only_document,
    prove,
    replaced,
    twice,
)
from faultrun.configs.editors.value_types import decimal, retyped
from faultrun.model.edit import Key, Scalar, ScalarKind
from faultrun.text.patch import line_of

_Chain = tuple[str | int, ...]
_KINDS = {kind: ScalarKind(kind.__name__) for kind in (bool, int, float, str)}
_LINE_BREAK = re.compile(r"\r\n|\n|\r")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """A value and the names that lead to it, outermost first; ``shared`` names get it by one assignment."""

    chain: _Chain
    node: ast.expr
    shared: int = 1

    def answers(self, steps: _Chain) -> bool:
        tail = self.chain[len(self.chain) - len(steps) :]
        return len(steps) <= len(self.chain) and [str(name) for name in tail] == [str(step) for step in steps]


def edit(text: str, key: Key, value: Scalar) -> Edited:
    """Set the value that ``key`` names; EditRefused with the reason where that cannot be done safely."""
    if key.document:
        raise only_document("Python")
    tree = _parse(text)
    place = _chosen(text, tree, key)
    start, end = _span(text, place.node)
    old = text[start:end]
    spelled = _spelled(retyped(_kind(place.node) or ScalarKind.NULL, value), old, text)
    new = ast.parse(spelled, mode="eval").body
    result = replaced(text, start, end, old if ast.dump(new) == ast.dump(place.node) else spelled)
    expected = ast.dump(_Swap(place.node, new).visit(tree))
    prove(lambda: ast.dump(_parse(result.text)) == expected, result.line)
    return result


def _chosen(text: str, tree: ast.Module, key: Key) -> _Place:
    places = [place for place in _places(tree.body, ()) if place.answers(key.steps)]
    whole = [place for place in places if len(place.chain) == len(key.steps)]
    literal = [place for place in places if _kind(place.node)]
    same_chain = len({place.chain for place in places}) == 1
    for few in (places, whole, [] if same_chain else literal):
        if len(few) == 1:
            _refuse_unfit(text, few[0], key)
            return few[0]
    if places:
        raise _several(text, places)
    hint = "KEY is an assigned name, a dictionary key, a keyword argument or a class attribute"
    raise NoParent(f"nothing in it is named {key.text}", hint=hint)


def _several(text: str, places: list[_Place]) -> EditRefused:
    lines = [line_of(text, _span(text, place.node)[0]) for place in places]
    chains = list(dict.fromkeys(".".join(str(name) for name in place.chain) for place in places))
    if len(chains) == 1:
        return twice(lines)
    listed = ", ".join(str(line) for line in lines)
    return EditRefused(f"it may mean several values: lines {listed}", hint=f"one of: {', '.join(chains[:5])}")


def _refuse_unfit(text: str, place: _Place, key: Key) -> None:
    if place.shared > 1:
        line = line_of(text, _span(text, place.node)[0])
        hint = "give each name a line of its own"
        raise EditRefused(f"line {line} gives one value to {place.shared} names", hint=hint)
    depth = len(place.chain)
    inner = [found.chain[depth] for found in _inside(place.node, place.chain) if len(found.chain) > depth]
    if inner:
        names = [f"[{name}]" if isinstance(name, int) else f".{name}" for name in dict.fromkeys(inner)]
        what = "a list" if isinstance(inner[0], int) else "a dictionary"
        raise not_a_value(what, [key.text + name for name in names])


def _places(body: list[ast.stmt], outer: _Chain) -> Iterator[_Place]:
    """Every named value of these statements and of all blocks inside them."""
    for statement in body:
        match statement:
            case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
                yield from _places(statement.body, (*outer, statement.name))
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    yield from _named(_target(target), value, outer, shared=len(targets))
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                yield from _named(_target(target), value, outer)
            case ast.Return(value=ast.expr() as value) | ast.Expr(value=value):
                yield from _inside(value, outer)
            case _:
                yield from _nested(statement, outer)


def _nested(statement: ast.stmt, outer: _Chain) -> Iterator[_Place]:
    """The statements of an ``if``, ``for``, ``with``, ``try``: these add no name."""
    for child in ast.iter_child_nodes(statement):
        if isinstance(child, ast.stmt):
            yield from _places([child], outer)
        elif isinstance(child, ast.ExceptHandler | ast.match_case):
            yield from _places(child.body, outer)


def _named(name: _Chain, value: ast.expr, outer: _Chain, *, shared: int = 1) -> Iterator[_Place]:
    if name:
        yield _Place(chain=(*outer, *name), node=value, shared=shared)
    yield from _inside(value, (*outer, *name))


def _inside(value: ast.expr, outer: _Chain) -> Iterator[_Place]:
    """What an expression names: keys of its dictionaries, its keyword arguments, positions of its lists."""
    match value:
        case ast.Dict(keys=keys, values=values):
            for key, entry in zip(keys, values, strict=True):
                name = key.value if isinstance(key, ast.Constant) else None
                yield from _named((name,) if isinstance(name, str | int) else (), entry, outer)
        case ast.List(elts=items) | ast.Tuple(elts=items):
            for at, item in enumerate(items):
                yield from _named((at,), item, outer)
        case ast.Call(func=function, args=arguments, keywords=keywords):
            within = outer or _target(function)
            for argument in arguments:
                yield from _inside(argument, within)
            for keyword in keywords:
                yield from _named((keyword.arg,) if keyword.arg else (), keyword.value, within)


def _target(target: ast.expr) -> _Chain:
    """The names of ``a``, ``a.b`` and ``a["b"]``; nothing for what cannot be named, such as ``a[i]``."""
    match target:
        case ast.Name(id=name):
            return (name,)
        case ast.Attribute(value=inner, attr=name):
            before = _target(inner)
            return (*before, name) if before else ()
        case ast.Subscript(value=inner, slice=ast.Constant(value=str() | int() as name)):
            before = _target(inner)
            return (*before, name) if before else ()
        case _:
            return ()


def _kind(node: ast.expr) -> ScalarKind | None:
    """The type of a plain literal; None for any other expression."""
    with suppress(ValueError):
        value = ast.literal_eval(node)
        return _KINDS.get(
            type(value), None if isinstance(value, list | tuple | dict | set) else ScalarKind.NULL
        )
    return None


def _spelled(value: Scalar, old: str, text: str) -> str:
    """``value`` as a Python literal, in the quotes of ``old``; an all-ASCII file stays all-ASCII."""
    if isinstance(value, float):
        return decimal(value)
    if not isinstance(value, str):
        return repr(value)
    body = ascii(value) if text.isascii() else repr(value)
    mark = "'" if old.startswith("'") else '"'
    return body if body[0] == mark or mark in value else mark + body[1:-1].replace("\\'", "'") + mark


def _span(text: str, node: ast.expr) -> tuple[int, int]:
    """Characters of ``node``: ast counts lines, and UTF-8 bytes within them."""
    starts = [0, *(found.end() for found in _LINE_BREAK.finditer(text))]
    assert node.end_lineno is not None, "parsed nodes have an end"
    assert node.end_col_offset is not None, "parsed nodes have an end"
    return (
        _position(text, starts[node.lineno - 1], node.col_offset),
        _position(text, starts[node.end_lineno - 1], node.end_col_offset),
    )


def _position(text: str, line_start: int, offset: int) -> int:
    return line_start + len(text[line_start : line_start + offset].encode()[:offset].decode())


def _parse(text: str) -> ast.Module:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an odd escape in the user's file is not ours to report
            return ast.parse(text)
    except (SyntaxError, ValueError, MemoryError) as error:
        where = f"line {error.lineno}: {error.msg}" if isinstance(error, SyntaxError) else str(error)
        raise EditRefused(where, hint="make it Python that this interpreter reads") from error


class _Swap(ast.NodeTransformer):
    """Puts one node in the place of another."""

    def __init__(self, old: ast.AST, new: ast.AST) -> None:
        self._old, self._new = old, new

    def visit(self, node: ast.AST) -> ast.AST:
        """Return the new node in place of the old one; visit the children of all others."""
        return self._new if node is self._old else super().generic_visit(node)
