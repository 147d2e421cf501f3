"""A node's statement from one flat list of words, as it is on the wire: for tests that say little of it."""

import dataclasses
from functools import cache
from typing import Any, get_args, get_type_hints

from faultrun.model.observed.node_fact import NodeFact, NodeStatus, Status

KINDS = {NodeStatus(kind.WIRE_NAME): kind for kind in get_args(Status)}


def node_fact(status: NodeStatus, **said: object) -> NodeFact:
    """The statement of a node with this status. TypeError for a word that it does not have."""
    unknown = said.keys() - words_of(status)
    if unknown:
        raise TypeError(f"who is {status.value} does not say {sorted(unknown)}")
    inner = _built(KINDS[status], said)
    own = {name: said[name] for name in _names(NodeFact) if name in said}
    return NodeFact(status=inner, **own)  # type: ignore[arg-type]


def as_far_as_said(status: NodeStatus, **said: object) -> NodeFact:
    """The statement of a node with this status: of these words, those that it has."""
    return node_fact(status, **known(status, said))


def fact_with(fact: NodeFact, status: NodeStatus | None = None, **said: object) -> NodeFact:
    """``fact`` with other words, or another status; of what it said, it keeps what that status can say."""
    status = status or fact.word
    return node_fact(status, **{**known(status, flat(fact)), **said})


def known(status: NodeStatus, said: dict[str, object]) -> dict[str, object]:
    """Those words that a node with this status has."""
    return {name: value for name, value in said.items() if name in words_of(status)}


def flat(fact: NodeFact) -> dict[str, object]:
    """All that it says but its status."""
    return {**_flat(fact), **_flat(fact.status)}


@cache
def words_of(status: NodeStatus) -> frozenset[str]:
    """All that a node with this status can say."""
    return frozenset(flat(NodeFact(node="", boot="", at_s=0, incarnation=0, status=KINDS[status]())))  # type: ignore[arg-type]


def _names(kind: type) -> list[str]:
    return [field.name for field in dataclasses.fields(kind) if "flat" not in field.metadata]


def _flat(value: Any) -> dict[str, object]:
    said = {name: getattr(value, name) for name in _names(type(value))}
    for field in dataclasses.fields(value):
        if "flat" in field.metadata and field.name != "status":
            said |= _flat(getattr(value, field.name))
    return said


def _built(kind: Any, said: dict[str, object]) -> Any:
    own = {name: said[name] for name in _names(kind) if name in said}
    hints = get_type_hints(kind)
    groups = {
        field.name: _built(hints[field.name], said)
        for field in dataclasses.fields(kind)
        if "flat" in field.metadata
    }
    return kind(**own, **groups)
