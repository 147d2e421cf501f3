"""What MindSpore's workers say to their scheduler and hear from it: frames of TCP, and the messages in them.

Read off the wire between the workers and the scheduler process of MindSpore 2.10.0;
``tests/frameworks/test_mindspore_wire.py`` keeps the bytes. Values only: no socket, no clock, and nothing
of what a message leads to.

A frame is ``RPC0``, four big-endian u32 (the lengths of name, to, from and body) and then name, to, from and
body. Workers put their own pid and address into ``from``; it is never read. The name is a number in ASCII:

====  ==========  ==================================  ==================================================
name  from        body                                answer
====  ==========  ==================================  ==================================================
0     a worker    {1 node, 2 host, 3 role, 4 ip}      3 {1: true, 2: rank, 3: nodes}, or 4 {4: reason}
1     a worker    {1 node}                            3 "3"; 5 "5" while the cluster is not complete
2     a worker    {1 node}                            3 {1: true, 2: 1 once all are there, 3: nodes}
6     a worker    {1 key, 2 value}                    none
7     a worker    {1 key}                             11 {1 key, 2 value}, or 12 {1 key}
8     a worker    {1 key}                             11 {1 key}, or 12 {1 key}
9     a worker    the role, bare                      11 {"hostnames":[...]} by rank, or 12 {"hostnames":[]}
====  ==========  ==================================  ==================================================

Bodies in braces are protobuf (proto3: a field of value zero is left out), the others are text.
"""

from dataclasses import dataclass
from enum import Enum
from struct import Struct
from typing import Any

from faultrun.text import protobuf

MAX_FRAME_BYTES = 1 << 18
"""Far above anything seen (400 bytes): whatever is longer is not this protocol."""

_HEAD = Struct(">4s4I")
_MAGIC = b"RPC0"


class NotUnderstood(ValueError):
    """Bytes that are not the protocol as it is written above; the text says which."""


class Name(Enum):
    """The message names that the scheduler of 2.10 knows; workers send those up to ``HOST_NAMES``."""

    REGISTER = b"0"
    UNREGISTER = b"1"
    HEARTBEAT = b"2"
    SUCCESS = b"3"
    REFUSED = b"4"
    INCOMPLETE = b"5"
    WRITE = b"6"
    READ = b"7"
    DELETE = b"8"
    HOST_NAMES = b"9"
    FOUND = b"11"
    MISSING = b"12"


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerRequest:
    """What a worker asks for; which fields count is said in ``_FIELDS``.

    REGISTER  a worker joins; ``node`` is MS_NODE_ID, which we set to the rank
    UNREGISTER  a worker that ends in an orderly way waits up to six seconds for the answer
    HEARTBEAT  its answer is the only way in which a worker learns that the cluster is complete
    WRITE, READ, DELETE  set, ask for and forget ``key`` for all ranks
    HOST_NAMES  ask for the host of every rank
    """

    name: Name
    node: str = ""
    host: str = ""
    role: str = ""
    key: bytes = b""
    value: bytes = b""


_FIELDS: dict[bytes, tuple[str, ...]] = {
    Name.REGISTER.value: ("node", "host", "role"),
    Name.UNREGISTER.value: ("node",),
    Name.HEARTBEAT.value: ("node",),
    Name.WRITE.value: ("key", "value"),
    Name.READ.value: ("key",),
    Name.DELETE.value: ("key",),
    Name.HOST_NAMES.value: (),
}
"""What stands in the fields 1, 2 ... of each body."""


class Frames:
    """Cuts one connection's bytes into frames; keeps at most one frame that is not complete yet."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[tuple[bytes, bytes]]:
        """The (name, body) of each frame that is complete by now. NotUnderstood for what is no frame."""
        self._buffer += data
        frames = []
        while len(self._buffer) >= _HEAD.size:
            magic, *lengths = _HEAD.unpack_from(self._buffer)
            if magic != _MAGIC:
                raise NotUnderstood(f"a frame begins with {bytes(magic)!r}")
            if (size := _HEAD.size + sum(lengths)) > MAX_FRAME_BYTES:
                raise NotUnderstood(f"a frame of {size} bytes")
            if len(self._buffer) < size:
                break
            frame = bytes(self._buffer[:size])
            del self._buffer[:size]
            frames.append((frame[_HEAD.size : _HEAD.size + lengths[0]], frame[size - lengths[3] :]))
        return frames


def frame(name: Name, body: bytes, address: tuple[str, int]) -> bytes:
    """One frame as the scheduler at ``address`` (IPv4) sends it: it names itself, not the worker."""
    to = f"@{address[0]}:{address[1]}".encode()
    return _HEAD.pack(_MAGIC, len(name.value), len(to), 1, len(body)) + name.value + to + b"@" + body


def read_request(name: bytes, body: bytes) -> SchedulerRequest:
    """What a worker asks for. NotUnderstood for a name or a body that is not in the table above."""
    if (known := _FIELDS.get(name)) is None:
        raise NotUnderstood(f"a message called {name[:20]!r}")
    fields = read_fields(body) if known else {}
    values: dict[str, Any] = {}
    for number, field in enumerate(known, start=1):
        if not isinstance((value := fields.get(number, b"")), bytes):
            raise NotUnderstood(f"field {number} is a number")
        try:
            values[field] = value if field in ("key", "value") else value.decode()
        except UnicodeDecodeError:
            raise NotUnderstood(f"field {number} is not text") from None
    return SchedulerRequest(name=Name(name), **values)


def write_fields(fields: dict[int, int | bytes]) -> bytes:
    """A protobuf message; numbers of value zero and empty texts are left out, as proto3 does."""
    out = bytearray()
    for number, value in fields.items():
        if isinstance(value, bytes) and value:
            out += protobuf.encode_message(number, value)
        elif isinstance(value, int) and value:
            out += protobuf.encode_varint(number << 3) + protobuf.encode_varint(value)
    return bytes(out)


def read_fields(body: bytes) -> dict[int, int | bytes]:
    """Numbers and bytes of a protobuf message by field; the last one of each counts, as proto3 says."""
    try:
        return {number: value for number, _, value in protobuf.fields(body)}
    except protobuf.WireError as error:
        raise NotUnderstood(f"a protobuf message: {error}") from None
