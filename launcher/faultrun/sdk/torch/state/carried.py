"""What a script carries from one step into the next beside what is protected: it is told, as none is saved.

* A batch that was drawn in the step before shows where a step comes again, and the model is given another.
* A loader that the script has opened itself shows between two steps.
* Gradients that a step ends with show where the next update is made of them, too.
"""

import gc
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import torch
from torch.utils.data import dataloader

from faultrun.sdk.torch.state.shards import is_dtensor
from faultrun.sdk.worker.training_stages import told

_LOOKED_AT = 3
"""Steps in which gradients are looked for, and parameters of an optimizer that are looked at."""


class Carried:
    """Watches one training for it. Main thread. ``backward``: called as the backward pass of a step begins.

    ``optimizers``: those whose updates are watched.
    """

    def __init__(self, note_inputs: Callable[[Any], None], backward: Callable[[], None]) -> None:
        self._note_inputs, self._backward = note_inputs, backward
        self.is_given = False
        """Whether the model was called since the last boundary."""
        self.is_late = False
        """Whether steps draw numbers or change objects behind the forward pass: ``backward`` counts."""
        self._steps = 0
        self._left_over: dict[int, bool] = {}
        """By parameter that is looked at, whether what the last step left was added to."""
        self._hooks: list[Any] = []
        self._told: set[str] = set()

    def watch(self, modules: Iterable[Any], optimizers: Iterable[Any]) -> list[Any]:
        """Put hooks on these modules and optimizers; each hook has ``remove``."""
        for optimizer in optimizers:
            trained = (one for group in optimizer.param_groups for one in group["params"])
            plain = [one for one in trained if one.requires_grad and one.is_leaf and not is_dtensor(one)]
            some = [*plain[:_LOOKED_AT], *plain[_LOOKED_AT:][-1:]]  # the last may be a criterion's
            for one in some:
                with torch.enable_grad():
                    accumulates = one.view_as(one).grad_fn.next_functions[0][0]
                self._hooks.append(accumulates.register_prehook(partial(self._added_to, one, accumulates)))
            self._hooks.append(optimizer.register_step_pre_hook(partial(self._updates, [*map(id, some)])))
        hooks = [*self._hooks]
        for one in modules:
            hooks.append(one.register_forward_pre_hook(self._before_forward, with_kwargs=True))
            hooks.append(one.register_forward_hook(self._after_forward))
        return hooks

    def stepped(self, *, in_loop: bool) -> None:
        """A step has ended."""
        self._steps += 1
        self.boundary()
        if self._steps == 2 and not in_loop:
            self.look_for_loaders()
        if self._steps == _LOOKED_AT:
            for one in self._hooks:
                one.remove()
            self._hooks.clear()

    def boundary(self) -> None:
        """A step, or an epoch, begins."""
        self.is_given = False
        self._left_over.clear()

    def look_for_loaders(self) -> None:
        """Tell of a loader that is open now, while no loop over ``guard.batches`` is."""
        ours = dataloader._BaseDataLoaderIter
        for one in gc.get_objects():
            if not issubclass(type(one), ours) or not type(one).__module__.startswith("torch."):
                continue
            if not getattr(one, "_persistent_workers", False):  # of an evaluation, too
                self._tell(
                    "a DataLoader is open that guard.batches has not opened: where it stands is in no state,"
                    " and a rank that starts again begins it anew; give it to guard.batches"
                )

    def _before_forward(self, model: Any, args: Any, kwargs: Any) -> None:
        if model.training and not self.is_given:
            self.is_given = True
            self._note_inputs((args, kwargs))

    def _after_forward(self, model: Any, _args: Any, output: Any) -> None:
        if model.training and self.is_late:
            begins_from(output, self._backward)

    def _added_to(self, parameter: Any, _accumulates: Any, _gradients: Any) -> None:
        """Gradients are about to be added up, ``_accumulates`` being kept alive for it."""
        if parameter.is_cuda and torch.cuda.is_current_stream_capturing():
            return  # the device may not be waited for then
        left = parameter.grad is not None and bool(parameter.grad.any())
        self._left_over[id(parameter)] = left and self._left_over.get(id(parameter), self._steps > 0)

    def _updates(self, parameters: list[int], optimizer: Any, *_: Any) -> None:
        if any(self._left_over.get(one) for one in parameters):
            self._tell(
                f"gradients of {type(optimizer).__name__} that a step has left are added to in the next: they"
                " are in no state, and after a fault training goes on without them"
            )

    def _tell(self, what: str) -> None:
        if what not in self._told:
            self._told.add(what)
            told(what)


def begins_from(output: Any, call: Callable[[], None]) -> None:
    """Have ``call`` called as a backward pass begins at this output of a model, if one does."""
    if isinstance(output, dict):
        output = [*output.values()]
    for one in output if isinstance(output, list | tuple) else (output,):
        if isinstance(one, torch.Tensor) and one.requires_grad:
            one.register_hook(lambda _: call())
            return
