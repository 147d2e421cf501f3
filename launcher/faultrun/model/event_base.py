"""What all events have in common, and how a field comes later without a word for those who do not use it."""

from dataclasses import dataclass

UNLESS_USED = {"wire": None}
"""Metadata of a field that journals name only where it differs from its default."""

FLAT = {"flat": True}
"""Metadata of a field whose own fields journals write into the object that has it.

Where it may hold one of several dataclasses, the field's word says which, by ``WIRE_NAME``.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """Something that was observed at ``at_s`` run-seconds, of the worker group's life ``incarnation``."""

    at_s: float
    incarnation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FactOfNodes(Fact):
    """What a node learned of the others. ``revision``: etcd's, up to which it had read by then; 0: none."""

    revision: int = 0
