"""Everything that a loader holds: in attributes, slots and short containers, and what its functions reach.

A function reaches what it encloses, its defaults, what its cache has, and the globals, modules and attributes
of modules that it names.
"""

import contextlib
import dis
import functools
import gc
import random
import site
import sys
import sysconfig
import types
from collections import deque
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch

import faultrun

_MOST_OBJECTS = 2000
MOST_ELEMENTS = 64
"""Elements of a container that is looked into: lists of transforms are short, lists of samples are not."""
SEEDS = "seed_seq"
"""Where one of numpy keeps how often others were spawned from it."""
PLAIN = (bool, int, float, str, type(None))
_LEAVES = (*PLAIN, bytes, torch.Tensor, torch.optim.Optimizer)
_NAMES = frozenset({"LOAD_GLOBAL", "IMPORT_NAME", "IMPORT_FROM"})
_PASSED_BY = frozenset({"_iterator", "_parameters", "_buffers"})
_LIBRARIES = sys.stdlib_module_names | {
    *("torch", "torchvision", "numpy", "scipy", "faultrun", "accelerate", "datasets", "transformers"),
    *("lightning", "lightning_fabric", "pytorch_lightning"),
}
_INSTALLED = (
    *(f"{sysconfig.get_path(kind)}/" for kind in ("stdlib", "platstdlib", "purelib", "platlib")),
    *(f"{one}/" for one in (*site.getsitepackages(), site.getusersitepackages())),
    *(f"{Path(one.__path__[0]).parent}/" for one in (torch, faultrun)),
)
"""Folders of libraries."""


def walk(loader: Any) -> Iterator[tuple[str, Any]]:
    """Everything that ``loader`` holds, with the way to it, which nothing else has; the nearest first."""
    waiting: deque[tuple[str, Any]] = deque([("", loader)])
    known: dict[int, Any] = {}
    paths: set[str] = set()
    while waiting and len(known) < _MOST_OBJECTS:
        path, one = waiting.popleft()
        if id(one) in known or isinstance(one, _LEAVES):
            continue
        known[id(one)] = one
        path = path if path not in paths else f"{path} {len(known)}"
        paths.add(path)
        yield path, one
        if is_generator(one):
            bits = getattr(one, "bit_generator", getattr(one, "_bit_generator", one))
            waiting.append((f"{path}.{SEEDS}", getattr(bits, SEEDS, None)))
        elif not type(one).__module__.startswith("faultrun."):
            waiting += [(f"{path}.{name}" if path else str(name), part) for name, part in _inside(one)]


def attributes(one: Any) -> dict[str, Any]:
    """What an object has of its own, in slots too."""
    found: dict[str, Any] = getattr(one, "__dict__", {})
    kind: Any = type(one)
    slots = _slots_of(kind)
    return {name: getattr(one, name) for name in slots if hasattr(one, name)} | found if slots else found


def is_of_library(one: Any) -> bool:
    """Whether a class, function or module is not of those who wrote the script."""
    name = one.__name__ if isinstance(one, types.ModuleType) else getattr(one, "__module__", None)
    package = (name or "").partition(".")[0]
    return package in _LIBRARIES and _is_installed(sys.modules.get(package))


@functools.cache
def _is_installed(package: types.ModuleType | None) -> bool:
    """Whether it lies where libraries do: a folder beside the script may be called ``datasets``, too."""
    places = *getattr(package, "__path__", ()), getattr(package, "__file__", None)
    return all(one is None or one.startswith(_INSTALLED) for one in places)


def is_generator(one: Any) -> bool:
    """Whether random numbers, or seeds, come from it, and nothing else knows of it."""
    if isinstance(one, torch.Generator):
        return one is not torch.default_generator
    if isinstance(one, random.Random):
        return one is not random.random.__self__  # type: ignore[attr-defined]
    if hasattr(type(one), "fast_forward") and hasattr(one, "num_generated"):
        return True  # SobolEngine and the like
    if (numpy := sys.modules.get("numpy.random")) is None:
        return False
    kinds = numpy.Generator, numpy.RandomState, numpy.BitGenerator, numpy.SeedSequence
    return isinstance(one, kinds) and one is not numpy.mtrand._rand


def is_open_iterator(one: Any) -> bool:
    """Whether it stands at a place that cannot be told: a generator, ``zip``, ``itertools.cycle``."""
    if isinstance(one, types.GeneratorType):
        return one.gi_frame is not None
    return hasattr(type(one), "__next__") and type(one).__module__ in ("builtins", "itertools", "_csv")


def _inside(one: Any) -> list[tuple[Any, Any]]:
    match one:
        case functools.partial():
            return [("func", one.func), ("args", one.args), ("keywords", one.keywords)]
        case types.MethodType():
            return [("self", one.__self__), ("func", one.__func__)]
        case types.FunctionType():
            return [] if is_of_library(one) else _reached_by(one)
        case type():
            return [] if is_of_library(one) else _of_class(one)
        case types.ModuleType():
            parts = [] if is_of_library(one) else [*vars(one).items()]
            return [(name, part) for name, part in parts if is_generator(part)]
        case dict() | list() | tuple() | set() | frozenset() | deque():
            first = next(iter(one.values() if isinstance(one, dict) else one), None)
            if len(one) > MOST_ELEMENTS and not is_generator(first):
                return []
            return [*(one.items() if isinstance(one, dict) else enumerate(one))]
        case functools._lru_cache_wrapper():
            return [] if is_of_library(one) else [("func", one.__wrapped__), ("cache", _cached_by(one))]
    found = [(name, part) for name, part in attributes(one).items() if name not in _PASSED_BY]
    return found + [pair for kind in type(one).__mro__ if not is_of_library(kind) for pair in _of_class(kind)]


def _cached_by(function: Any) -> dict[str, Any]:
    """What it has returned, which only the garbage collector tells: in a dict, or behind the dict's keys."""
    held = gc.get_referents(function)
    found = [one for one in held if type(one) is dict and one is not vars(function)]
    keys = {id(key) for cache in found for key in cache}
    pairs = [pair for cache in found for pair in cache.items()] + [*pairwise(held)]
    return {f"{key!r}": one for key, one in pairs if id(key) in keys}


def _of_class(kind: type) -> list[tuple[Any, Any]]:
    """Its functions, and what all of its objects share."""
    found = []
    for name, one in vars(kind).items():
        part = one.fget if isinstance(one, property) else getattr(one, "__func__", one)
        if isinstance(part, types.FunctionType) or not (name.startswith("__") or hasattr(part, "__set__")):
            found.append((name, part))
    return found


def _reached_by(function: types.FunctionType) -> list[tuple[Any, Any]]:
    found = [*vars(function).items(), *(function.__kwdefaults__ or {}).items()]
    found += [(f"default {number}", one) for number, one in enumerate(function.__defaults__ or ())]
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with contextlib.suppress(ValueError):  # it is empty
            found.append((name, cell.cell_contents))
    globals_, names = _named_in(function.__code__)
    package = function.__globals__.get("__package__")
    for name in sorted(globals_):
        imported = sys.modules.get(name), sys.modules.get(f"{package}.{name}")
        for one in (function.__globals__.get(name), *imported):
            found.append((name, one))
            if isinstance(one, types.ModuleType) and not is_of_library(one):
                found += [(part, vars(one)[part]) for part in sorted(names) if part in vars(one)]
    return found


@functools.cache
def _named_in(code: types.CodeType) -> tuple[frozenset[str], frozenset[str]]:
    """The globals and imports that it names, and whatever else: attributes, above all."""
    globals_ = {one.argval for one in dis.get_instructions(code) if one.opname in _NAMES}
    names = set(code.co_names)
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            more, others = _named_in(inner)
            globals_ |= more
            names |= others
    return frozenset(globals_), frozenset(names)


@functools.cache
def _slots_of(kind: Any) -> list[str]:
    slots = [vars(one).get("__slots__", ()) for one in kind.__mro__]
    return [name for names in slots for name in ((names,) if isinstance(names, str) else names)]
