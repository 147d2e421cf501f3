"""Look into a pickle without executing anything in it.

A pickle is a program. ``pickletools`` reads its instructions; here only those
are obeyed that build plain data, and classes, functions and what they would
return become ``Instance`` values that remember a name and arguments. Nothing is
imported or called, nothing that the pickle made is compared or hashed
(hashing a deeply nested tuple overflows the C stack), and no call nests
itself. Memory stays below a hundred bytes for each byte of input, and
below as many such pieces as the limit of instructions allows.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any

from faultrun.checkpoints.format import Unreadable
from faultrun.checkpoints.reading import OpenFile

if TYPE_CHECKING:
    from pickletools import OpcodeInfo, StackObject

MAX_INSTRUCTIONS = 1_500_000
"""About 30,000 tensors, a second and 100 MiB."""

MAX_PICKLE_BYTES = 32 << 20
_FIRST_WINDOW_BYTES = 256 << 10
_LONGEST_NUMBER_BITS = 1 << 13


class TooLong(Unreadable):
    """The pickle may be whole; reading it would take too much time and memory."""


@dataclass(slots=True, eq=False)
class Global:
    """The name of a class or function, ``module.name``; it is not looked up."""

    name: str


class Opaque:
    """Bytes, sets, buffers and whatever else is of no use here."""


OPAQUE = Opaque()


@dataclass(slots=True, eq=False)
class Table:
    """A dict, as keys and values in turn; keys may be of any kind, so nothing is hashed."""

    flat: "list[Value] | None" = None

    def items(self) -> "Iterator[tuple[Value, Value]]":
        """Pairs in the order of insertion; a key may come twice, then the last counts."""
        flat = self.flat or []
        return zip(flat[::2], flat[1::2], strict=False)

    def get(self, name: str) -> "Value":
        """The last value of the key ``name``, OPAQUE if there is none."""
        found: Value = OPAQUE
        for key, value in self.items():
            if type(key) is str and key == name:
                found = value
        return found


@dataclass(slots=True, eq=False)
class Instance:
    """What calling ``maker`` with ``args`` would give, and the ``state`` it would be given then."""

    maker: "Value"
    args: "Value"
    state: "Value" = None


Value = (
    None | bool | int | float | str | list["Value"] | tuple["Value", ...] | Table | Instance | Global | Opaque
)


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
    from pickletools import genops, markobject  # noqa: PLC0415 - megabytes that most supervisors can do without

    machine = _Machine(markobject)
    at: int | None = 0
    try:
        for code, arg, at in islice(genops(data), limit):
            if code.name == "STOP":
                return Peeked(value=machine.stack[-1], end=(at or 0) + 1, persistent=machine.persistent)
            machine.obey(code, arg)
    except (IndexError, KeyError, ValueError) as error:
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

    def __init__(self, mark: "StackObject") -> None:
        self._mark = mark
        self.stack: list[Value] = []
        self.persistent: list[Value] = []
        self._below: list[list[Value]] = []
        self._memo: dict[int, Value] = {}

    def obey(self, code: "OpcodeInfo", arg: Any) -> None:
        """Do what one instruction says. IndexError, KeyError or ValueError for what no pickler writes."""
        name = code.name
        if name in _PUTS:
            self._memo[len(self._memo) if arg is None else arg] = self.stack[-1]
        elif name in _GETS:
            self.stack.append(self._memo[arg])
        elif name == "MARK":
            self._below.append(self.stack)
            self.stack = []
        elif name == "DUP":
            self.stack.append(self.stack[-1])
        elif name == "POP" and not self.stack:
            self.stack = self._below.pop()
        elif name in _PERSISTENT:
            self.persistent.append(arg if code.arg else self.stack.pop())
            self.stack.append(OPAQUE)
        elif name in _RESULTS:
            items = self._taken(code)
            self.stack.append(_RESULTS[name](items, arg))
        elif code.arg and code.stack_after:
            self.stack.append(_plain(arg))
        else:
            self._taken(code)

    def _taken(self, code: "OpcodeInfo") -> list[Value]:
        """What the instruction takes from the stack, the deepest first; all since the mark comes last."""
        count = len(code.stack_before)
        since_mark: list[Value] = []
        if self._mark in code.stack_before:
            count = code.stack_before.index(self._mark)
            since_mark, self.stack = self.stack, self._below.pop()
            if not count:
                return since_mark
        if len(self.stack) < count:
            raise IndexError
        items = self.stack[len(self.stack) - count :]
        del self.stack[len(self.stack) - count :]
        return items + since_mark


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


def _opaque(_items: object, _arg: object) -> Value:
    return OPAQUE


_PUTS = frozenset(["PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"])
_GETS = frozenset(["GET", "BINGET", "LONG_BINGET"])
_PERSISTENT = frozenset(["PERSID", "BINPERSID"])
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
        _opaque,
    ),
}
"""What instructions make of what they take from the stack and of their argument."""
