"""A YAML stream as nodes that know where they stand, typed as Kubernetes' own reader types them.

Kubernetes reads YAML 1.1 with Go's library: ``off`` and ``yes`` are booleans, ``1e3`` is a number,
a date is a text. Aliases and ``<<`` are followed.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

import yaml

_MERGE = "<<"
_NULLS = frozenset({"", "~", "null", "Null", "NULL"})
_WORDS = ("y", "n", "yes", "no", "on", "off", "true", "false")
_BOOLEANS = frozenset(form for word in _WORDS for form in (word, word.capitalize(), word.upper()))
_INTEGER = re.compile(r"[-+]?(0b[01_]+|0o?[0-7_]+|0x[0-9a-fA-F_]+|[0-9][0-9_]*)")
_FLOAT = re.compile(
    r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"
)
_DECIMAL = re.compile(r"[-+]?[0-9]{1,18}")


class Unreadable(Exception):
    """The text is not YAML; ``line`` is 1-based."""

    def __init__(self, because: str, line: int) -> None:
        super().__init__(because)
        self.because = because
        self.line = line


class Type(Enum):
    """What the API server is sent for a scalar."""

    TEXT = "a string"
    BOOLEAN = "a boolean"
    INTEGER = "a whole number"
    FLOAT = "a number"
    NULL = "nothing"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scalar:
    """One value. ``text[start:end]`` is how it is written, quotes included; ``line`` is 1-based.

    ``column`` is 0-based. ``style`` is YAML's indicator (quote, ``|`` or ``>``), empty for a plain one.
    """

    value: str
    type: Type
    style: str
    start: int
    end: int
    line: int
    column: int

    @property
    def number(self) -> int | None:
        """The value as a decimal whole number; None if it is none, quoted or not."""
        return int(self.value) if _DECIMAL.fullmatch(self.value) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A mapping in the file's order; ``doubles`` are keys that are there again, with the first place."""

    pairs: tuple[tuple[Scalar, "Node"], ...]
    flow: bool
    start: int
    line: int
    doubles: tuple[tuple[Scalar, Scalar], ...]

    def get(self, name: str) -> "Node | None":
        """The value of ``name``; the last one where it is there twice."""
        return next((value for key, value in reversed(self.pairs) if key.value == name), None)

    def key(self, name: str) -> Scalar | None:
        """Where ``name`` itself is written."""
        return next((key for key, _ in reversed(self.pairs) if key.value == name), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Items:
    """A sequence."""

    nodes: tuple["Node", ...]
    line: int


Node = Scalar | Table | Items


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """The documents that are not empty. ``aliases``: some value stands for two places."""

    roots: tuple[Node, ...]
    aliases: bool


def read(text: str) -> Stream:
    """Parse a stream. Unreadable if it is not YAML."""
    try:
        aliases = "*" in text and any(isinstance(token, yaml.AliasToken) for token in yaml.scan(text))
        roots = list(yaml.compose_all(text, Loader=yaml.SafeLoader))
        return Stream(roots=tuple(_Reader().roots(roots)), aliases=aliases)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        because = " ".join(str(error.problem or error.context).split())
        raise Unreadable(because, mark.line + 1 if mark else 1) from None
    except yaml.YAMLError as error:
        raise Unreadable(" ".join(str(error).split()), 1) from None
    except RecursionError:
        raise Unreadable("it is nested too deeply, or contains itself", 1) from None


def dig(node: "Node | None", *path: str | int) -> "Node | None":
    """Follow names and positions; None as soon as one is not there."""
    for step in path:
        match node, step:
            case Table(), str():
                node = node.get(step)
            case Items(), int() if step < len(node.nodes):
                node = node.nodes[step]
            case _:
                return None
    return node


def scalar(node: "Node | None", *path: str | int) -> Scalar | None:
    """The scalar that ``path`` leads to; None if there is none, or a null."""
    found = dig(node, *path)
    return found if isinstance(found, Scalar) and found.type is not Type.NULL else None


def text_at(node: "Node | None", *path: str | int) -> str:
    """The text that ``path`` leads to; empty if there is none."""
    found = scalar(node, *path)
    return found.value if found else ""


def table(node: "Node | None", *path: str | int) -> Table | None:
    """The mapping that ``path`` leads to."""
    found = dig(node, *path)
    return found if isinstance(found, Table) else None


def items(node: "Node | None", *path: str | int) -> tuple["Node", ...]:
    """The items of the list that ``path`` leads to; empty if there is none."""
    found = dig(node, *path)
    return found.nodes if isinstance(found, Items) else ()


def pairs(node: "Node | None", *path: str | int) -> tuple[tuple[Scalar, "Node"], ...]:
    """The pairs of the mapping that ``path`` leads to; empty if there is none."""
    found = dig(node, *path)
    return found.pairs if isinstance(found, Table) else ()


def walk(node: "Node", seen: set[int] | None = None) -> Iterator["Node"]:
    """Every node below and including ``node``, each once: aliases cannot blow it up."""
    seen = set() if seen is None else seen
    if id(node) in seen:
        return
    seen.add(id(node))
    yield node
    match node:
        case Table():
            for _, value in node.pairs:
                yield from walk(value, seen)
        case Items():
            for item in node.nodes:
                yield from walk(item, seen)
        case Scalar():
            return


def type_of(plain: str) -> Type:
    """The type of a scalar without quotes."""
    if plain in _NULLS:
        return Type.NULL
    if plain in _BOOLEANS:
        return Type.BOOLEAN
    if _INTEGER.fullmatch(plain):
        return Type.INTEGER
    return Type.FLOAT if _FLOAT.fullmatch(plain) else Type.TEXT


class _Reader:
    """Turns PyYAML's nodes, which the caller keeps alive, into ours; each once, whatever leads to it."""

    def __init__(self) -> None:
        self._done: dict[int, Node] = {}

    def roots(self, nodes: list[yaml.Node]) -> Iterator[Node]:
        for root in nodes:
            if root is not None and not (isinstance(root, yaml.ScalarNode) and root.value == ""):
                yield self._node(root)

    def _node(self, node: yaml.Node) -> Node:
        if id(node) not in self._done:
            self._done[id(node)] = self._turned(node)
        return self._done[id(node)]

    def _turned(self, node: yaml.Node) -> Node:
        match node:
            case yaml.MappingNode():
                return self._table(node)
            case yaml.SequenceNode():
                return Items(
                    nodes=tuple(self._node(item) for item in node.value), line=node.start_mark.line + 1
                )
            case _:
                return _scalar(node)

    def _table(self, node: yaml.MappingNode) -> Table:
        own: list[tuple[Scalar, Node]] = []
        merged: dict[str, tuple[Scalar, Node]] = {}
        doubles: list[tuple[Scalar, Scalar]] = []
        first: dict[str, Scalar] = {}
        for key_node, value_node in node.value:
            key, value = self._node(key_node), self._node(value_node)
            if not isinstance(key, Scalar):
                raise Unreadable("a key is a list or a mapping", key.line)
            if key.value == _MERGE and not key.style:
                for source in value.nodes if isinstance(value, Items) else (value,):
                    merged = {
                        inherited.value: (inherited, node) for inherited, node in pairs(source)
                    } | merged
                continue
            if key.value in first:
                doubles.append((first[key.value], key))
            first.setdefault(key.value, key)
            own.append((key, value))
        return Table(
            pairs=(*(pair for name, pair in merged.items() if name not in first), *own),
            flow=bool(node.flow_style),
            start=node.start_mark.index,
            line=node.start_mark.line + 1,
            doubles=tuple(doubles),
        )


def _scalar(node: yaml.Node) -> Scalar:
    style = getattr(node, "style", None) or ""
    value, start = str(node.value), node.start_mark
    return Scalar(
        value=value,
        type=Type.TEXT if style else type_of(value),
        style=style,
        start=start.index,
        end=node.end_mark.index,
        line=start.line + 1,
        column=start.column,
    )
