"""Values <-> JSON, driven by the types of the dataclasses in ``model``.

Stdlib only: this is imported by PID 1. A dataclass becomes an object; where a field may hold one of several
dataclasses the object says which under ``"is"``. Tuples and frozensets become arrays (sets sorted), enums
their value. Decoding ignores unknown keys and takes defaults for missing ones, so a newer supervisor reads an
older journal. Words on the wire are kept for ever: a class that was renamed keeps its word in ``WIRE_NAME``,
a field in its metadata. A field with ``UNLESS_USED`` there is not written while it has its default; the
fields of one with ``FLAT`` become its owner's. A class that names one of its fields in ``WIRE_FIELD`` is
written as what that field holds, without an object around it.
"""

import contextlib
import dataclasses
import functools
import types
import typing
from collections.abc import Callable, Iterable
from enum import Enum, EnumMeta
from typing import Any

TAG = "is"
_PLAIN = (int, str, bool, float, type(None))

Encoder = Callable[[Any], Any]
Decoder = Callable[[object], Any]


class CodecError(ValueError):
    """The JSON does not fit the type."""


def encode(value: object) -> Any:
    """Return ``value`` as JSON-ready data. TypeError for anything that is not a value."""
    kind: Any = type(value)
    return _encoder(kind)(value)


def decode(data: object, as_type: Any) -> Any:
    """Return ``data`` as ``as_type``. CodecError when it does not fit."""
    return _decoder(as_type)(data)


def get_ready(*used: Any) -> None:
    """Look up now what values of these types ask for: the first fault is answered as fast as the next."""
    waiting, known = list(used), set()
    while waiting:
        one: Any = waiting.pop()
        if one in known or one is Ellipsis:
            continue
        known.add(one)
        _decoder(one)
        if dataclasses.is_dataclass(one):
            waiting.extend(_held_by(one))
        cls = typing.get_origin(one) or one
        if isinstance(cls, type):
            _encoder(cls)
        waiting.extend(typing.get_args(one))


def _held_by(cls: Any) -> Iterable[Any]:
    _fields(cls)
    return _hints(cls).values()


@functools.cache
def _encoder(cls: Any) -> Encoder:
    """Looked up once for a type: a fault is answered in milliseconds, and this is a good part of them."""
    if issubclass(cls, _PLAIN):
        return lambda value: value
    if issubclass(cls, Enum):
        return lambda value: value.value
    if issubclass(cls, (tuple, list)):
        return lambda value: list(map(encode, value))
    if issubclass(cls, (frozenset, set)):
        return lambda value: sorted(map(encode, value))
    if bare := _bare_field(cls):
        return lambda value: encode(getattr(value, bare))
    if dataclasses.is_dataclass(cls):
        return _encoder_of_dataclass(cls)
    return _refuse


def _refuse(value: object) -> Any:
    raise TypeError(f"not a value: {value!r}")


def _encoder_of_dataclass(cls: Any) -> Encoder:
    tag = wire_name(cls)
    own, flat = _own_and_flat(cls)
    fields = [(field.name, _word(field), _silent(field)) for field in own]
    groups = [(field.name, _encoder_of_flat(_word(field), _hints(cls)[field.name])) for field in flat]

    def encoded(value: object) -> dict[str, Any]:
        data: dict[str, Any] = {TAG: tag}
        for name, word, silent in fields:
            item = getattr(value, name)
            if silent is dataclasses.MISSING or item != silent:
                data[word] = item if type(item) in _PLAIN else encode(item)
        for name, words_of in groups:
            data |= words_of(getattr(value, name))
        return data

    return encoded


def _encoder_of_flat(word: str, hint: Any) -> Encoder:
    """Words of the object that holds it: of one of several, all that others have are at their defaults."""
    members = typing.get_args(hint)
    blank: dict[str, Any] = {}
    for member in members:
        blank |= encode(member())

    def encoded(value: object) -> dict[str, Any]:
        data: dict[str, Any] = {**blank, **encode(value)}
        tag = data.pop(TAG)
        return {word: tag, **data} if members else data

    return encoded


@functools.cache
def _decoder(as_type: Any) -> Decoder:
    if as_type is float:
        return _float
    if as_type in _PLAIN:
        return functools.partial(_plain, as_type)
    if isinstance(as_type, EnumMeta):
        return functools.partial(_enum, as_type)
    if bare := _bare_field(as_type):
        held = _decoder(_hints(as_type)[bare])
        return lambda data: as_type(**{bare: held(data)})
    if dataclasses.is_dataclass(as_type):
        return _decoder_of_dataclass(as_type)
    origin, arguments = typing.get_origin(as_type), typing.get_args(as_type)
    if origin in (typing.Union, types.UnionType):
        return _decoder_of_union(arguments)
    if origin is tuple:
        return _decoder_of_tuple(arguments)
    if origin is frozenset:
        item = _decoder(arguments[0])
        return lambda data: frozenset(map(item, _array(data)))
    if isinstance(as_type, typing.NewType):
        return _decoder(as_type.__supertype__)
    return functools.partial(_formless, as_type)


def _float(data: object) -> Any:
    if type(data) is not int:
        return _plain(float, data)
    try:
        return float(data)
    except OverflowError as error:
        raise CodecError(str(error)) from error


def _plain(as_type: Any, data: object) -> Any:
    if type(data) is not as_type:
        raise CodecError(f"{data!r} is not {as_type.__name__}")
    return data


def _enum(as_type: EnumMeta, data: object) -> Any:
    try:
        return as_type(data)
    except ValueError as error:
        raise CodecError(str(error)) from error


def _formless(as_type: Any, data: object) -> Any:
    raise CodecError(f"no JSON form for {as_type!r}, which {data!r} should be")


@functools.cache
def _hints(cls: Any) -> dict[str, Any]:
    return typing.get_type_hints(cls)


@functools.cache
def _fields(cls: Any) -> tuple[list[tuple[str, str, Decoder]], ...]:
    """Its own and flat ones. Asked for late, since a type may hold others of its kind."""
    hints = _hints(cls)
    own, flat = (
        [(field.name, _word(field), _decoder(hints[field.name])) for field in fields]
        for fields in _own_and_flat(cls)
    )
    return own, flat


def _decoder_of_dataclass(as_type: Any) -> Decoder:
    def decoded(data: object) -> Any:
        if not isinstance(data, dict):
            raise CodecError(f"{data!r} is not an object for {as_type.__name__}")
        own, flat = _fields(as_type)
        known = {name: field(data[word]) for name, word, field in own if word in data}
        for name, word, group in flat:
            known[name] = group({**data, TAG: data.get(word)})
        try:
            return as_type(**known)
        except TypeError as error:
            raise CodecError(f"{as_type.__name__}: {error}") from error

    return decoded


def _decoder_of_union(members: tuple[Any, ...]) -> Decoder:
    may_be_none = type(None) in members
    # Of two with one word the first is meant.
    tagged = {wire_name(member): _decoder(member) for member in reversed(members)}
    # An int passes for a float as well. Two orders of one union are one type, and mean the same.
    exact_first = sorted(members, key=lambda member: member is float)
    untagged = [_decoder(member) for member in exact_first if member is not type(None)]

    def decoded(data: object) -> Any:
        if data is None and may_be_none:
            return None
        if isinstance(data, dict) and TAG in data:
            chosen = tagged.get(data[TAG]) if isinstance(data[TAG], str) else None
            if chosen is None:
                raise CodecError(f"none of the alternatives is called {data[TAG]!r}")
            return chosen(data)
        for member in untagged:
            with contextlib.suppress(CodecError):
                return member(data)
        raise CodecError(f"{data!r} fits none of {members}")

    return decoded


def _decoder_of_tuple(item_types: tuple[Any, ...]) -> Decoder:
    if len(item_types) == 2 and item_types[1] is Ellipsis:
        item = _decoder(item_types[0])
        return lambda data: tuple(map(item, _array(data)))
    items = [_decoder(item_type) for item_type in item_types]

    def decoded(data: object) -> tuple[Any, ...]:
        found = _array(data)
        if len(found) != len(items):
            raise CodecError(f"{len(found)} items where {len(items)} belong")
        return tuple(decoder(item) for decoder, item in zip(items, found, strict=True))

    return decoded


def _array(data: object) -> list[Any]:
    if not isinstance(data, list):
        raise CodecError(f"{data!r} is not an array")
    return data


def wire_name(cls: Any) -> str:
    """What ``cls`` is called in journals and ``run.json``."""
    return str(getattr(cls, "WIRE_NAME", None) or getattr(cls, "__name__", ""))


def _bare_field(cls: Any) -> str:
    """The one field that is all of ``cls`` on the wire; "" where a value is an object."""
    return str(getattr(cls, "WIRE_FIELD", ""))


def _own_and_flat(cls: Any) -> "tuple[list[dataclasses.Field[Any]], list[dataclasses.Field[Any]]]":
    """The fields that are written under a word of their own, and those whose fields are."""
    fields = dataclasses.fields(cls)
    own = [field for field in fields if "flat" not in field.metadata]
    return own, [field for field in fields if "flat" in field.metadata]


def _word(field: "dataclasses.Field[Any]") -> str:
    """What it is called on the wire."""
    return field.metadata.get("wire") or field.name


def _silent(field: "dataclasses.Field[Any]") -> Any:
    """The value for which nothing is written, if there is one."""
    unless_used = "wire" in field.metadata and not field.metadata["wire"]
    return field.default if unless_used else dataclasses.MISSING
