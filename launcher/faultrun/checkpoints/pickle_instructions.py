"""One function for each instruction of a pickle; those that would import or call something only take notes.

A malformed program ends in Malformed, IndexError, KeyError or ValueError,
which ``pickle_peek`` turns into a reason. Source of the format: CPython's
``pickletools`` (protocols 0 to 5).
"""

import struct
from collections.abc import Callable

from faultrun.checkpoints.pickle_machine import Machine, Malformed
from faultrun.checkpoints.pickle_values import OPAQUE, Global, Instance, Table, Value

_LONGEST_NUMBER_BYTES = 1024


def _unknown(_machine: Machine) -> None:
    raise Malformed


def _nothing(_machine: Machine) -> None:
    """READONLY_BUFFER: changes no value that is kept here."""


def _mark(machine: Machine) -> None:
    machine.below.append(machine.stack)
    machine.stack = []


def _pop(machine: Machine) -> None:
    if machine.stack:
        machine.stack.pop()
    else:
        machine.since_mark()


def _binput(machine: Machine) -> None:
    machine.memo[machine.data[machine.at]] = machine.stack[-1]
    machine.at += 1


def _binunicode(machine: Machine) -> None:
    machine.stack.append(machine.take(machine.number(4)).decode("utf-8", "surrogatepass"))


def _long(width: int) -> "_Handler":
    def push(machine: Machine) -> None:
        length = machine.number(width)
        if length > _LONGEST_NUMBER_BYTES:
            machine.skip(length)
        else:
            machine.stack.append(int.from_bytes(machine.take(length), "little", signed=True))

    return push


def _text_number(machine: Machine) -> None:
    text = machine.line().rstrip("L")
    if text in ("00", "01"):
        machine.stack.append(text == "01")
    else:
        machine.stack.append(OPAQUE if len(text) > _LONGEST_NUMBER_BYTES else int(text))


def _quoted(machine: Machine) -> None:
    """STRING: what Python 2 called text, in quotes; escapes in it are left alone."""
    machine.stack.append(machine.line("latin-1").strip("'\""))


def _empty_dict(machine: Machine) -> None:
    machine.stack.append(Table())


def _fill(target: Value, items: list[Value]) -> None:
    """SETITEM(S) and APPEND(S). What is put into an Instance is of no interest."""
    if isinstance(target, Table):
        if len(items) % 2:
            raise Malformed
        if target.flat is None:
            target.flat = items
        else:
            target.flat.extend(items)
    elif isinstance(target, list):
        target.extend(items)


def _extend(machine: Machine) -> None:
    items = machine.since_mark()
    _fill(machine.stack[-1], items)


def _setitem(machine: Machine) -> None:
    value, key = machine.stack.pop(), machine.stack.pop()
    _fill(machine.stack[-1], [key, value])


def _append(machine: Machine) -> None:
    item = machine.stack.pop()
    _fill(machine.stack[-1], [item])


def _tuple(machine: Machine) -> None:
    items = tuple(machine.since_mark())
    machine.stack.append(items)


def _short_tuple(length: int) -> "_Handler":
    def push(machine: Machine) -> None:
        if len(machine.stack) < length:
            raise Malformed
        machine.stack[-length:] = [tuple(machine.stack[-length:])]

    return push


def _marked_list(machine: Machine) -> None:
    items = machine.since_mark()
    machine.stack.append(items)


def _marked_dict(machine: Machine) -> None:
    items = machine.since_mark()
    if len(items) % 2:
        raise Malformed
    machine.stack.append(Table(items))


def _marked_set(machine: Machine) -> None:
    machine.since_mark()
    machine.stack.append(OPAQUE)


def _global(machine: Machine) -> None:
    module, name = machine.line(), machine.line()
    machine.stack.append(machine.named(f"{module}.{name}"))


def _stack_global(machine: Machine) -> None:
    name, module = machine.stack.pop(), machine.stack.pop()
    if not (isinstance(name, str) and isinstance(module, str)):
        raise Malformed
    machine.stack.append(machine.named(f"{module}.{name}"))


def _make(maker: Value, args: Value) -> Value:
    """REDUCE and its kin. Ordered and default dicts are dicts; of the rest only the name is kept."""
    if isinstance(maker, Global) and maker.name in _DICTS:
        return Table(_pairs(args))
    return Instance(maker, args)


def _pairs(args: Value) -> list[Value] | None:
    """The flat items of ``OrderedDict([[key, value], ...])``, as Python 2 pickled it."""
    if not (isinstance(args, tuple) and len(args) == 1 and isinstance(args[0], list)):
        return None
    pairs = [pair for pair in args[0] if isinstance(pair, list | tuple) and len(pair) == 2]
    return [part for pair in pairs for part in pair]


def _reduce(machine: Machine) -> None:
    args, maker = machine.stack.pop(), machine.stack.pop()
    machine.stack.append(_make(maker, args))


def _newobj_ex(machine: Machine) -> None:
    """Keyword arguments, on top, are dropped."""
    machine.stack.pop()
    _reduce(machine)


def _inst(machine: Machine) -> None:
    module, name = machine.line(), machine.line()
    args = tuple(machine.since_mark())
    machine.stack.append(_make(machine.named(f"{module}.{name}"), args))


def _obj(machine: Machine) -> None:
    maker, *args = machine.since_mark()
    machine.stack.append(_make(maker, tuple(args)))


def _build(machine: Machine) -> None:
    state = machine.stack.pop()
    target = machine.stack[-1]
    if isinstance(target, Instance):
        target.state = state


def _persistent(machine: Machine) -> None:
    machine.persistent.append(machine.stack.pop())
    machine.stack.append(OPAQUE)


def _text_persistent(machine: Machine) -> None:
    machine.persistent.append(machine.line())
    machine.stack.append(OPAQUE)


_DICTS = frozenset(
    ["collections.OrderedDict", "collections.defaultdict", "builtins.dict", "__builtin__.dict"]
)


def _push(value: Value) -> "_Handler":
    def push(machine: Machine) -> None:
        machine.stack.append(value)

    return push


def _skip_over(width: int) -> "_Handler":
    """Bytes, with a length of ``width`` bytes before them."""

    def skip(machine: Machine) -> None:
        machine.skip(machine.number(width))

    return skip


def _ignore(width: int) -> "_Handler":
    """An argument of ``width`` bytes that changes nothing: the protocol's number, a frame's length."""

    def ignore(machine: Machine) -> None:
        machine.take(width)

    return ignore


def _unpacked(shape: str) -> "_Handler":
    layout = struct.Struct(shape)

    def push(machine: Machine) -> None:
        machine.stack.append(layout.unpack(machine.take(layout.size))[0])

    return push


def _counted(width: int, encoding: str) -> "_Handler":
    def push(machine: Machine) -> None:
        machine.stack.append(machine.take(machine.number(width)).decode(encoding, "surrogatepass"))

    return push


def _extension(width: int) -> "_Handler":
    """EXT1, EXT2, EXT4: a class by its number in a registry that we do not consult."""

    def push(machine: Machine) -> None:
        machine.take(width)
        machine.stack.append(OPAQUE)

    return push


_Handler = Callable[[Machine], None]

# Without ``K h r .``, which the machine does itself.
_BY_CODE: dict[bytes, _Handler] = {
    b"\x80": _ignore(1),
    b"\x95": _ignore(8),
    b"(": _mark,
    b"0": _pop,
    b"1": lambda machine: machine.since_mark().clear(),
    b"2": lambda machine: machine.stack.append(machine.stack[-1]),
    b"N": _push(None),
    b"\x88": _push(True),
    b"\x89": _push(False),
    b"I": _text_number,
    b"L": _text_number,
    b"M": _unpacked("<H"),
    b"J": _unpacked("<i"),
    b"\x8a": _long(1),
    b"\x8b": _long(4),
    b"F": lambda machine: machine.stack.append(float(machine.line())),
    b"G": _unpacked(">d"),
    b"S": _quoted,
    b"V": lambda machine: machine.stack.append(machine.line("raw-unicode-escape")),
    b"T": _counted(4, "latin-1"),
    b"U": _counted(1, "latin-1"),
    b"X": _binunicode,
    b"\x8c": _counted(1, "utf-8"),
    b"\x8d": _counted(8, "utf-8"),
    b"B": _skip_over(4),
    b"C": _skip_over(1),
    b"\x8e": _skip_over(8),
    b"\x96": _skip_over(8),
    b"\x97": _push(OPAQUE),
    b"\x98": _nothing,
    b"]": lambda machine: machine.stack.append([]),
    b"l": _marked_list,
    b"a": _append,
    b"e": _extend,
    b")": _push(()),
    b"t": _tuple,
    b"\x85": _short_tuple(1),
    b"\x86": _short_tuple(2),
    b"\x87": _short_tuple(3),
    b"}": _empty_dict,
    b"d": _marked_dict,
    b"s": _setitem,
    b"u": _extend,
    b"\x8f": _push(OPAQUE),
    b"\x90": lambda machine: machine.since_mark().clear(),
    b"\x91": _marked_set,
    b"p": lambda machine: machine.remember(machine.index()),
    b"q": _binput,
    b"\x94": lambda machine: machine.remember(len(machine.memo)),
    b"g": lambda machine: machine.recall(machine.index()),
    b"j": lambda machine: machine.recall(machine.number(4)),
    b"c": _global,
    b"\x93": _stack_global,
    b"i": _inst,
    b"o": _obj,
    b"\x81": _reduce,
    b"\x92": _newobj_ex,
    b"R": _reduce,
    b"b": _build,
    b"\x82": _extension(1),
    b"\x83": _extension(2),
    b"\x84": _extension(4),
    b"P": _text_persistent,
    b"Q": _persistent,
}
INSTRUCTIONS: list[_Handler] = [_BY_CODE.get(bytes([code]), _unknown) for code in range(256)]
"""What to do for each of the 256 codes."""
