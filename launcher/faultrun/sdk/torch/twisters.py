"""Python's and numpy's random numbers at every step, for the price of looking whether they changed.

Asking takes 7 microseconds (``random.getstate``) and 25 (``numpy.random``),
several times that when the processor's caches are cold. A Mersenne Twister
draws its words one after another and makes all new ones when they are used
up: while its position and first word stay, so does all the rest. These are
looked at in memory, and only after a change the generator is asked. The
layouts are those of CPython 3.10 to 3.14 and numpy 1.25 to 2.4; whether they
hold here is tried at the start, and where they do not, every look is a change.
"""

import _random
import ctypes
import random
import struct
import sys
from collections.abc import Callable
from typing import Any

from faultrun.sdk.torch.engine import memory_at

AREA_BYTES = 2560
"""What the state of one twister takes when it is packed."""

_HEADER_BYTES = 16  # of every Python object: reference count and type
_PACKED = struct.Struct("<B?id624I")  # there?, waiting?, position, the waiting number, words
_ABSENT = b"\0"

Look = Callable[[], object]
"""Returns something else than the last time when the generator has changed."""


class PythonTwister:
    """The generator behind ``random.random``."""

    def __init__(self) -> None:
        self._generator: Any = random.getstate.__self__  # type: ignore[attr-defined]
        self._peek = memory_at(id(self._generator) + _HEADER_BYTES, 8).cast("Q")  # index, first word
        words = random.getstate()[1]
        fits = _random.Random.__basicsize__ >= _HEADER_BYTES + 625 * 4
        self._known = fits and self._peek[0] == words[-1] | words[0] << 32
        self._seen: object = None
        self._waiting: object = None
        self.version = 0

    def look(self) -> int:
        """A number that grows with every change."""
        seen, waiting = self._peek[0], self._generator.gauss_next
        if seen != self._seen or waiting != self._waiting or not self._known:
            self._seen, self._waiting = seen, waiting
            self.version += 1
        return self.version

    def packed(self) -> bytes:
        """The state now."""
        _, (*words, position), waiting = random.getstate()
        return _PACKED.pack(1, waiting is not None, position, waiting or 0.0, *words)

    @staticmethod
    def unpacked(area: bytes) -> tuple[Any, ...]:
        """As ``random.getstate()``."""
        _, is_waiting, position, waiting, *words = _PACKED.unpack_from(area)
        return (3, (*words, position), waiting if is_waiting else None)


class NumpyTwister:
    """The generator behind ``numpy.random.rand``; there is none before numpy's was imported."""

    def __init__(self) -> None:
        self._state: Any = None
        self._generator: Any = None
        self._look: Look = object
        self._seen: object = None
        self.version = 0

    def look(self) -> int:
        """A number that grows with every change."""
        if self._state is None and not self._find():
            return self.version
        if self._state._bit_generator is not self._generator:
            self._find()
        seen = self._look()
        if seen != self._seen:
            self._seen = seen
            self.version += 1
        return self.version

    def packed(self) -> bytes:
        """The state now."""
        if self._state is None:
            return _ABSENT
        name, words, *rest = self._state.get_state()
        if name != "MT19937":
            return _ABSENT
        position, is_waiting, waiting = rest
        return _PACKED.pack(1, bool(is_waiting), position, waiting, *words.tolist())

    @staticmethod
    def unpacked(area: bytes) -> tuple[Any, ...] | None:
        """As ``numpy.random.get_state()``; None when there was none."""
        import numpy as np

        there, is_waiting, position, waiting, *words = _PACKED.unpack_from(area)
        if not there:
            return None
        return ("MT19937", np.array(words, dtype=np.uint32), position, int(is_waiting), waiting)

    def _find(self) -> bool:
        """Find out how to look at the generator that is in use now; False when there is none."""
        numpy = sys.modules.get("numpy.random")
        if numpy is None:
            return False
        self._state = numpy.mtrand._rand
        self._generator = self._state._bit_generator
        self._look = _numpy_look(numpy, self._state)
        return True


def _numpy_look(numpy: Any, state: Any) -> Look:
    generator = state._bit_generator
    waiting_at = _where_numbers_wait(numpy)
    if type(generator).__name__ != "MT19937" or waiting_at is None:
        return object  # a new one every time: never the same
    words = memory_at(generator.ctypes.state_address, 625 * 4).cast("I")  # the last one is the position
    waiting = memory_at(id(state) + waiting_at, 4).cast("i")
    _, known, at, is_waiting, _ = state.get_state()
    if (words[0], words[624], waiting[0]) != (known[0], at, is_waiting):
        return object
    return lambda: (words[0], words[624], waiting[0])


def _where_numbers_wait(numpy: Any) -> int | None:
    """Where in a RandomState it says that the second of a normal pair waits: tried on one of our own.

    That is the one place that is 0, then 1 after a normal number, and 0 again after the next.
    """
    own = numpy.RandomState(1)
    size = type(own).__basicsize__ - _HEADER_BYTES
    pictures = []
    for _ in range(3):
        pictures.append(ctypes.string_at(id(own) + _HEADER_BYTES, size))
        own.randn()
    before, one, both = (struct.unpack(f"<{size // 4}i", picture[: size // 4 * 4]) for picture in pictures)
    places = [at for at in range(size // 4) if (before[at], one[at], both[at]) == (0, 1, 0)]
    return _HEADER_BYTES + 4 * places[0] if len(places) == 1 else None
