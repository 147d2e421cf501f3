"""Every rank of every example imports its framework anew; what nobody asks for waits until somebody does.

torch's compiler (``torch._dynamo``, with sympy) takes a quarter of that time, and is mostly imported in order
to keep it from compiling an optimizer, or to see whether a model was compiled. Nothing is compiled in the
examples. And who loads a million objects that all stay need not look for garbage among them.
"""

import gc
import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

_COMPILER = "torch._dynamo"


class OptimizedModule:
    """No model is one."""


def disable(function: Callable[..., Any] | None = None, *_: object, **__: object) -> Callable[..., Any]:
    """Nothing is compiled, this neither."""
    return disable if function is None else function


def graph_break(*_: object, **__: object) -> None:
    """There is no graph."""


class _Part:
    """What is asked of its modules."""

    OptimizedModule = OptimizedModule

    def __init__(self, name: str) -> None:
        self._name = name

    @staticmethod
    def get_optimize_ddp_mode() -> str:
        return "ddp_optimizer"

    @staticmethod
    def clear_lru_cache() -> None:
        """Every process group that is formed asks for that, also in the midst of a replacement."""

    def __getattr__(self, name: str) -> object:
        return getattr(import_module(f"{_COMPILER}.{self._name}"), name)


class _Compiler(ModuleType):
    """Few of its names; the real one is imported with the first other that is asked for."""

    disable = assume_constant_result = allow_in_graph = staticmethod(disable)
    graph_break = staticmethod(graph_break)
    OptimizedModule = OptimizedModule
    utils, eval_frame, trace_rules = _Part("utils"), _Part("eval_frame"), _Part("trace_rules")

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        if sys.modules.get(_COMPILER) is self:
            del sys.modules[_COMPILER]
            sys.meta_path.remove(_CompilerLater)
        return getattr(import_module(_COMPILER), name)


class _CompilerLater:
    """Finds ``torch._dynamo`` without importing it."""

    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None = None, _: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != _COMPILER:
            return None
        real = PathFinder.find_spec(name, path)
        if real is None:
            return None
        spec = ModuleSpec(name, _CompilerLater, origin=real.origin, is_package=True)  # type: ignore[arg-type]
        spec.submodule_search_locations = real.submodule_search_locations
        return spec

    @staticmethod
    def create_module(spec: ModuleSpec) -> ModuleType:
        return _Compiler(spec.name)

    @staticmethod
    def exec_module(_: ModuleType) -> None:
        """There is nothing to load yet."""


gc.set_threshold(100_000)
if "LIGHT_WITH_COMPILER" not in os.environ:  # who imports the compiler for itself needs all of it
    sys.meta_path.insert(0, _CompilerLater)
