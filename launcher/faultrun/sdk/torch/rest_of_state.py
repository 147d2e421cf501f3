"""What a framework's own checkpoint lacks: all else that the SDK knows of a state, in one more entry of it.

Trainer, Lightning and accelerate write models, optimizers, schedules and counters in their way, and read them
again. Steps change more than that: attributes of an optimizer, parameters of a criterion, buffers of which no
``state_dict`` tells, or that have another shape by now. ``rest_of`` is put beside what the framework writes,
and ``put_rest`` is called once it has read that.
"""

from collections.abc import Mapping
from typing import Any

from faultrun.sdk.torch.state.boundary import NOT_GIVEN
from faultrun.sdk.torch.state.state_dict import Parts, load_some

_WHOLE = ("buffers", "updated", "others")


def rest_of(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return of ``state``, as ``assemble`` makes it, what a framework knows nothing of."""
    return {
        **{name: state[name] for name in _WHOLE},
        "model": {name: one for name, one in state["model"].items() if name in state["buffers"]},
        "objects": {name: one for name, one in state["objects"].items() if name.startswith(NOT_GIVEN)},
    }


def put_rest(parts: Parts, rest: Mapping[str, Any], model: Mapping[str, Any], optimizer: Any = None) -> None:
    """Put it back, and of the ``model`` what is there by name; ``optimizer`` as ``assemble`` has it.

    Without one the optimizers stay as the framework has loaded them. Raises what ``load_some`` raises.
    """
    if optimizer is None:
        states = [one.state_dict() for one in parts.optimizers]
        optimizer = states[0] if len(states) == 1 else states
    named = {**parts.model.state_dict(), **model, **rest["model"]}
    load_some(parts, {**rest, "model": named, "optimizer": optimizer})
