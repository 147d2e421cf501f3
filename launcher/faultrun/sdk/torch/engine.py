"""torch's random numbers on the CPU at every step, for the price of copying 2.5 KB.

``get_state`` builds a tensor of twice the size, which takes 2 microseconds, and
30 when the processor's caches are cold. The generator lies in memory as
ATen/CPUGeneratorImpl.h declares it: seed, words left, seeded, next word, 624 words,
and the second of a normal pair, if one waits, as float and as double. Where,
and whether that holds here, is tried at the start with a generator of our
own; where it does not, ``get_state`` is asked.
"""

import ctypes
import struct
from typing import Any

import torch

RAW_BYTES = 2544
_WORDS = 624
_HEAD = struct.Struct("<QiB3xI")  # seed, left, seeded, next
_TAIL = struct.Struct("<4xfB3xdB7x")  # float, waits?, double, waits?
_STATE = struct.Struct("<QiiQ624QdddiifB3x")  # as get_state packs the same
_STATE_BYTES = 5056
_WITHIN = 160


class Engine:
    """The generator behind ``torch.rand``. ``live`` is its state where it lies; None: ask ``asked``."""

    def __init__(self, generator: Any) -> None:
        self._generator = generator
        address = _found(generator)
        self.live = memory_at(address, RAW_BYTES) if address else None

    def asked(self) -> memoryview:
        """The state as ``get_state`` tells it."""
        return memoryview(self._generator.get_state().numpy())


def memory_at(address: int, size_bytes: int) -> memoryview:
    """These bytes of our own memory, which the caller keeps where they are.

    Slices of views are copied with less ado than ``ctypes.memmove``.
    """
    return memoryview((ctypes.c_char * size_bytes).from_address(address)).cast("B")


def state_of(data: bytes) -> Any:
    """A copy of ``live``, or of what was ``asked``, as ``get_state`` would have returned it."""
    return torch.frombuffer(bytearray(data if len(data) != RAW_BYTES else _packed(data)), dtype=torch.uint8)


def _packed(raw: bytes) -> bytes:
    seed, left, seeded, next_word = _HEAD.unpack_from(raw)
    words = struct.unpack_from(f"<{_WORDS}I", raw, _HEAD.size)
    single, single_waits, double, double_waits = _TAIL.unpack_from(raw, _HEAD.size + 4 * _WORDS)
    waiting = (0.0, double if double_waits else 0.0, 0.0, double_waits, 0)
    return _STATE.pack(
        seed, left, seeded, next_word, *words, *waiting, single if single_waits else 0.0, single_waits
    )


def _found(generator: Any) -> int:
    """The address of the state inside of ``generator``; 0 when it is not where or what we know."""
    own = torch.Generator()
    offset = _offset(own)
    if offset < 0 or _STATE.size != _STATE_BYTES:
        return 0
    for kind in (torch.float32, torch.float64, torch.float64, torch.float32):
        if not _agrees(own, offset):
            return 0
        torch.randn(1, generator=own, dtype=kind)
        torch.randint(9, (700,), generator=own)
    return generator._cdata + offset if _agrees(own, offset) and _agrees(generator, offset) else 0


def _offset(generator: Any) -> int:
    """Where the seed lies, from the beginning of the object; -1 when nothing looks like the words."""
    state = generator.get_state().numpy().tobytes()
    if len(state) != _STATE_BYTES:
        return -1
    words = struct.pack("<8I", *struct.unpack_from("<8Q", state, _HEAD.size + 4))
    place = ctypes.string_at(generator._cdata, _WITHIN + len(words)).find(words)
    return place - _HEAD.size if place >= _HEAD.size else -1


def _agrees(generator: Any, offset: int) -> bool:
    raw = ctypes.string_at(generator._cdata + offset, RAW_BYTES)
    return bool(_packed(raw) == generator.get_state().numpy().tobytes())
