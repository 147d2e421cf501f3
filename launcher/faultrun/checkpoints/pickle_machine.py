"""The machine that a pickle is a program for: a stack, marks, a memo, and the program itself.

``pickle_instructions`` says what it can do, ``pickle_peek`` runs it.
"""

from collections.abc import Callable, Sequence

from faultrun.checkpoints.format import Unreadable
from faultrun.checkpoints.pickle_values import OPAQUE, Global, Value

_LONG_BINPUT, _BINGET, _BININT1, _STOP = b"rhK."


class TooLong(Unreadable):
    """The pickle may be whole; reading it would take too much time and memory."""


class Malformed(Exception):
    """The program does what no pickler writes."""


class Machine:
    """The pickle virtual machine: a stack, stacks below marks, and a memo."""

    __slots__ = ("at", "below", "data", "globals", "memo", "persistent", "stack")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0
        self.stack: list[Value] = []
        self.below: list[list[Value]] = []
        self.memo: dict[int, Value] = {}
        self.globals: dict[str, Global] = {}
        self.persistent: list[Value] = []

    def run(self, instructions: "Sequence[Callable[[Machine], None]]", limit: int) -> None:
        """Execute up to and including STOP, at most ``limit`` steps; the value is left on the stack."""
        data, memo, stack, at = self.data, self.memo, self.stack, self.at
        for _ in range(limit):
            code = data[at]
            # Half of all instructions are these three; a call for each would double the time.
            if code == _LONG_BINPUT:
                memo[int.from_bytes(data[at + 1 : at + 5], "little")] = stack[-1]
                at += 5
            elif code == _BINGET:
                stack.append(memo[data[at + 1]])
                at += 2
            elif code == _BININT1:
                stack.append(data[at + 1])
                at += 2
            else:
                self.at = at + 1
                if code == _STOP:
                    return
                instructions[code](self)
                at, stack = self.at, self.stack
        raise TooLong(f"its pickle has more than {limit} instructions")

    def take(self, length: int) -> bytes:
        """The next ``length`` bytes of the program."""
        start = self.at
        end = start + length
        if length < 0 or end > len(self.data):
            raise IndexError
        self.at = end
        return self.data[start:end]

    def skip(self, length: int) -> None:
        """Step over ``length`` bytes and push that something was there."""
        if length < 0 or self.at + length > len(self.data):
            raise IndexError
        self.at += length
        self.stack.append(OPAQUE)

    def number(self, width: int) -> int:
        """The next unsigned little-endian number."""
        return int.from_bytes(self.take(width), "little")

    def line(self, encoding: str = "utf-8") -> str:
        """The next line, as the instructions of protocol 0 have them."""
        end = self.data.index(b"\n", self.at)
        text = self.data[self.at : end]
        self.at = end + 1
        return text.decode(encoding)

    def index(self) -> int:
        """The next line as an index into the memo; never a number long enough to be slow."""
        text = self.line()
        if len(text) > 20:
            raise Malformed
        return int(text)

    def since_mark(self) -> list[Value]:
        """What was pushed since the last mark; the stack below it becomes current."""
        items = self.stack
        self.stack = self.below.pop()
        return items

    def remember(self, key: int) -> None:
        """Put the top of the stack into the memo."""
        self.memo[key] = self.stack[-1]

    def recall(self, key: int) -> None:
        """Push from the memo."""
        self.stack.append(self.memo[key])

    def named(self, name: str) -> Global:
        """The one Global of that name."""
        found = self.globals.get(name)
        if found is None:
            found = self.globals[name] = Global(name)
        return found
