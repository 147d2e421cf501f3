"""Values <-> JSON, driven by the types of the dataclasses in ``model``.

Stdlib only: this is imported by PID 1. A dataclass becomes an object; where a
field may hold one of several dataclasses the object says which under
``"is"``. Tuples and frozensets become arrays (sets sorted), enums their value.
Decoding ignores unknown keys and takes defaults for missing ones, so a newer
supervisor reads an older journal. Words on the wire are kept for ever: a class
that was renamed keeps its word in ``WIRE_NAME``, a field in its metadata. A field with ``UNLESS_USED`` there
is not written while it has its default.
"""

import dataclasses
import functools
import types
import typing
from enum import Enum, EnumMeta
from typing import Any

TAG = "is"
_PLAIN = (int, str, bool, float, type(None))


class CodecError(ValueError):
    """The JSON does not fit the type."""


def encode(value: object) -> Any:
    """Return ``value`` as JSON-ready data. TypeError for anything that is not a value."""
    match value:
        case None | bool() | int() | float() | str():
            return value
        case Enum():
            return value.value
        case tuple() | list():
            return [encode(item) for item in value]
        case frozenset() | set():
            return sorted(encode(item) for item in value)
        case _ if dataclasses.is_dataclass(value) and not isinstance(value, type):
            fields = {
                word: encode(getattr(value, name))
                for name, word, _, silent in _fields(type(value))
                if silent is dataclasses.MISSING or getattr(value, name) != silent
            }
            return {TAG: wire_name(type(value)), **fields}
        case _:
            raise TypeError(f"not a value: {value!r}")


def decode(data: object, as_type: Any) -> Any:
    """Return ``data`` as ``as_type``. CodecError when it does not fit."""
    if type(as_type) is type:  # the usual ones first: journals are long
        if as_type is float and type(data) is int:
            return float(data)
        if as_type in _PLAIN:
            if type(data) is not as_type:
                raise CodecError(f"{data!r} is not {as_type.__name__}")
            return data
        if dataclasses.is_dataclass(as_type):
            return decode_dataclass(data, as_type)
    elif isinstance(as_type, EnumMeta):
        try:
            return as_type(data)
        except ValueError as error:
            raise CodecError(str(error)) from error
    origin = typing.get_origin(as_type)
    if origin in (typing.Union, types.UnionType):
        return _decode_union(data, typing.get_args(as_type))
    if origin is tuple:
        return _decode_tuple(data, typing.get_args(as_type))
    if origin is frozenset:
        (item_type,) = typing.get_args(as_type)
        return frozenset(decode(item, item_type) for item in _array(data))
    if isinstance(as_type, typing.NewType):
        return decode(data, as_type.__supertype__)
    raise CodecError(f"no JSON form for {as_type!r}")


def decode_dataclass(data: object, as_type: Any) -> Any:
    """Return the object ``data`` as ``as_type``."""
    if not isinstance(data, dict):
        raise CodecError(f"{data!r} is not an object for {as_type.__name__}")
    known = {name: decode(data[word], hint) for name, word, hint, _ in _fields(as_type) if word in data}
    try:
        return as_type(**known)
    except TypeError as error:
        raise CodecError(f"{as_type.__name__}: {error}") from error


def _decode_union(data: object, members: tuple[Any, ...]) -> Any:
    if data is None and type(None) in members:
        return None
    if isinstance(data, dict) and TAG in data:
        for member in members:
            if wire_name(member) == data[TAG]:
                return decode(data, member)
        raise CodecError(f"none of the alternatives is called {data[TAG]!r}")
    for member in members:
        if member is not type(None):
            try:
                return decode(data, member)
            except CodecError:
                continue
    raise CodecError(f"{data!r} fits none of {members}")


def _decode_tuple(data: object, item_types: tuple[Any, ...]) -> tuple[Any, ...]:
    items = _array(data)
    if len(item_types) == 2 and item_types[1] is Ellipsis:
        return tuple(decode(item, item_types[0]) for item in items)
    if len(items) != len(item_types):
        raise CodecError(f"{len(items)} items where {len(item_types)} belong")
    return tuple(decode(item, item_type) for item, item_type in zip(items, item_types, strict=True))


def _array(data: object) -> list[Any]:
    if not isinstance(data, list):
        raise CodecError(f"{data!r} is not an array")
    return data


def wire_name(cls: Any) -> str:
    """What ``cls`` is called in journals and ``run.json``."""
    return str(getattr(cls, "WIRE_NAME", None) or getattr(cls, "__name__", ""))


@functools.cache
def _fields(cls: Any) -> tuple[tuple[str, str, Any, Any], ...]:
    """Name, word on the wire and type of every field, and the value for which nothing is written, if any."""
    hints = typing.get_type_hints(cls)
    return tuple(
        (
            field.name,
            field.metadata.get("wire") or field.name,
            hints[field.name],
            field.default if "wire" in field.metadata and not field.metadata["wire"] else dataclasses.MISSING,
        )
        for field in dataclasses.fields(cls)
    )
