"""What a loader and all that it draws from keep of their own: random generators, orders, saved states.

Of what is found in ``held_objects`` is kept

* a generator of torch, numpy or Python: its state;
* a sampler of the script's own: numbers, words, short containers and small arrays among its attributes, and
  as the loader is opened larger ones, such as an order that is shuffled in place;
* a sampler, dataset or collate function with ``load_state_dict``: its state as the loader is opened;
* the numbers with which a loader that reads ahead has fetched the batch that comes next.

What cannot be positioned is refused by name.
"""

import io
import pickle
import random
from collections.abc import Callable, Iterator
from typing import Any

import torch

from faultrun.errors import FaultrunError
from faultrun.sdk.torch.loader import held_objects
from faultrun.sdk.torch.loader.held_objects import PLAIN, attributes, is_of_library
from faultrun.sdk.torch.loader.kept_values import LARGE, SMALL, elements_of, is_kept, put_field, sight_of
from faultrun.sdk.torch.state.rng import NumpyRng, PythonRng, Rng, restore_rng
from faultrun.sdk.worker.training_stages import told

_MOST_BYTES = 48 * 1024
"""Noted at every step."""
_MARK = b"faultrun loader\n"
_PARTS = frozenset({"", "dataset", "sampler", "batch_sampler", "collate_fn"})
_Place = tuple[str, str]


class LoaderState:
    """Saves and restores what a loader keeps, like a ``torch.Generator``. Main thread, but ``get_state``."""

    def __init__(self, *loaders: Any, reads_ahead: bool = False) -> None:
        self._loader, self._reads_ahead = loaders if loaders[1:] else loaders[0], reads_ahead
        self._generators: dict[str, Any] = {}
        self._samplers: dict[str, Any] = {}
        self._stateful: dict[str, Any] = {}
        self._open: dict[str, Any] = {}
        self._apart = any(getattr(one, "num_workers", 0) for one in loaders)
        """Whether processes read, for which the sampler is some batches ahead."""
        self._orders: dict[_Place, Any] = {}
        """The lists and arrays that samplers had first: kept, so that no other is taken for them."""
        self._first: dict[_Place, Any] = {}
        """What samplers had first: all that is not too large to be put back, else a digest."""
        self._settled: dict[_Place, Any] = {}
        """What is not small, once an epoch has begun."""
        self._ended: dict[_Place, Any] = {}
        """What was large as the last epoch ended."""
        self._made_between: set[_Place] = set()
        """What the script has made anew between two epochs, and no random numbers alone."""
        self._looks = 0
        self._fetched_with: Any = None
        self._last: tuple[bytes, Any] = b"", None
        self._seen: Any = None
        self._readers: dict[str, Callable[[], Any]] = {}
        self._refused: FaultrunError | None = None
        self._told = False
        self.look()

    def look_again(self) -> None:
        """Find the generators that were made since, such as one that the first sample has needed."""
        self._find_generators(dict(held_objects.walk(self._loader)))

    def look(self) -> None:
        """Find what it holds now, before it is opened: it may be more than there was."""
        found = dict(held_objects.walk(self._loader))
        self._refused = None
        was_open, self._open = self._open, {}
        for path, one in found.items():
            part, of_sampler = path.rpartition(".")[2], "sampler" in path
            if path and held_objects.is_open_iterator(one):
                self._open[path] = one
                if of_sampler or was_open.get(path) is one:
                    because = "it was opened before the loader, and goes on from epoch to epoch"
                    self._refused = _refusal(path, because, "open it in __iter__")
            elif is_of_library(type(one)) or not attributes(one):
                continue
            elif of_sampler and (part in _PARTS or hasattr(type(one), "__iter__")):
                self._samplers[path] = one
            if part in _PARTS and hasattr(one, "load_state_dict") and not isinstance(one, torch.nn.Module):
                self._stateful[path] = one
        large = self._large()
        for place, one in self._ended.items():
            if one is not large.get(place, one) and not hasattr(self._samplers[place[0]], "set_epoch"):
                self._made_between.add(place)
        self._ended = {}
        for place, value in self._fields():
            self._first.setdefault(place, sight_of(value))
        self._find_generators(found)

    def _find_generators(self, found: dict[str, Any]) -> None:
        self._generators = {path: one for path, one in found.items() if held_objects.is_generator(one)}
        self._settled, self._looks, self._seen = {}, 0, None
        try:
            self._readers = {path: _reader_of(one) for path, one in self._generators.items()}
            self.get_state()
        except (NotImplementedError, AttributeError, TypeError, ValueError) as error:
            because = f"where they are is not told ({type(error).__name__}: {error})"
            hint = "draw from a torch.Generator, numpy's default_rng(seed) or random.Random(seed)"
            self._refused = _refusal(", ".join(self._generators), because, hint)
        self._settled, self._looks = {}, 0

    def check(self, state: Any = None) -> None:
        """Tell once what is not kept. FaultrunError: it cannot be positioned, or not where ``state`` is."""
        if names := self.lacks(state):
            because = "random numbers were drawn from it, and it is not there with the first batch"
            hint = "make it where its owner is made, not in a later sample"
            self._refused = _refusal(", ".join(names), because, hint)
        if self._refused is not None:
            raise self._refused
        own = [path for path in self._generators if not path.endswith(held_objects.SEEDS)]
        inside = [path for path in own if "sampler" not in path and path != "generator"]
        if inside and self._apart and not self._told:
            told(
                f"{', '.join(inside)}: the loader's processes draw from copies of it, which begin anew with"
                " each rank; num_workers=0 brings it back, or numbers made from epoch and index"
            )
            self._told = True

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing that could change, or nothing that could be told."""
        known = self._generators or self._samplers or self._stateful or self._reads_ahead
        return self._refused is not None or not known

    def lacks(self, state: Any) -> list[str]:
        """Names of generators whose ``state`` it is, and which are not there."""
        content = b"" if state is None or self._apart else state.numpy().tobytes()
        there = _unpickled(content)[0].keys() if content.startswith(_MARK) else ()
        return [path for path in there if path not in self._generators]

    def fetches(self) -> None:
        """A batch is about to be asked for, with these random numbers."""
        if self._reads_ahead:
            shared = torch.default_generator.get_state().numpy().tobytes(), _PYTHON.packed(), _NUMPY.packed()
            self._fetched_with = shared, {path: read() for path, read in self._readers.items()}

    def fetches_as(self, state: Any) -> None:
        """The last batch before the place of ``state`` is about to be read again: as it was then."""
        content = b"" if state is None else state.numpy().tobytes()
        if not (self._reads_ahead and content.startswith(_MARK)):
            return
        if (then := _unpickled(content)[3:]) and then[0] is not None:
            (cpu, python, numpy), generators = then[0]
            words = torch.frombuffer(bytearray(cpu), dtype=torch.uint8)
            both = PythonRng.unpacked(python), NumpyRng.unpacked(numpy) if numpy[0] else None
            restore_rng(Rng(words, *both, None, None))
            for path in generators.keys() & self._generators.keys():
                _put_state(self._generators[path], generators[path])

    def get_state(self, *, opening: bool = False) -> Any:
        """Its state; None if there is nothing. FaultrunError: it has become too large.

        ``opening``: as the loader is opened, with what is of use only then.
        """
        read = [read() for read in self._readers.values()]
        fields = {place: value for place, value in self._fields() if opening or elements_of(value) <= SMALL}
        seen = read, {place: sight_of(value) for place, value in fields.items()}, self._fetched_with, opening
        if not opening:
            self.check_settled()
        if self._seen == seen:
            return self._last[1]  # as at most steps: what an epoch draws, it draws as it begins
        self._seen = seen
        generators = dict(zip(self._readers, read, strict=True))
        changed = {
            place: value for place, value in fields.items() if seen[1][place] != self._first.get(place)
        }
        states = {path: _packed(one.state_dict()) for path, one in self._stateful.items() if opening}
        content = _MARK + pickle.dumps((generators, changed, states, self._fetched_with, opening), protocol=4)
        if len(content) > _MOST_BYTES:
            names = ", ".join([*generators, *map(".".join, changed), *states])
            because = f"{len(content)} bytes would have to be kept from epoch to epoch"
            raise _refusal(names, because, "make the order anew in __iter__, from the epoch or one generator")
        if self._last[0] != content:
            self._last = content, torch.frombuffer(bytearray(content), dtype=torch.uint8)
        return self._last[1]

    def set_state(self, state: Any) -> None:
        """Go on from what ``get_state`` told, in this process or another."""
        self.look_again()
        content = state.numpy().tobytes()
        if not content.startswith(_MARK):  # of the one generator that there was in an earlier version
            for one in [one for one in self._generators.values() if isinstance(one, torch.Generator)][-1:]:
                one.set_state(state)
            return
        generators, fields, states, *more = _unpickled(content)
        opening = bool(more) and more[1]
        comes_by_itself = self._apart and not opening  # as far as processes have read ahead
        for path in states.keys() & self._stateful.keys():
            self._stateful[path].load_state_dict(torch.load(io.BytesIO(states[path]), weights_only=True))
        first = {place: one for place, one in self._first.items() if not isinstance(one, bytes)}
        for place, one in self._first.items():
            if isinstance(one, bytes) and one[:1] == pickle.PROTO:
                value = _Unpickler(io.BytesIO(one)).load()
                first |= {place: value} if opening or elements_of(value) <= SMALL else {}
        for (path, name), value in {**first, **fields}.items():
            if path in self._samplers and not (comes_by_itself and isinstance(value, PLAIN)):
                put_field(self._samplers[path], name, value)
        for path in generators.keys() & self._generators.keys():
            if not (comes_by_itself and "sampler" in path):
                _put_state(self._generators[path], generators[path])
        self._settled, self._looks, self._seen = {}, 0, None

    def _fields(self) -> Iterator[tuple[_Place, Any]]:
        """What samplers keep in attributes: numbers, words, short containers, and orders.

        Not a large order that is another list each time, made as the loader is opened: it is taken to follow
        from random numbers alone.
        """
        for path, one in self._samplers.items():
            for name, value in attributes(one).items():
                if is_kept(value):
                    place = path, name
                    first = self._orders.setdefault(place, value) if elements_of(value) > LARGE else value
                    if first is value or place in self._made_between:
                        yield place, value.numpy() if isinstance(value, torch.Tensor) else value

    def _large(self) -> dict[_Place, Any]:
        """What is large among these attributes, itself: kept, so that no other is taken for it."""
        return {
            (path, name): value
            for path, one in self._samplers.items()
            for name, value in attributes(one).items()
            if is_kept(value) and elements_of(value) > LARGE
        }

    def is_opened(self) -> None:
        """Orders have been drawn: from here on steps must not change what is large."""
        self._settled, self._looks = {}, 0

    def ends(self) -> None:
        """The loop over an epoch has ended; what the script makes from here on is of no loop."""
        self._ended = self._large()

    def check_settled(self, *, ends: bool = False) -> None:
        """FaultrunError for what steps have changed and is too large to be noted at each."""
        self._looks += 1
        if self._looks & (self._looks - 1) and not ends:
            return  # in the first step, the second, the fourth
        now = {place: sight_of(value) for place, value in self._fields() if elements_of(value) > SMALL}
        self._settled = self._settled or now
        for place in self._settled.keys() & now.keys():
            if self._settled[place] != now[place]:
                because = "steps change it, and it is too large to be noted at each"
                hint = f"change it between two epochs, or have {SMALL} numbers in it at most"
                raise _refusal(".".join(place), because, hint)


class _Unpickler(pickle.Unpickler):
    """Unpickles containers, numbers and arrays: nothing else is made, and nothing executed."""

    def find_class(self, module: str, name: str) -> Any:
        known = module.partition(".")[0] == "numpy" and name in ("_reconstruct", "ndarray", "dtype", "scalar")
        if not known and (module, name) not in (("builtins", "set"), ("collections", "deque")):
            raise pickle.UnpicklingError(f"{module}.{name} in the state of a loader")
        return super().find_class(module, name)


_PYTHON, _NUMPY = PythonRng(), NumpyRng()


def _unpickled(content: bytes) -> Any:
    return _Unpickler(io.BytesIO(content[len(_MARK) :])).load()


def _reader_of(one: Any) -> Callable[[], Any]:
    """What tells its state, as what can be compared. Those with 2.5 KB of it are asked in the quick way."""
    if isinstance(one, torch.Generator):
        return lambda: one.get_state().numpy().tobytes()
    if isinstance(one, random.Random):
        return PythonRng(one).packed
    if hasattr(one, "num_generated"):
        return lambda: one.num_generated
    bits = getattr(one, "bit_generator", None) or getattr(one, "_bit_generator", one)
    if type(bits).__name__ == "PCG64":
        return lambda: bits.state  # of numbers alone
    if hasattr(one, "get_state"):
        is_usual = type(bits).__name__ == "MT19937"
        return NumpyRng(one).packed if is_usual else lambda: pickle.dumps(one.get_state(legacy=False))
    return lambda: pickle.dumps(bits.state)


def _put_state(one: Any, state: Any) -> None:
    if isinstance(one, torch.Generator):
        one.set_state(torch.frombuffer(bytearray(state), dtype=torch.uint8))
        return
    if isinstance(one, random.Random):
        one.setstate(PythonRng.unpacked(state))
        return
    if isinstance(state, bytes):
        pickled = state[:1] == pickle.PROTO
        state = _Unpickler(io.BytesIO(state)).load() if pickled else NumpyRng.unpacked(state)
    if hasattr(one, "num_generated"):
        one.reset()
        one.fast_forward(state)
    elif hasattr(one, "spawn_key"):
        one.__init__(**state)
    elif hasattr(one, "set_state"):
        one.set_state(state)
    else:
        getattr(one, "bit_generator", one).state = state


def _packed(state: Any) -> bytes:
    content = io.BytesIO()
    torch.save(state, content)
    return content.getvalue()


def _refusal(path: str, because: str, hint: str) -> FaultrunError:
    what = "guard.batches cannot find a place in this loader again"
    return FaultrunError(what, because=f"{path}: {because}", hint=hint)
