"""A YAML stream read into nodes: as it is written, or with aliases and ``<<`` followed.

Built from PyYAML's events, not from its composed nodes: aliases keep their own
position, and nothing is constructed.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, TypedDict

import yaml

from faultrun.text.patch import MalformedText, line_of
from faultrun.text.yaml_tree import AliasNode, MappingNode, Node, ScalarNode, SequenceNode

_MERGE = "<<"


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """One document; ``end`` is where the next ``---``, a ``...`` or the end of the text stands."""

    root: Node
    end: int = field(compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class YamlStream:
    """The documents that are not empty, without aliases."""

    roots: tuple[Node, ...]


def documents(text: str) -> tuple[Document, ...]:
    """Parse a stream as it is written; an empty text has no documents. MalformedText if it is not YAML."""
    try:
        return tuple(_Reader(text).documents())
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        because = " ".join(str(error.problem or error.context).split())
        raise MalformedText(because, mark.line + 1 if mark else 1) from None
    except yaml.reader.ReaderError as error:
        raise MalformedText(str(error).partition("\n")[0], line_of(text, error.position)) from None


def read(text: str) -> YamlStream:
    """Parse a stream and follow aliases and merges; a node that two places share is one object.

    MalformedText if it is not YAML, too deep, or has a list or mapping as a key.
    """
    try:
        written = [document.root for document in documents(text)]
        held = (root for root in written if not isinstance(root, ScalarNode) or root.value)
        roots = tuple(_Follower().followed(root) for root in held)
    except RecursionError:
        raise MalformedText("it is nested too deeply, or contains itself", 1) from None
    return YamlStream(roots=roots)


class _Follower:
    """Puts what was anchored in the place of each alias, within one document."""

    def __init__(self) -> None:
        self._anchored: dict[str, Node | None] = {}

    def followed(self, node: Node) -> Node:
        if isinstance(node, AliasNode):
            return self._target(node)
        if node.anchor is not None:
            self._anchored[node.anchor] = None
        match node:
            case SequenceNode():
                done: Node = replace(node, items=tuple(self.followed(item) for item in node.items))
            case MappingNode():
                done = self._mapping(node)
            case ScalarNode():
                done = node
        if node.anchor is not None:
            self._anchored[node.anchor] = done
        return done

    def _target(self, alias: AliasNode) -> Node:
        if alias.anchor not in self._anchored:
            raise MalformedText(f"found undefined alias {alias.anchor!r}", alias.line)
        if (found := self._anchored[alias.anchor]) is None:
            raise MalformedText("it is nested too deeply, or contains itself", alias.line)
        return found

    def _mapping(self, node: MappingNode) -> MappingNode:
        own: list[tuple[Node, Node]] = []
        merged: dict[str, tuple[Node, Node]] = {}
        doubles: list[tuple[ScalarNode, ScalarNode]] = []
        first: dict[str, ScalarNode] = {}
        for key_node, value_node in node.pairs:
            key, value = self.followed(key_node), self.followed(value_node)
            if not isinstance(key, ScalarNode):
                raise MalformedText("a key is a list or a mapping", key.line)
            if key.value == _MERGE and not key.style:
                for source in value.items if isinstance(value, SequenceNode) else (value,):
                    inherited = source.entries if isinstance(source, MappingNode) else ()
                    merged = {name.value: (name, value) for name, value in inherited} | merged
                continue
            if key.value in first:
                doubles.append((first[key.value], key))
            first.setdefault(key.value, key)
            own.append((key, value))
        inherited_pairs = (pair for name, pair in merged.items() if name not in first)
        return replace(node, pairs=(*inherited_pairs, *own), doubles=tuple(doubles))


class _Where(TypedDict):
    start: int
    end: int
    line: int
    column: int


def _where(mark: Any, end: Any) -> _Where:
    return {"start": mark.index, "end": end.index, "line": mark.line + 1, "column": mark.column}


class _Reader:
    """Turns PyYAML's events into nodes."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._loader: Any = yaml.SafeLoader(text)  # has no types of its own
        self._token_starts: dict[int, Any] | None = None

    def documents(self) -> Iterator[Document]:
        self._loader.get_event()
        while not self._loader.check_event(yaml.StreamEndEvent):
            self._loader.get_event()
            root = self._node()
            yield Document(root=root, end=self._loader.get_event().start_mark.index)

    def _node(self) -> Node:
        event = self._loader.get_event()
        match event:
            case yaml.AliasEvent():
                return AliasNode(anchor=str(event.anchor), **_where(event.start_mark, event.end_mark))
            case yaml.ScalarEvent():
                return self._scalar(event)
            case yaml.SequenceStartEvent():
                return self._sequence(event)
            case yaml.MappingStartEvent():
                return self._mapping(event)
            case _:
                raise AssertionError(f"PyYAML promised a node, not {event!r}")

    def _scalar(self, event: Any) -> ScalarNode:
        bare = event.anchor is None and event.tag is None
        mark = event.start_mark if bare else self._token_start(event.end_mark)
        return ScalarNode(
            anchor=event.anchor,
            tag=self._tag(yaml.ScalarNode, event, event.value),
            value=event.value,
            tagged=event.tag is not None,
            style=event.style or "",
            **_where(mark, event.end_mark),
        )

    def _sequence(self, event: Any) -> SequenceNode:
        items: list[Node] = []
        while not self._loader.check_event(yaml.SequenceEndEvent):
            items.append(self._node())
        return SequenceNode(
            anchor=event.anchor,
            tag=self._tag(yaml.SequenceNode, event, None),
            items=tuple(items),
            flow=bool(event.flow_style),
            **_where(event.start_mark, self._loader.get_event().end_mark),
        )

    def _mapping(self, event: Any) -> MappingNode:
        bare = event.anchor is None and event.tag is None
        mark = (event if bare else self._loader.peek_event()).start_mark
        pairs: list[tuple[Node, Node]] = []
        while not self._loader.check_event(yaml.MappingEndEvent):
            key = self._node()
            pairs.append((key, self._node()))
        where = _where(mark, self._loader.get_event().end_mark)
        if event.flow_style:
            where["start"] = self._text.find("{", event.start_mark.index)
        return MappingNode(
            anchor=event.anchor,
            tag=self._tag(yaml.MappingNode, event, None),
            pairs=tuple(pairs),
            flow=bool(event.flow_style),
            **where,
        )

    def _tag(self, kind: type[yaml.Node], event: Any, value: str | None) -> str:
        untold = event.tag in {None, "!"}
        return str(self._loader.resolve(kind, value, event.implicit) if untold else event.tag)

    def _token_start(self, end: Any) -> Any:
        """Start of the scalar that ends at ``end``: PyYAML's event begins at its anchor or tag instead."""
        if self._token_starts is None:
            tokens: Iterator[Any] = yaml.scan(self._text)
            scalars = (token for token in tokens if isinstance(token, yaml.ScalarToken))
            self._token_starts = {token.end_mark.index: token.start_mark for token in scalars}
        return self._token_starts.get(end.index, end)
