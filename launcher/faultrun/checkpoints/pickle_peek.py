"""Look into a pickle without executing anything in it.

A pickle is a program. This interpreter knows all its instructions and obeys
only those that build plain data; classes, functions and what they would
return become ``Instance`` values that remember a name and arguments. It
imports nothing, calls nothing, compares and hashes nothing that the pickle
made (hashing a deeply nested tuple overflows the C stack), and never nests
its own calls. Memory stays below a hundred bytes for each byte of input, and
below as many such pieces as the limit of instructions allows.

Source of the format: CPython's ``pickletools`` (protocols 0 to 5).
"""

from dataclasses import dataclass

from faultrun.checkpoints.format import Unreadable
from faultrun.checkpoints.pickle_instructions import INSTRUCTIONS
from faultrun.checkpoints.pickle_machine import Machine, Malformed, TooLong
from faultrun.checkpoints.pickle_values import Value
from faultrun.checkpoints.span import Span

MAX_INSTRUCTIONS = 1_500_000
"""About 30,000 tensors, half a second and 100 MiB."""

MAX_PICKLE_BYTES = 32 << 20
_FIRST_WINDOW_BYTES = 256 << 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Peeked:
    """The pickle's ``value``, the offset just after it, and the persistent ids it asked for."""

    value: Value
    end: int
    persistent: tuple[Value, ...]


def peek(data: bytes, limit: int = MAX_INSTRUCTIONS) -> Peeked:
    """Interpret the pickle at the start of ``data``. Raises Unreadable when it is cut or malformed.

    TooLong, a kind of it, after ``limit`` instructions.
    """
    machine = Machine(data)
    try:
        machine.run(INSTRUCTIONS, limit)
        value = machine.stack[-1]
    except (Malformed, IndexError, KeyError, ValueError) as error:
        raise Unreadable(f"its pickle is cut or malformed near byte {machine.at}") from error
    return Peeked(value=value, end=machine.at, persistent=tuple(machine.persistent))


def peek_file(file: Span, offset: int, limit: int = MAX_INSTRUCTIONS) -> Peeked:
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
        return Peeked(value=peeked.value, end=offset + peeked.end, persistent=peeked.persistent)
