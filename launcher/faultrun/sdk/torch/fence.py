"""Has the device done what the program has asked for so far? The CPU always has.

A CUDA program runs ahead of its device: ``optimizer.step()`` returns although
the gradients it uses hang in a collective for ever. What the device has
really done is told by events that were recorded along the way.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

Fence = Callable[[], bool]
"""Whether the device has come past this place. Never waits."""

Fences = Callable[[], Fence]
"""Puts up a fence at the place that the program has reached now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """Where the parameters are. The program may be ``ahead`` by so many steps and still be saved.

    ``fence`` is None when the device is never behind; ``to_host`` returns a state with all tensors on the
    CPU; ``rng`` asks for the state of the device's random numbers, None when there are none but the CPU's.
    """

    fence: Fences | None
    ahead: int
    to_host: Callable[[Any], Any]
    rng: Callable[[], Any] | None = None


def device_of(model: Any) -> Device:
    """The device of the model's first parameter; the CPU for a model without any."""
    first = next(iter(model.parameters()), None)
    if first is None or first.device.type != "cuda":
        return Device(fence=None, ahead=2, to_host=_as_it_is)
    device = first.device
    return Device(
        fence=_cuda_fence,
        ahead=64,
        to_host=lambda state: _from_cuda(state, device),
        rng=lambda: torch.cuda.get_rng_state(device),
    )


def _cuda_fence() -> Fence:
    event = torch.cuda.Event()
    event.record()
    passed: Fence = event.query
    return passed


def _as_it_is(state: Any) -> Any:
    return state


def _from_cuda(state: Any, device: Any) -> Any:
    """On a stream of our own: the default one may be blocked behind the collective that hangs.

    Into pageable memory, for pinning memory waits for the device.
    """
    stream = torch.cuda.Stream(device)
    with torch.cuda.stream(stream):
        moved = map_tensors(state, lambda tensor: tensor.to("cpu") if tensor.is_cuda else tensor)
    stream.synchronize()
    return moved


def map_tensors(value: Any, change: Callable[[Any], Any]) -> Any:
    """``value`` with ``change`` applied to every tensor in it; containers are new, of the same kinds."""
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, dict):
        items = ((key, map_tensors(one, change)) for key, one in value.items())
        return type(value)(items) if type(value) is not dict else dict(items)
    if type(value) in (list, tuple):
        return type(value)(map_tensors(one, change) for one in value)
    return value
