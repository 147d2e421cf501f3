"""Look into a pickle without executing anything in it.

A pickle is a program. ``pickletools`` knows its instructions; here only those are obeyed that build plain
data, and classes, functions and what they would return become ``Instance`` values that remember a name and
arguments. Nothing is imported or called, nothing that the pickle made is compared or hashed (hashing a deeply
nested tuple overflows the C stack), and no call nests itself. Memory stays below a hundred bytes for each
byte of input, and below as many such pieces as the limit of instructions allows.
"""

import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from io import BytesIO
from typing import TYPE_CHECKING, Any

from faultrun.checkpoints.format import Unreadable
from faultrun.checkpoints.formats.torch.pickle_values import OPAQUE, Global, Instance, Table, Value
from faultrun.checkpoints.reading import OpenFile

if TYPE_CHECKING:
    from pickletools import OpcodeInfo

MAX_INSTRUCTIONS = 1_500_000
"""About 30,000 tensors, a second and 100 MiB."""

MAX_PICKLE_BYTES = 32 << 20
_FIRST_WINDOW_BYTES = 256 << 10
_LONGEST_NUMBER_BITS = 1 << 13


class TooLong(Unreadable):
    """The pickle may be whole; reading it would take too much time and memory."""


@dataclass(slots=True, kw_only=True)
class Peeked:
    """The pickle's ``value``, the offset just after it, and the persistent ids it asked for."""

    value: Value = None
    end: int = 0
    persistent: list[Value] = field(default_factory=list)


def peek(data: bytes, limit: int = MAX_INSTRUCTIONS) -> Peeked:
    """Interpret the pickle at the start of ``data``. Raises Unreadable when it is cut or malformed.

    TooLong, a kind of it, after ``limit`` instructions.
    """
    machine, instructions = _Machine(), _instructions()
    at, following = 0, 0
    try:
        for _ in range(limit):
            at, code = following, data[following]
            if code == _STOP:
                return machine.ended(at + 1)
            read, obey = instructions[code]
            arg, following = (None, at + 1) if read is None else read(data, at + 1)
            obey(machine, arg)
    except (IndexError, KeyError, ValueError, struct.error) as error:
        raise Unreadable(f"its pickle is cut or malformed near byte {at}") from error
    raise TooLong(f"its pickle has more than {limit} instructions")


def peek_file(file: OpenFile, offset: int, limit: int = MAX_INSTRUCTIONS) -> Peeked:
    """Interpret the pickle at ``offset`` of a file; ``end`` is an offset in the file."""
    available = file.size_bytes - offset
    window = min(available, _FIRST_WINDOW_BYTES)
    while True:
        try:
            peeked = peek(file.read(offset, window), limit)
        except TooLong:
            raise
        except Unreadable as cut:
            if window == available:
                raise
            if window == MAX_PICKLE_BYTES:
                raise TooLong(f"its pickle is longer than {MAX_PICKLE_BYTES} bytes") from cut
            window = min(available, window * 8, MAX_PICKLE_BYTES)
            continue
        peeked.end += offset
        return peeked


class _Machine:
    """A stack, the stacks below its marks, and a memo."""

    def __init__(self) -> None:
        self.stack: list[Value] = []
        self.below: list[list[Value]] = []
        self.memo: dict[int, Value] = {}
        self.persistent: list[Value] = []
        self.frame_end = 0

    def ended(self, end: int) -> Peeked:
        """What there is at the offset after the last instruction. ValueError if that is within a frame."""
        if end < self.frame_end:
            raise ValueError
        return Peeked(value=self.stack[-1], end=end, persistent=self.persistent)

    def taken(self, count: int) -> list[Value]:
        """So many values off the top of the stack, the deepest first. IndexError if there are fewer."""
        stack = self.stack
        if (at := len(stack) - count) < 0:
            raise IndexError
        items = stack[at:]
        del stack[at:]
        return items

    def taken_to_mark(self, count: int) -> list[Value]:
        """All above the newest mark, behind ``count`` values that are below it."""
        since_mark, self.stack = self.stack, self.below.pop()
        return self.taken(count) + since_mark if count else since_mark


_Read = Callable[[bytes, int], tuple[Any, int]]
"""The argument that is at an offset, and the offset after it."""

_Obey = Callable[[_Machine, Any], None]


@cache
def _instructions() -> dict[int, tuple[_Read | None, _Obey]]:
    """How to read the argument of each instruction, if it has one, and what to do, by its byte."""
    from pickletools import opcodes  # noqa: PLC0415 - megabytes that most supervisors can do without

    return {ord(code.code): (_read(code), _obey(code)) for code in opcodes}


def _read(code: "OpcodeInfo") -> _Read | None:
    """What pickletools does, and faster for the arguments of which a checkpoint has thousands."""
    if code.arg is None:
        return None
    if code.name == "FRAME":
        return _frame
    if code.arg.name in _NUMBERS:
        return _number(struct.Struct(_NUMBERS[code.arg.name]))
    if code.arg.name in _TEXTS:
        return _text(struct.Struct(_TEXTS[code.arg.name]))
    reader = code.arg.reader

    def read(data: bytes, at: int) -> tuple[Any, int]:
        file = BytesIO(data)
        file.seek(at)
        return reader(file), file.tell()

    return read


def _frame(data: bytes, at: int) -> tuple[tuple[int, int], int]:
    """Where the instruction is, and where its frame ends. An unpickler reads all of that before it obeys."""
    begin = at + _FRAME_LENGTH.size
    if (end := begin + _FRAME_LENGTH.unpack_from(data, at)[0]) > len(data):
        raise ValueError
    return (at - 1, end), begin


def _number(form: struct.Struct) -> _Read:
    def read(data: bytes, at: int) -> tuple[Any, int]:
        return form.unpack_from(data, at)[0], at + form.size

    return read


def _text(length: struct.Struct) -> _Read:
    def read(data: bytes, at: int) -> tuple[str, int]:
        start = at + length.size
        if (end := start + length.unpack_from(data, at)[0]) > len(data):
            raise ValueError
        return str(data[start:end], "utf-8", "surrogatepass"), end

    return read


def _obey(code: "OpcodeInfo") -> _Obey:
    """What an instruction does; IndexError, KeyError or ValueError for what no pickler writes."""
    from pickletools import markobject  # noqa: PLC0415 - as above

    if code.name in _MOVES:
        return _MOVES[code.name]
    if code.name not in _RESULTS and code.arg and code.stack_after:
        return lambda machine, arg: machine.stack.append(_plain(arg))
    to_mark = markobject in code.stack_before
    count = code.stack_before.index(markobject) if to_mark else len(code.stack_before)
    take = _Machine.taken_to_mark if to_mark else _Machine.taken
    make = _RESULTS.get(code.name)

    def obey(machine: _Machine, arg: Any) -> None:
        items = take(machine, count)
        if make is not None:
            machine.stack.append(make(items, arg))

    return obey


def _mark(machine: _Machine, _arg: object) -> None:
    machine.below.append(machine.stack)
    machine.stack = []


def _pop(machine: _Machine, _arg: object) -> None:
    if machine.stack:
        machine.stack.pop()
    else:
        machine.stack = machine.below.pop()


def _enter(machine: _Machine, frame: tuple[int, int]) -> None:
    """Picklers end the frame before with whole instructions; something was lost where it goes on."""
    at, end = frame
    if at < machine.frame_end:
        raise ValueError
    machine.frame_end = end


def _put(machine: _Machine, arg: int) -> None:
    machine.memo[arg] = machine.stack[-1]


def _ask(machine: _Machine, arg: str | None) -> None:
    """A persistent id, from the instruction or else from the stack."""
    machine.persistent.append(machine.stack.pop() if arg is None else arg)
    machine.stack.append(OPAQUE)


def _plain(arg: Any) -> Value:
    too_long = type(arg) is int and arg.bit_length() > _LONGEST_NUMBER_BITS
    return OPAQUE if too_long or isinstance(arg, bytes | bytearray) else arg


def _table(items: list[Value], _arg: object = None) -> Table:
    if len(items) % 2:
        raise ValueError
    return Table(items or None)


def _filled(items: list[Value], _arg: object) -> Value:
    """SETITEM(S) and APPEND(S): the first with the others in it. What is put into an Instance is dropped."""
    target, *items = items
    if isinstance(target, Table):
        more = _table(items)
        if target.flat and more.flat:
            target.flat += more.flat
        else:
            target.flat = target.flat or more.flat
    elif isinstance(target, list):
        target += items
    return target


def _built(items: list[Value], _arg: object) -> Value:
    target, state = items
    if isinstance(target, Instance):
        target.state = state
    return target


def _global(items: list[Value], arg: str | None) -> Global:
    """The module and the name, from the stack or, with a space between them, from the instruction."""
    if arg is not None:
        return Global(arg.replace(" ", ".", 1))
    module, name = items
    if isinstance(module, str) and isinstance(name, str):
        return Global(f"{module}.{name}")
    raise ValueError


def _made(items: list[Value], _arg: object) -> Value:
    """REDUCE and its kin, without keyword arguments. Dicts of all kinds are dicts, else a name is kept."""
    maker, args = items[:2]
    if not (isinstance(maker, Global) and maker.name in _DICTS):
        return Instance(maker, args)
    if not (isinstance(args, tuple) and len(args) == 1 and isinstance(args[0], list)):
        return Table()
    # OrderedDict([[key, value], ...]), as Python 2 pickled it.
    pairs = [pair for pair in args[0] if isinstance(pair, list | tuple) and len(pair) == 2]
    return Table([part for pair in pairs for part in pair])


_STOP = ord(".")
_FRAME_LENGTH = struct.Struct("<Q")
_NUMBERS = {"uint1": "<B", "uint2": "<H", "int4": "<i", "uint4": "<I", "uint8": "<Q", "float8": ">d"}
_TEXTS = {"unicodestring1": "<B", "unicodestring4": "<I"}
_DICTS = frozenset(
    ["collections.OrderedDict", "collections.defaultdict", "builtins.dict", "__builtin__.dict"]
)
_RESULTS: dict[str, Callable[[list[Value], Any], Value]] = {
    "NONE": lambda _items, _arg: None,
    "NEWTRUE": lambda _items, _arg: True,
    "NEWFALSE": lambda _items, _arg: False,
    **dict.fromkeys(["EMPTY_LIST", "LIST"], lambda items, _arg: items),
    **dict.fromkeys(["EMPTY_TUPLE", "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3"], lambda items, _arg: tuple(items)),
    **dict.fromkeys(["EMPTY_DICT", "DICT"], _table),
    **dict.fromkeys(["APPEND", "APPENDS", "SETITEM", "SETITEMS"], _filled),
    **dict.fromkeys(["GLOBAL", "STACK_GLOBAL"], _global),
    **dict.fromkeys(["REDUCE", "NEWOBJ", "NEWOBJ_EX"], _made),
    "OBJ": lambda items, _arg: _made([items[0], tuple(items[1:])], None),
    "INST": lambda items, arg: _made([_global([], arg), tuple(items)], None),
    "BUILD": _built,
    **dict.fromkeys(
        ["EMPTY_SET", "FROZENSET", "ADDITEMS", "EXT1", "EXT2", "EXT4", "NEXT_BUFFER", "READONLY_BUFFER"],
        lambda _items, _arg: OPAQUE,
    ),
}
"""What instructions make of what they take from the stack and of their argument."""

_MOVES: dict[str, _Obey] = {
    "FRAME": _enter,
    "MARK": _mark,
    "POP": _pop,
    "DUP": lambda machine, _arg: machine.stack.append(machine.stack[-1]),
    "MEMOIZE": lambda machine, _arg: _put(machine, len(machine.memo)),
    **dict.fromkeys(["PUT", "BINPUT", "LONG_BINPUT"], _put),
    **dict.fromkeys(
        ["GET", "BINGET", "LONG_BINGET"], lambda machine, arg: machine.stack.append(machine.memo[arg])
    ),
    **dict.fromkeys(["PERSID", "BINPERSID"], _ask),
}
"""What makes no values: it moves them between stack, memo and persistent ids, or frames instructions."""
