"""What a loader and all that it draws from keep of their own: random generators, orders, saved states.

Samplers, datasets, transforms and collate functions are found by walking from the loader through attributes,
short containers, closures and the globals that their functions name. Of each is kept

* a generator of torch, numpy or Python: its state;
* a sampler of the script's own: numbers and words among its attributes that have changed since, and as the
  loader is opened lists and arrays that have, such as an order that is shuffled in place;
* a sampler, dataset or collate function with ``load_state_dict``: its state as the loader is opened.

What cannot be positioned is refused by name.
"""

import functools
import inspect
import io
import pickle
import random
import sys
import types
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import torch

from faultrun.errors import FaultrunError
from faultrun.sdk.torch.state.rng import NumpyRng, PythonRng
from faultrun.sdk.worker.training_stages import told

_MOST_OBJECTS = 2000
_MOST_ELEMENTS = 64
"""Of a container that is looked into: lists of transforms are short, and lists of samples are not."""
_MOST_BYTES = 48 * 1024
"""Noted at every step."""
_LARGE_ORDER = _MOST_BYTES // 16
_PLAIN = (bool, int, float, str, type(None))
_LEAVES = (*_PLAIN, bytes, torch.Tensor, types.ModuleType, type)
_MARK = b"faultrun loader\n"
_PARTS = frozenset({"", "dataset", "sampler", "batch_sampler", "collate_fn"})
_PASSED_BY = frozenset({"_iterator", "_parameters", "_buffers"})
_LIBRARIES = frozenset(
    {"torch", "torchvision", "numpy", "builtins", "random", "collections", "functools", "faultrun"}
    | {"accelerate", "datasets", "transformers", "lightning", "lightning_fabric", "pytorch_lightning"}
)


class LoaderState:
    """Of one loader. Main thread, but ``get_state``. It is told and put as a ``torch.Generator``'s is."""

    def __init__(self, loader: Any) -> None:
        self._generators: dict[str, Any] = {}
        self._samplers: dict[str, Any] = {}
        self._stateful: dict[str, Any] = {}
        self._refused: FaultrunError | None = None
        for path, one in _walk(loader):
            part = path.rpartition(".")[2]
            if _is_generator(one):
                self._generators[path] = one
            elif isinstance(one, types.GeneratorType) and one.gi_frame is not None and "sampler" in path:
                self._refused = _refusal(path, "it was opened before the loader", "open it in __iter__")
            elif part in _PARTS and not _is_of_library(type(one)) and hasattr(one, "__dict__"):
                if "sampler" in part:
                    self._samplers[path] = one
                if hasattr(one, "load_state_dict") and not isinstance(one, torch.nn.Module):
                    self._stateful[path] = one
        inside = [path for path in self._generators if "sampler" not in path and path != "generator"]
        self._in_processes = ", ".join(inside) if getattr(loader, "num_workers", 0) else ""
        self._orders: dict[tuple[str, str], Any] = {}
        """The lists that samplers had first: kept, so that no other is taken for them."""
        self._first = {place: _sight(value) for place, value in self._fields()}
        self._last: tuple[bytes, Any] = b"", None
        self._seen: tuple[list[Any], list[Any]] | None = None
        self._readers: dict[str, Callable[[], Any]] = {}
        try:
            self._readers = {path: _reader_of(one) for path, one in self._generators.items()}
            self.get_state()
        except (NotImplementedError, AttributeError, TypeError, ValueError) as error:
            because = f"where they are is not told ({type(error).__name__}: {error})"
            hint = "draw from a torch.Generator, numpy's default_rng(seed) or random.Random(seed)"
            self._refused = _refusal(", ".join(self._generators), because, hint)

    def check(self) -> None:
        """Tell once what is not kept. FaultrunError: it cannot be positioned."""
        if self._refused is not None:
            raise self._refused
        if self._in_processes:
            told(
                f"{self._in_processes}: the loader's processes draw from copies of it, which begin anew with"
                " each rank; num_workers=0 brings it back, or numbers made from epoch and index"
            )
            self._in_processes = ""

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing that could change, or nothing that could be told."""
        return self._refused is not None or not (self._generators or self._samplers or self._stateful)

    def get_state(self, *, opening: bool = False) -> Any:
        """Its state; None if there is nothing. FaultrunError: it has become too large.

        ``opening``: as the loader is opened, with what is of use only then.
        """
        read = [read() for read in self._readers.values()]
        plain = [
            one for each in self._samplers.values() for one in vars(each).values() if isinstance(one, _PLAIN)
        ]
        if not opening and self._seen == (read, plain):
            return self._last[1]  # as at most steps: what an epoch draws, it draws as it begins
        self._seen = None if opening else (read, plain)
        generators = dict(zip(self._readers, read, strict=True))
        fields = {
            place: value
            for place, value in self._fields()
            if (opening or isinstance(value, _PLAIN)) and _sight(value) != self._first.get(place)
        }
        states = {path: _packed(one.state_dict()) for path, one in self._stateful.items() if opening}
        only = next(iter(self._generators.values()), None)
        if not (fields or states) and len(generators) <= 1 and isinstance(only, torch.Generator | None):
            self._last = b"", None if only is None else only.get_state()  # as always
            return self._last[1]
        content = _MARK + pickle.dumps((generators, fields, states), protocol=4)
        if len(content) > _MOST_BYTES:
            names = ", ".join([*generators, *map(".".join, fields), *states])
            because = f"{len(content)} bytes would have to be kept from epoch to epoch"
            raise _refusal(names, because, "make the order anew in __iter__, from the epoch or one generator")
        if self._last[0] != content:
            self._last = content, torch.frombuffer(bytearray(content), dtype=torch.uint8)
        return self._last[1]

    def set_state(self, state: Any) -> None:
        """Go on from what ``get_state`` told, in this process or another."""
        content = state.numpy().tobytes()
        if not content.startswith(_MARK):  # of the one generator that there is, or was in an earlier version
            for one in [one for one in self._generators.values() if isinstance(one, torch.Generator)][-1:]:
                one.set_state(state)
            return
        generators, fields, states = _Unpickler(io.BytesIO(content[len(_MARK) :])).load()
        for path in states.keys() & self._stateful.keys():
            self._stateful[path].load_state_dict(torch.load(io.BytesIO(states[path]), weights_only=True))
        for (path, name), value in fields.items():
            if path in self._samplers:
                _put_field(vars(self._samplers[path]), name, value)
        for path in generators.keys() & self._generators.keys():
            _put_state(self._generators[path], generators[path])

    def _fields(self) -> Iterator[tuple[tuple[str, str], Any]]:
        """What samplers keep in attributes: numbers, words, and orders.

        Not a large order that is another list each time: it is taken to follow from random numbers alone.
        """
        for path, one in self._samplers.items():
            for name, value in vars(one).items():
                if isinstance(value, _PLAIN):
                    yield (path, name), value
                elif _is_order(value):
                    first = self._orders.setdefault((path, name), value)
                    if first is value or len(value) <= _LARGE_ORDER:
                        yield (path, name), value.numpy() if isinstance(value, torch.Tensor) else value


class _Unpickler(pickle.Unpickler):
    """Of containers, numbers and arrays: nothing else is made, and nothing executed."""

    def find_class(self, module: str, name: str) -> Any:
        if module.partition(".")[0] != "numpy" or name not in ("_reconstruct", "ndarray", "dtype"):
            raise pickle.UnpicklingError(f"{module}.{name} in the state of a loader")
        return super().find_class(module, name)


def _walk(loader: Any) -> Iterator[tuple[str, Any]]:
    """Everything that ``loader`` holds, with the way to it; the nearest first."""
    waiting: deque[tuple[str, Any]] = deque([("", loader)])
    known: dict[int, Any] = {}
    while waiting and len(known) < _MOST_OBJECTS:
        path, one = waiting.popleft()
        if id(one) in known or isinstance(one, _LEAVES):
            continue
        known[id(one)] = one
        yield path, one
        if not _is_generator(one):
            waiting += [(f"{path}.{name}" if path else str(name), part) for name, part in _inside(one)]


def _inside(one: Any) -> list[tuple[Any, Any]]:
    match one:
        case functools.partial():
            return [("func", one.func), ("args", one.args), ("keywords", one.keywords)]
        case types.MethodType():
            return [("self", one.__self__), ("func", one.__func__)]
        case types.FunctionType():
            return _named_by(one)
        case dict() | list() | tuple() | set() | frozenset():
            parts = one.items() if isinstance(one, dict) else enumerate(one)
            return [*parts] if len(one) <= _MOST_ELEMENTS else []
    found = [(name, part) for name, part in getattr(one, "__dict__", {}).items() if name not in _PASSED_BY]
    for kind in type(one).__mro__:
        for name, part in () if _is_of_library(kind) else vars(kind).items():
            found += [(name, part)] if _is_generator(part) else []
            found += _named_by(part) if isinstance(part, types.FunctionType) else []
    return found


def _named_by(function: types.FunctionType) -> list[tuple[Any, Any]]:
    """What its code reaches besides its arguments: closures, and generators among the globals."""
    if (function.__module__ or "").partition(".")[0] in _LIBRARIES:
        return []
    named = ((name, function.__globals__.get(name)) for name in function.__code__.co_names)
    closed = inspect.getclosurevars(function).nonlocals
    return [*closed.items(), *(pair for pair in named if _is_generator(pair[1]))]


def _is_of_library(kind: type) -> bool:
    return kind.__module__.partition(".")[0] in _LIBRARIES


def _is_generator(one: Any) -> bool:
    """Whether random numbers come from it, and nobody else knows of it."""
    if isinstance(one, torch.Generator):
        return one is not torch.default_generator
    if isinstance(one, random.Random):
        return one is not random.random.__self__  # type: ignore[attr-defined]
    if (numpy := sys.modules.get("numpy.random")) is None:
        return False
    kinds = numpy.Generator, numpy.RandomState, numpy.BitGenerator
    return isinstance(one, kinds) and one is not numpy.mtrand._rand


def _reader_of(one: Any) -> Callable[[], Any]:
    """What tells its state, as what can be compared. Those with 2.5 KB of it are asked in the quick way."""
    if isinstance(one, torch.Generator):
        return lambda: one.get_state().numpy().tobytes()
    if isinstance(one, random.Random):
        return PythonRng(one).packed
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
    if hasattr(one, "set_state"):
        one.set_state(state)
    else:
        getattr(one, "bit_generator", one).state = state


def _is_order(value: Any) -> bool:
    """Whether it has numbers in an order."""
    if isinstance(value, list):
        return all(isinstance(one, int | float) for one in value[:1])
    return bool(getattr(value, "shape", ())) and hasattr(value, "dtype")


def _sight(value: Any) -> Any:
    """What tells whether it is the same as before, without a copy of all of it."""
    if isinstance(value, _PLAIN):
        return type(value), value
    return len(value), [str(one) for one in value[:: max(1, len(value) // _MOST_ELEMENTS)]]


def _put_field(attributes: dict[str, Any], name: str, value: Any) -> None:
    now = attributes.get(name)
    if isinstance(now, torch.Tensor):
        now.copy_(torch.as_tensor(value))
    elif isinstance(now, list) and isinstance(value, list):
        now[:] = value  # others may know it, too
    else:
        attributes[name] = value


def _packed(state: Any) -> bytes:
    content = io.BytesIO()
    torch.save(state, content)
    return content.getvalue()


def _refusal(path: str, because: str, hint: str) -> FaultrunError:
    what = "guard.batches cannot find a place in this loader again"
    return FaultrunError(what, because=f"{path}: {because}", hint=hint)
