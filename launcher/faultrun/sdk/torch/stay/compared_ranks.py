"""What ranks tell each other behind a few steps, over the store of their group; no rank waits for another.

The rank that comes second compares, and writes down what it finds, of which the others hear in their next
look.
"""

import json
import zlib
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from faultrun.sdk.session import Session
from faultrun.sdk.torch.group.same_parameters import sample_of
from faultrun.sdk.torch.group.same_settings import group_store
from faultrun.sdk.torch.state.boundary import Objects
from faultrun.sdk.torch.state.rng import NumpyRng, PythonRng
from faultrun.sdk.torch.state.trees import map_tensors


class ComparedRanks:
    """Finds what of a rank's state others could not do their work with, in healthy steps."""

    def __init__(self, session: Session, objects: Objects) -> None:
        self._session, self._objects = session, objects
        self._generators = ("Python's random", PythonRng()), ("numpy.random", NumpyRng())
        self._last: dict[str, int] = {}
        self.alike: set[str] = set()
        """Generators that all ranks draw the same numbers from, as for what they decide together."""
        self.unlike: set[str] = set()
        """Names of ``objects`` that differ from rank to rank."""

    def look(self, step: int) -> None:
        """Compare, behind ``step``, with the rank that came first."""
        now = {name: zlib.crc32(one.packed()) for name, one in self._generators}
        drawn = {name for name in now if self._last.get(name, now[name]) != now[name]}
        self._last = now
        objects = {
            name: zlib.crc32(repr(map_tensors(one, sample_of)).encode())
            for name, one in self._objects.own_states().items()
        }
        if (store := group_store()) is None:
            return
        key = f"faultrun/{self._session.incarnation}/compared"
        with suppress(RuntimeError, ValueError):  # a store that goes away may answer nothing
            told = store.compare_set(f"{key}/{step}", "", json.dumps([self._session.rank, now, objects]))
            first, its_numbers, its_objects = json.loads(bytes(told))
            if first != self._session.rank:
                self.alike |= {name for name in drawn if its_numbers[name] == now[name]}
                self.unlike |= {name for name, one in objects.items() if its_objects.get(name, one) != one}
            for kind, found, names in (("alike", self.alike, now), ("unlike", self.unlike, objects)):
                _share(store, f"{key}/{kind}", found, names)


def _share(store: Any, key: str, found: set[str], names: Mapping[str, int]) -> None:
    """Tell the others what was found, and hear what they have. RuntimeError: the store is gone."""
    for name in names:
        if name in found:
            store.set(f"{key}/{name}", b"1")
        elif store.check([f"{key}/{name}"]):
            found.add(name)
