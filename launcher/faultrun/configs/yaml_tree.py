"""A YAML stream as nodes that know where they stand in the text.

Built from PyYAML's events, not from its composed nodes: aliases stay aliases and
keep their own position, and nothing is constructed. Positions are characters.
Two trees are equal when they mean the same, wherever their nodes stand.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Protocol, cast

import yaml

from faultrun.configs.patch import Refused
from faultrun.model.edit import Kind

_PREFIX = "tag:yaml.org,2002:"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalarNode:
    """A value. ``start`` is that of its text, after anchor and tag; ``style`` is YAML's indicator or ''."""

    anchor: str | None
    tag: str
    value: str
    tagged: bool = field(compare=False)
    style: str = field(compare=False)
    start: int = field(compare=False)
    end: int = field(compare=False)

    @property
    def kind(self) -> Kind:
        """The type PyYAML's loaders give it; every other tag counts as a string."""
        names = {_PREFIX + kind.value: kind for kind in Kind}
        return names.get(self.tag, Kind.STR)


@dataclass(frozen=True, slots=True, kw_only=True)
class AliasNode:
    """``*name``: stands for the node anchored so."""

    anchor: str
    start: int = field(compare=False)
    end: int = field(compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class MapNode:
    """A mapping, block or flow. ``column`` is that of its first key, for block mappings."""

    anchor: str | None
    tag: str
    pairs: tuple[tuple["Node", "Node"], ...]
    flow: bool = field(compare=False)
    column: int = field(compare=False)
    end: int = field(compare=False)

    def named(self, name: str) -> list[int]:
        """Positions of the pairs whose key is written ``name``."""
        return [
            i for i, (key, _) in enumerate(self.pairs) if isinstance(key, ScalarNode) and key.value == name
        ]

    @property
    def names(self) -> list[str]:
        """The plain keys, in the file's order."""
        return [key.value for key, _ in self.pairs if isinstance(key, ScalarNode)]


@dataclass(frozen=True, slots=True, kw_only=True)
class ListNode:
    """A sequence, block or flow."""

    anchor: str | None
    tag: str
    items: tuple["Node", ...]
    flow: bool = field(compare=False)
    end: int = field(compare=False)


Node = ScalarNode | AliasNode | MapNode | ListNode


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """One document; ``end`` is where the next ``---``, a ``...`` or the end of the text stands."""

    root: Node
    end: int = field(compare=False)


def documents(text: str) -> tuple[Document, ...]:
    """Parse a whole stream. Refused with the line when it is not YAML; an empty text has no documents."""
    try:
        return tuple(_Reader(text).documents())
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"line {mark.line + 1}: " if mark else ""
        raise Refused(
            f"{where}{error.problem or error.context}", hint="make it YAML that PyYAML reads"
        ) from error
    except yaml.YAMLError as error:
        raise Refused(str(error).partition("\n")[0], hint="make it YAML that PyYAML reads") from error


def last_of(node: Node) -> int:
    """Position after the last character that belongs to ``node``, without the comments that follow."""
    match node:
        case MapNode(flow=False, pairs=[*_, (key, value)]):
            return max(last_of(key), last_of(value))
        case ListNode(flow=False, items=[*_, item]):
            return last_of(item)
        case _:
            return node.end


def aliases(node: Node) -> Iterator[AliasNode]:
    """Every alias inside ``node``."""
    match node:
        case AliasNode():
            yield node
        case MapNode(pairs=pairs):
            for key, value in pairs:
                yield from aliases(key)
                yield from aliases(value)
        case ListNode(items=items):
            for item in items:
                yield from aliases(item)
        case ScalarNode():
            return


class _Mark(Protocol):
    """A position in the text, in characters from 0."""

    index: int
    column: int


class _Events(Protocol):
    """What is used of PyYAML's loader, which has no types of its own."""

    def get_event(self) -> yaml.Event: ...

    def peek_event(self) -> yaml.Event: ...

    def check_event(self, kind: type[yaml.Event]) -> bool: ...

    def resolve(self, kind: type[yaml.Node], value: str | None, implicit: object) -> str: ...


class _Reader:
    """Turns PyYAML's events into nodes."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._loader = cast("_Events", yaml.SafeLoader(text))
        self._token_starts: dict[int, int] | None = None

    def documents(self) -> Iterator[Document]:
        loader = self._loader
        loader.get_event()
        while not loader.check_event(yaml.StreamEndEvent):
            loader.get_event()
            root = self._node()
            yield Document(root=root, end=_index(loader.get_event().start_mark))

    def _node(self) -> Node:
        event = self._loader.get_event()
        match event:
            case yaml.AliasEvent():
                return AliasNode(
                    anchor=str(event.anchor), start=_index(event.start_mark), end=_index(event.end_mark)
                )
            case yaml.ScalarEvent():
                return self._scalar(event)
            case yaml.SequenceStartEvent():
                return self._list(event)
            case yaml.MappingStartEvent():
                return self._map(event)
            case _:
                raise AssertionError(f"PyYAML promised a node, not {event!r}")

    def _scalar(self, event: yaml.ScalarEvent) -> ScalarNode:
        end = _index(event.end_mark)
        bare = event.anchor is None and event.tag is None
        return ScalarNode(
            anchor=event.anchor,
            tag=self._tag(yaml.ScalarNode, event.tag, event.value, event.implicit),
            value=event.value,
            tagged=event.tag is not None,
            style=event.style or "",
            start=_index(event.start_mark) if bare else self._token_start(end),
            end=end,
        )

    def _list(self, event: yaml.SequenceStartEvent) -> ListNode:
        items: list[Node] = []
        while not self._loader.check_event(yaml.SequenceEndEvent):
            items.append(self._node())
        return ListNode(
            anchor=event.anchor,
            tag=self._tag(yaml.SequenceNode, event.tag, None, event.implicit),
            items=tuple(items),
            flow=bool(event.flow_style),
            end=_index(self._loader.get_event().end_mark),
        )

    def _map(self, event: yaml.MappingStartEvent) -> MapNode:
        bare = event.anchor is None and event.tag is None
        first = event if bare else self._loader.peek_event()
        pairs: list[tuple[Node, Node]] = []
        while not self._loader.check_event(yaml.MappingEndEvent):
            key = self._node()
            pairs.append((key, self._node()))
        return MapNode(
            anchor=event.anchor,
            tag=self._tag(yaml.MappingNode, event.tag, None, event.implicit),
            pairs=tuple(pairs),
            flow=bool(event.flow_style),
            column=_column(first.start_mark),
            end=_index(self._loader.get_event().end_mark),
        )

    def _tag(self, kind: type[yaml.Node], tag: str | None, value: str | None, implicit: object) -> str:
        if tag is not None and tag != "!":
            return tag
        return self._loader.resolve(kind, value, implicit)

    def _token_start(self, end: int) -> int:
        """Start of the scalar that ends at ``end``: PyYAML's event begins at its anchor or tag instead."""
        if self._token_starts is None:
            scalars = (token for token in yaml.scan(self._text) if isinstance(token, yaml.ScalarToken))
            self._token_starts = {token.end_mark.index: token.start_mark.index for token in scalars}
        return self._token_starts.get(end, end)


def resolved_tag(plain: str) -> str:
    """The tag PyYAML gives to ``plain`` where it stands without quotes."""
    return cast("_Events", yaml.SafeLoader("")).resolve(yaml.ScalarNode, plain, (True, False))


def _index(mark: object) -> int:
    return cast("_Mark", mark).index


def _column(mark: object) -> int:
    return cast("_Mark", mark).column
