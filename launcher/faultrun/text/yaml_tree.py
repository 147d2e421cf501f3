"""YAML as nodes that know where they stand in the text, and the ways to look into them.

Two nodes are equal when they mean the same, wherever they stand. ``text[start:end]`` is how a
value is written, after anchor and tag; ``line`` counts from 1, ``column`` from 0.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from faultrun.model.edit import ScalarKind
from faultrun.text.yaml_scalar import go_kind

_DECIMAL = re.compile(r"[-+]?[0-9]{1,18}")

TAG_PREFIX = "tag:yaml.org,2002:"
"""Prefix of YAML's own tags."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Placed:
    start: int = field(default=0, compare=False)
    end: int = field(default=0, compare=False)
    line: int = field(default=1, compare=False)
    column: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalarNode(_Placed):
    """A value. ``style`` is YAML's indicator (quote, ``|`` or ``>``), empty for a plain one."""

    value: str
    tag: str
    anchor: str | None = None
    tagged: bool = field(default=False, compare=False)
    style: str = field(default="", compare=False)

    @property
    def kind(self) -> ScalarKind:
        """The type PyYAML's loaders give it; every other tag counts as a string."""
        names = {TAG_PREFIX + kind.value: kind for kind in ScalarKind}
        return names.get(self.tag, ScalarKind.STR)

    @property
    def go_kind(self) -> ScalarKind:
        """The type Kubernetes' reader gives it."""
        return ScalarKind.STR if self.style else go_kind(self.value)

    @property
    def number(self) -> int | None:
        """The value as a decimal whole number; None if it is none, quoted or not."""
        return int(self.value) if _DECIMAL.fullmatch(self.value) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class AliasNode(_Placed):
    """``*name``: stands for the node anchored so. A tree whose aliases were followed has none."""

    anchor: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MappingNode(_Placed):
    """A mapping in the file's order, block or flow; ``column`` is that of a block's first key.

    ``doubles`` are keys that are there again, with the first place; only a followed tree has them.
    """

    pairs: tuple[tuple["Node", "Node"], ...]
    tag: str = TAG_PREFIX + "map"
    anchor: str | None = None
    flow: bool = field(default=False, compare=False)
    doubles: tuple[tuple[ScalarNode, ScalarNode], ...] = field(default=(), compare=False)

    @property
    def entries(self) -> tuple[tuple[ScalarNode, "Node"], ...]:
        """The pairs whose keys are plain names."""
        return tuple((key, value) for key, value in self.pairs if isinstance(key, ScalarNode))

    @property
    def names(self) -> list[str]:
        """The plain keys, in the file's order."""
        return [key.value for key, _ in self.entries]

    def named(self, name: str) -> list[int]:
        """Positions of the pairs whose key is written ``name``."""
        keys = (key for key, _ in self.pairs)
        return [at for at, key in enumerate(keys) if isinstance(key, ScalarNode) and key.value == name]

    def get(self, name: str) -> "Node | None":
        """The value of ``name``; the last one where it is there twice."""
        return next((value for key, value in reversed(self.entries) if key.value == name), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class SequenceNode(_Placed):
    """A sequence, block or flow."""

    items: tuple["Node", ...]
    tag: str = TAG_PREFIX + "seq"
    anchor: str | None = None
    flow: bool = field(default=False, compare=False)


Node = ScalarNode | AliasNode | MappingNode | SequenceNode


def dig(node: Node | None, *path: str | int) -> Node | None:
    """Follow names and positions; None as soon as one is not there."""
    for step in path:
        match node, step:
            case MappingNode(), str():
                node = node.get(step)
            case SequenceNode(), int() if step < len(node.items):
                node = node.items[step]
            case _:
                return None
    return node


def scalar(node: Node | None, *path: str | int) -> ScalarNode | None:
    """The scalar that ``path`` leads to; None if there is none, or a null."""
    found = dig(node, *path)
    return found if isinstance(found, ScalarNode) and found.go_kind is not ScalarKind.NULL else None


def text_at(node: Node | None, *path: str | int) -> str:
    """The text that ``path`` leads to; empty if there is none."""
    found = scalar(node, *path)
    return found.value if found else ""


def mapping(node: Node | None, *path: str | int) -> MappingNode | None:
    """The mapping that ``path`` leads to."""
    found = dig(node, *path)
    return found if isinstance(found, MappingNode) else None


def items(node: Node | None, *path: str | int) -> tuple[Node, ...]:
    """The items of the list that ``path`` leads to; empty if there is none."""
    found = dig(node, *path)
    return found.items if isinstance(found, SequenceNode) else ()


def entries(node: Node | None, *path: str | int) -> tuple[tuple[ScalarNode, Node], ...]:
    """The pairs of the mapping that ``path`` leads to; empty if there is none."""
    found = dig(node, *path)
    return found.entries if isinstance(found, MappingNode) else ()


def walk(node: Node, seen: set[int] | None = None) -> Iterator[Node]:
    """Every node from ``node`` down, keys before their values, each once: shared ones cannot blow it up."""
    seen = set() if seen is None else seen
    if id(node) in seen:
        return
    seen.add(id(node))
    yield node
    match node:
        case MappingNode():
            for key, value in node.pairs:
                yield from walk(key, seen)
                yield from walk(value, seen)
        case SequenceNode():
            for item in node.items:
                yield from walk(item, seen)
        case ScalarNode() | AliasNode():
            return


def last_of(node: Node) -> int:
    """Position after the last character that belongs to ``node``, without the comments that follow."""
    match node:
        case MappingNode(flow=False, pairs=[*_, (key, value)]):
            return max(last_of(key), last_of(value))
        case SequenceNode(flow=False, items=[*_, item]):
            return last_of(item)
        case _:
            return node.end
