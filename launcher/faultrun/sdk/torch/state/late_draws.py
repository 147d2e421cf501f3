"""Random numbers that were not noted: a step is taken to draw as many as the step before.

A rank that was killed behind its forward pass has drawn more since, for a step that the others have finished.
The generators on the CPU are Mersenne Twisters: 624 words, and a place among them.
"""

import random
import struct
from array import array
from dataclasses import replace
from typing import Any

import torch

from faultrun.sdk.torch.state.rng import Rng
from faultrun.sdk.torch.state.trees import from_bytes, same

_WORDS = 624
_MOST_TURNS = 2000
_TORCH = struct.Struct("<QiiQ624Q")
"""What ``get_state`` begins with: seed, how many words are left, seeded, the next one, words."""

_PAIR = struct.Struct("<8xd8xi4xfB")
"""Behind that: the second of a normal pair, and whether it waits, as double and as float."""

_State = tuple[int, ...]
"""Words, and the place among them, as Python tells it."""


def drawn_as_before(now: Rng, then: Rng, end: Rng) -> Rng | None:
    """``now`` after as many draws as lead from ``then`` to ``end``; None: none do, or not whole pairs."""
    all_three = now, then, end
    pairs, of_then, of_end = map(_pairs, all_three)
    if of_then != of_end or [one is None for one in pairs] != [one is None for one in of_then]:
        return None
    try:
        python = _on(*(one.python[1] for one in all_three))
        words = _on(*(_of_torch(one.cpu) for one in all_three))
        found = replace(now, python=(now.python[0], python, now.python[2]), cpu=_as_torch(words, now.cpu))
        numpys = [one.numpy for one in all_three if one.numpy is not None]
        if len(numpys) == len(all_three):
            *drawn, place = _on(*((*map(int, one[1]), int(one[2])) for one in numpys))
            found = replace(found, numpy=(numpys[0][0], array("I", drawn), place, *numpys[0][3:]))
        if now.cuda is not None and then.cuda is not None and end.cuda is not None:  # seed, and how many
            drawn = end.cuda.view(torch.int64) - then.cuda.view(torch.int64)
            found = replace(found, cuda=(now.cuda.view(torch.int64) + drawn).view(torch.uint8))
    except ValueError:
        return None
    return found


def numbers_of(rng: Rng) -> tuple[Any, ...]:
    """The random numbers of all, without the loader's own."""
    return rng.cpu, rng.python, rng.numpy, rng.cuda


def names_changed(then: bytes, end: bytes) -> list[str]:
    """Names of the script's own objects that are not as ``then``; both as ``Objects.noted`` packs them."""
    before, after = (dict(map(from_bytes, from_bytes(one))) if one else {} for one in (then, end))
    return [name for name, state in after.items() if not same(before.get(name), state)]


def _on(now: _State, then: _State, end: _State) -> _State:
    """``now``, so many draws later. ValueError: ``end`` is not behind ``then``."""
    twister = random.Random()
    twister.setstate((3, then, None))
    draws = 0
    for _ in range(_MOST_TURNS):
        state: _State = twister.getstate()[1]
        place = state[-1]
        if state[:-1] == end[:-1] and place <= end[-1]:
            twister.setstate((3, now, None))
            if draws := draws + end[-1] - place:
                twister.getrandbits(32 * draws)
            return twister.getstate()[1]  # type: ignore[no-any-return]
        twister.getrandbits(32 * (_WORDS - place + 1))  # to the first of the words that come then
        draws += _WORDS - place + 1
    raise ValueError("the one does not follow from the other")


def _of_torch(state: Any) -> _State:
    _, left, _, place, *words = _TORCH.unpack_from(state.numpy().tobytes())
    return (*words, _WORDS if left == 1 else place)


def _as_torch(state: _State, like: Any) -> Any:
    content = bytearray(like.numpy().tobytes())
    seed, _, seeded, _, *_ = _TORCH.unpack_from(content)
    *words, place = state
    _TORCH.pack_into(content, 0, seed, _WORDS + 1 - place, seeded, place, *words)
    return torch.frombuffer(content, dtype=torch.uint8)


def _pairs(rng: Rng) -> list[Any]:
    """The second of a normal pair, of each generator in which one waits."""
    double, is_double, single, is_single = _PAIR.unpack_from(rng.cpu.numpy().tobytes(), _TORCH.size)
    of_numpy = rng.numpy[4] if rng.numpy is not None and rng.numpy[3] else None
    return [rng.python[2], of_numpy, double if is_double else None, single if is_single else None]
