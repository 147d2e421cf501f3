"""What MindSpore's workers say to their scheduler and hear from it: frames of TCP, and the messages in them.

Read off the wire between the workers and the scheduler process of MindSpore 2.10.0;
``tests/frameworks/test_mindspore_wire.py`` keeps the bytes. Values only: no socket, no clock, and nothing
of what a message leads to.

A frame is ``RPC0``, four big-endian u32 (the lengths of name, to, from and body) and then name, to, from and
body. Workers put their own pid and address into ``from``; nobody reads it. The name is a number in ASCII:

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
class Register:
    """A worker joins. ``node`` is MS_NODE_ID, which we set to the rank."""

    node: str
    host: str
    role: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Unregister:
    """A worker that ends in an orderly way waits up to six seconds for the answer."""

    node: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerHeartbeat:
    """Its answer is the only way in which a worker learns that the cluster is complete."""

    node: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """Set ``key`` for everybody."""

    key: bytes
    value: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """Ask for ``key``."""

    key: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Delete:
    """Forget ``key``."""

    key: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class HostNames:
    """Ask for the host of every rank."""


Request = Register | Unregister | SchedulerHeartbeat | Write | Read | Delete | HostNames


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
            size = _HEAD.size + sum(lengths)
            if size > MAX_FRAME_BYTES:
                raise NotUnderstood(f"a frame of {size} bytes")
            if len(self._buffer) < size:
                break
            frame = bytes(self._buffer[:size])
            del self._buffer[:size]
            frames.append((frame[_HEAD.size : _HEAD.size + lengths[0]], frame[size - lengths[3] :]))
        return frames


def frame(name: Name, body: bytes, port: int) -> bytes:
    """One frame as the scheduler at 127.0.0.1:``port`` sends it."""
    to = b"@127.0.0.1:%d" % port
    return _HEAD.pack(_MAGIC, len(name.value), len(to), 1, len(body)) + name.value + to + b"@" + body


def read_request(name: bytes, body: bytes) -> Request:
    """What a worker asks for. NotUnderstood for a name or a body that is not in the table above."""
    match name:
        case Name.REGISTER.value:
            fields = read_fields(body)
            return Register(node=_text(fields, 1), host=_text(fields, 2), role=_text(fields, 3))
        case Name.UNREGISTER.value:
            return Unregister(node=_text(read_fields(body), 1))
        case Name.HEARTBEAT.value:
            return SchedulerHeartbeat(node=_text(read_fields(body), 1))
        case Name.WRITE.value:
            fields = read_fields(body)
            return Write(key=_bytes(fields, 1), value=_bytes(fields, 2))
        case Name.READ.value:
            return Read(key=_bytes(read_fields(body), 1))
        case Name.DELETE.value:
            return Delete(key=_bytes(read_fields(body), 1))
        case Name.HOST_NAMES.value:
            return HostNames()
        case _:
            raise NotUnderstood(f"a message called {name[:20]!r}")


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


def _text(fields: dict[int, int | bytes], number: int) -> str:
    try:
        return _bytes(fields, number).decode()
    except UnicodeDecodeError:
        raise NotUnderstood(f"field {number} is not text") from None


def _bytes(fields: dict[int, int | bytes], number: int) -> bytes:
    value = fields.get(number, b"")
    if not isinstance(value, bytes):
        raise NotUnderstood(f"field {number} is a number")
    return value
