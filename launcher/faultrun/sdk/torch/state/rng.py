"""The random numbers of one rank as a value: torch, Python, numpy if it was imported, CUDA if it is used.

What is saved consists of tensors, tuples and numbers only: ``torch.load(weights_only=True)`` reads it.
``PythonRng`` and ``NumpyRng`` are the quick way to know them at every step.
"""

import _random
import ctypes
import random
import struct
import sys
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import torch

AREA_BYTES = 2560
"""What the state of one Mersenne Twister takes when it is packed."""

_HEADER_BYTES = 16  # of every Python object: reference count and type
_HEAD = struct.Struct("<B?id")  # there?, waiting?, position, the waiting number; then come the words
_WORDS = struct.Struct("<624I")
_ABSENT = b"\0"


SEEDED = ("cpu", "python", "numpy")
"""Random numbers that a script may seed alike on all ranks."""


@dataclass(frozen=True, slots=True)
class Rng:
    """The state of every generator; None where it was not in use. ``loader`` is the data loader's own.

    ``noted`` is what ``Objects.noted`` told beside them, and is in no save.
    """

    cpu: Any
    python: tuple[Any, ...]
    numpy: tuple[Any, ...] | None
    cuda: Any
    loader: Any
    noted: bytes = b""


def current_rng(loader: Any = None) -> Rng:
    """What the generators hold now, asked in the documented way; ``loader`` is the state of one."""
    numpy = sys.modules.get("numpy.random")
    return Rng(
        cpu=torch.get_rng_state(),
        python=random.getstate(),
        numpy=tuple(numpy.get_state()) if numpy is not None else None,
        cuda=cuda_rng_if_used(),
        loader=loader,
    )


def cuda_rng_if_used() -> Any:
    """The state of CUDA's generator; None while CUDA was not used."""
    return torch.cuda.get_rng_state() if torch.cuda.is_initialized() else None


def restore_rng(rng: Rng, loader: Any = None) -> None:
    """Go on from there."""
    torch.set_rng_state(rng.cpu)
    random.setstate(rng.python)
    if rng.numpy is not None:
        import numpy as np

        np.random.set_state(rng.numpy)
    if rng.cuda is not None and torch.cuda.is_available():
        torch.cuda.set_rng_state(rng.cuda)
    if loader is not None and rng.loader is not None:
        loader.set_state(rng.loader)


def digests_of(rng: Rng) -> list[int]:
    """Digests of those that ``SEEDED`` names, by which ranks can compare them."""
    plain = {**rng_to_plain(rng), "cpu": rng.cpu.tolist()}
    return [zlib.crc32(repr(plain[name]).encode()) for name in SEEDED]


def reseeded(rng: Rng, rank: int, alike: Iterable[str] = ()) -> Rng:
    """New random numbers for ``rank`` that follow from another rank's: the same every time.

    Those that are ``alike`` on all others are theirs: all ranks may draw from them what all do together.
    """
    kept = current_rng()
    seed = zlib.crc32(rng.cpu.numpy().tobytes(), rank + 1)
    torch.manual_seed(seed)
    random.seed(seed)
    if rng.numpy is not None:
        import numpy as np

        np.random.seed(seed)
    new = current_rng()
    restore_rng(kept)
    return replace(new, **{name: getattr(rng, name) for name in alike})


def rng_to_plain(rng: Rng) -> dict[str, Any]:
    """Nothing but tensors, tuples and numbers."""
    numpy = rng.numpy
    return {
        "cpu": rng.cpu,
        "python": rng.python,
        "numpy": None if numpy is None else (numpy[0], tuple(numpy[1].tolist()), *numpy[2:]),
        "cuda": rng.cuda,
        "loader": rng.loader,
    }


def rng_from_plain(plain: dict[str, Any]) -> Rng:
    """The opposite of ``rng_to_plain``."""
    version, words, gauss = plain["python"]
    if (numpy := plain["numpy"]) is not None:
        import numpy as np

        numpy = (numpy[0], np.array(numpy[1], dtype=np.uint32), *numpy[2:])
    return Rng(**{**plain, "python": (version, tuple(words), gauss), "numpy": numpy})


def memory_at(address: int, size_bytes: int) -> memoryview:
    """These bytes of our own memory, which the caller keeps where they are.

    Slices of views are copied with less ado than ``ctypes.memmove``.
    """
    return memoryview((ctypes.c_char * size_bytes).from_address(address)).cast("B")


class PythonRng:
    """The generator behind ``random.random``, or another, for the price of copying 2.5 KB of memory.

    Asking takes 13 microseconds (``random.getstate``) and 25 (``numpy.random``), several times that when the
    processor's caches are cold. The layout is that of CPython 3.10 to 3.14; whether it holds here is tried at
    the start, and where it does not, the generator is asked.
    """

    def __init__(self, generator: Any = None) -> None:
        self._generator = generator or random.getstate.__self__  # type: ignore[attr-defined]
        self._words: memoryview | None = None  # the first one is the position
        if _random.Random.__basicsize__ >= _HEADER_BYTES + 625 * 4:
            words = memory_at(id(self._generator) + _HEADER_BYTES, 625 * 4).cast("I")
            position, *known = words
            self._words = words if self._generator.getstate()[1] == (*known, position) else None

    def packed(self) -> bytes:
        """The state now."""
        waiting = self._generator.gauss_next
        if self._words is None:
            _, (*words, position), _ = self._generator.getstate()
            content = _WORDS.pack(*words)
        else:
            raw = self._words.tobytes()  # at once: another thread may draw
            position, content = int.from_bytes(raw[:4], "little"), raw[4:]
        return _HEAD.pack(1, waiting is not None, position, waiting or 0.0) + content

    @staticmethod
    def unpacked(area: bytes) -> tuple[Any, ...]:
        """Turn ``area`` into what ``random.getstate()`` returns."""
        _, is_waiting, position, waiting = _HEAD.unpack_from(area)
        return (3, (*_WORDS.unpack_from(area, _HEAD.size), position), waiting if is_waiting else None)


class NumpyRng:
    """Reads the generator behind ``numpy.random.rand``, or another; there is none before numpy is imported.

    A Mersenne Twister makes all new words when they are used up: while its position and first two words stay,
    so does all the rest. (The first is the same for each list as a seed.) Numpy tells where they lie; whether
    the second of a normal pair waits, it tells only when asked, so while one waits it is asked each time.
    """

    def __init__(self, state: Any = None) -> None:
        self._state = state
        self._generator: Any = None
        self._words: memoryview | None = None  # the last one is the position
        self._seen: tuple[int, ...] | None = None
        self._packed = _ABSENT

    def packed(self) -> bytes:
        """The state now."""
        if (numpy := sys.modules.get("numpy.random")) is None:
            return _ABSENT
        state = self._state or numpy.mtrand._rand
        if state._bit_generator is not self._generator:
            self._find(state)
        if type(self._generator).__name__ != "MT19937":
            return _ABSENT
        seen = None if (now := self._words) is None else (now[0], now[1], now[624])
        if seen is None or seen != self._seen:
            _, words, position, is_waiting, waiting = state.get_state()
            self._packed = _HEAD.pack(1, bool(is_waiting), position, waiting) + bytes(words)
            self._seen = None if is_waiting else seen
        return self._packed

    def _find(self, state: Any) -> None:
        """Look for the words of the generator that is in use now."""
        self._generator, self._words, self._seen = state._bit_generator, None, None
        if type(self._generator).__name__ == "MT19937":
            words = memory_at(self._generator.ctypes.state_address, 625 * 4).cast("I")
            _, known, position, *_ = state.get_state()
            self._words = words if (words[0], words[624]) == (known[0], position) else None

    @staticmethod
    def unpacked(area: bytes) -> tuple[Any, ...] | None:
        """Turn ``area`` into what ``numpy.random.get_state()`` returns; None when there was none."""
        import numpy as np

        there, is_waiting, position, waiting = _HEAD.unpack_from(area)
        words = np.frombuffer(area, np.uint32, 624, _HEAD.size)
        return ("MT19937", words, position, int(is_waiting), waiting) if there else None
