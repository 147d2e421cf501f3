"""Random values of any type of ``model``, built from the types themselves: a new field is tested at once."""

import dataclasses
import functools
import types
import typing
from enum import Enum
from typing import Any

from hypothesis import strategies as st

from faultrun.model.actions import Action
from faultrun.model.events import Event

EVENT_TYPES: tuple[type, ...] = typing.get_args(Event)
ACTION_TYPES: tuple[type, ...] = typing.get_args(Action)

_FLAT: dict[object, st.SearchStrategy[Any]] = {
    type(None): st.none(),
    bool: st.booleans(),
    int: st.integers(-1, 5) | st.integers(),
    float: st.floats(0, 9, width=16) | st.floats(allow_nan=False, allow_infinity=False),
    str: st.sampled_from(["", "rank 1", "训练/检查点", "\udc80 not utf-8", '"\n\\']) | st.text(max_size=6),
}


@functools.cache
def values(of: Any) -> st.SearchStrategy[Any]:
    """A strategy for ``of``: a dataclass, a union, an enum, a container or a plain type."""
    if of in _FLAT:
        return _FLAT[of]
    origin, arguments = typing.get_origin(of), typing.get_args(of)
    if origin in (typing.Union, types.UnionType):
        return st.one_of(*(values(member) for member in arguments))
    if origin is frozenset:
        return st.frozensets(values(arguments[0]), max_size=3)
    if origin is tuple and arguments[1:] == (Ellipsis,):
        return st.lists(values(arguments[0]), max_size=2).map(tuple)
    if origin is tuple:
        return st.tuples(*(values(argument) for argument in arguments))
    if isinstance(of, typing.NewType):
        return values(of.__supertype__)
    if isinstance(of, type) and issubclass(of, Enum):
        return st.sampled_from(of)
    assert isinstance(of, type), of
    assert dataclasses.is_dataclass(of), of
    hints = typing.get_type_hints(of)
    return st.builds(of, **{field.name: values(hints[field.name]) for field in dataclasses.fields(of)})
