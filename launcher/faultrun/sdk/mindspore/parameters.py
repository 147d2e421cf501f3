"""The parameters of a network as another thread may read them: copies made between steps, views, and marks.

On the CPU ``Parameter.asnumpy()`` is a view of the very memory that the graph works on, at the same address
for the whole training (MindSpore 2.10, graph and PyNative mode); another thread can read it without calling
MindSpore. On other devices only copies made by the main thread can be used.
"""

import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import mindspore
import numpy as np
from mindspore import Parameter, Tensor, nn, ops

from faultrun.sdk.worker.save_files import Position

_COUNTER = "tft_updates_begun"
"""The parameter that counts updates; no part of a training's state."""
_SHARED = (
    "param_rank", "optim_filter", "loss_scale", "dynamic_weight_decay", "grad_centralization", "dynamic_lr",
    "global_step", "is_group", "is_group_lr", "is_group_params_ordered", "use_parallel", "group_params",
    "group_lr", "group_weight_decay", "group_grad_centralization", "grad_centralization_flags",
    "skip_auto_parallel_compile", "learning_rate", "parameters", "_parameters", "decay_flags",
    "dynamic_decay_flags", "weight_decay", "exec_weight_decay", "cache_enable", "reciprocal_scale",
    "need_scale", "global_step_increase_tensor", "param_length", "enable_tuple_broaden",
)  # fmt: skip


class HostState(NamedTuple):
    """Arrays by parameter name, with the place they belong to: MindSpore's epochs and steps count from 1."""

    position: Position
    arrays: dict[str, Any]


class HostMemory:
    """The parameters of ``network``. The main thread copies them; the helper thread reads under ``lock``.

    ``marked`` are those that change in marked updates only (``MarkingOptimizer``);
    of the others ``early`` holds a copy, made at every boundary.
    """

    def __init__(self, network: Any, marked: frozenset[str] = frozenset()) -> None:
        network.init_parameters_data()
        self._parameters = {
            one.name: one for _, one in network.parameters_and_names() if one.name != _COUNTER
        }
        self.dtypes = {name: one.dtype for name, one in self._parameters.items()}
        self.lock = threading.Lock()
        self.newest: HostState | None = None
        self._copies: dict[str, Any] | None = None
        self.views = self._views()
        unmarked = self._parameters.keys() - marked if marked else ()
        self.early = {name: np.copy(self._parameters[name].asnumpy()) for name in unmarked}

    def settle(self) -> None:
        """Wait for what PyNative mode has only queued, for ever where that needs a dead peer; main thread."""
        held = list(self._parameters.values())
        for one in held if self.views is not None else held[-1:]:
            one.asnumpy()  # of a device the last one alone: its work is in order

    def copy(self, position: Position) -> None:
        """Copy every parameter; main thread only, between steps."""
        with self.lock:
            if self._copies is None:
                self._copies = {name: np.copy(one.asnumpy()) for name, one in self._parameters.items()}
            else:
                for name, one in self._parameters.items():
                    np.copyto(self._copies[name], one.asnumpy())
            self.newest = HostState(position, self._copies)

    def copy_early(self) -> None:
        """Copy what may change before the next update; main thread only, between steps, under ``lock``."""
        for name, copy in self.early.items():
            np.copyto(copy, self._parameters[name].asnumpy())

    def _views(self) -> dict[str, Any] | None:
        """Views that stay what the graph works on; None where there are none."""
        if mindspore.get_context("device_target") != "CPU":
            return None
        views = {name: one.asnumpy() for name, one in self._parameters.items()}
        plain = all(isinstance(one, np.ndarray) and one.dtype != object for one in views.values())
        return views if plain and self._are_live(views) else None

    def views_are_live(self) -> bool:
        """Whether the parameters still lie where they did; main thread only, between steps."""
        return self.views is not None and self._are_live(self.views)

    def _are_live(self, views: dict[str, Any]) -> bool:
        return all(_address(one) == _address(self._parameters[name].asnumpy()) for name, one in views.items())


def _address(array: Any) -> int:
    address: int = array.__array_interface__["data"][0]
    return address


class MarkingOptimizer(nn.Optimizer):  # type: ignore[misc]  # MindSpore has no types
    """Wraps ``opt``, whose numbers stay what they are; one addition a step. TypeError: not an Optimizer.

    It marks the beginning of its updates, so that another thread knows that none has begun. In data
    parallel training a graph updates some parameters while the gradients of others are still being
    reduced; a peer that dies then leaves survivors with half an update. Here every update waits for all
    gradients, and then for a counter that is raised first. While the counter has not moved, the parameters
    are those of the step before, however long the main thread hangs.
    """

    def __init__(self, opt: Any, **_kwargs: Any) -> None:
        if not isinstance(opt, nn.Optimizer):
            raise TypeError(f"OptTFTWrapper wraps a mindspore.nn.Optimizer, not {type(opt).__name__}")
        super().__init__(opt.learning_rate, list(opt.parameters))
        self.opt = opt
        for name in _SHARED:
            if hasattr(opt, name):
                setattr(self, name, getattr(opt, name))
        self.tft_updates_begun = Parameter(Tensor([0], mindspore.int32), name=_COUNTER, requires_grad=False)
        self.one = Tensor([1], mindspore.int32)
        self.depend = ops.Depend()
        self.add = ops.AssignAdd()

    def construct(self, gradients: Any) -> Any:
        """Raise the counter, then have the wrapped optimizer make its update."""
        one = self.depend(self.one, gradients)
        begun = self.add(self.tft_updates_begun, one)
        gradients = self.depend(gradients, begun)
        return self.opt(gradients)


def mark_updates(network: Any) -> bool:
    """Have the optimizer of ``network`` mark its updates; whether it does now.

    Before the network's first step only: later a compiled graph would go on with the optimizer it has. A
    network with several optimizers, or with one that cannot be wrapped, stays as it is.
    """
    if begun_counter(network) is not None:
        return True
    if getattr(network, "compile_cache", None):
        return False
    found = [
        (cell, name, child)
        for _, cell in network.cells_and_names()
        for name, child in cell.name_cells().items()
        if isinstance(child, nn.Optimizer)
    ]
    if len(found) != 1:
        return False
    cell, name, optimizer = found[0]
    try:
        marking = MarkingOptimizer(optimizer)
    except (TypeError, ValueError, RuntimeError):
        return False
    setattr(cell, name, marking)
    return True


def updated_in_marks(network: Any) -> frozenset[str]:
    """The parameters that only a marked update changes: the trained ones, and the optimizer's states of them.

    Others change when they like: batch norm's averages in the forward pass,
    a loss scale, the optimizer's own count of steps.
    """
    for _, cell in network.cells_and_names():
        if isinstance(cell, MarkingOptimizer):
            trained = [one for one in cell.opt.parameters if isinstance(one, Parameter)]
            shapes = {tuple(one.shape) for one in trained if one.size > 1}
            states = [one for one in cell.opt.get_parameters() if tuple(one.shape) in shapes]
            return frozenset(one.name for one in (*trained, *states) if one.size > 1)
    return frozenset()


def begun_counter(network: Any) -> Callable[[], int] | None:
    """Reads the counter of the network's optimizer from any thread; None when its optimizer does not mark.

    Only where parameters can be read in place (``HostMemory``).
    """
    for _, parameter in network.parameters_and_names():
        if parameter.name == _COUNTER:
            view = parameter.asnumpy()
            return lambda: int(view[0])
    return None
