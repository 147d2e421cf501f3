"""Digests of a training state, by which trainings are compared bit for bit. Imports no framework."""

import hashlib
from collections.abc import Mapping
from typing import Any

_DIGITS = 16
_NOT_STATE = frozenset({"tft_updates_begun", "epoch_num", "step_num", "loss_scale"})


def parameter_digests(arrays: Mapping[str, Any]) -> tuple[str, str]:
    """Of MindSpore's parameters, the optimizer's among them, by name: all of them are shared by all ranks.

    What a checkpoint appends to them, and the SDK's own counter, say nothing about the training.
    """
    hashed = hashlib.sha256()
    for name in sorted(arrays.keys() - _NOT_STATE):
        hashed.update(name.encode())
        hashed.update(arrays[name].tobytes())
    digest = hashed.hexdigest()[:_DIGITS]
    return digest, digest


def digests(model: Mapping[str, Any], optimizer: Mapping[str, Any]) -> tuple[str, str]:
    """Of what all ranks share, and of everything: the buffers of batch norm are a rank's own.

    ``model`` and ``optimizer`` are their ``state_dict``s, as they live or as they were saved.
    """
    shared = {name: one for name, one in model.items() if not name.endswith(("_mean", "_var", "_tracked"))}
    return _digest(shared, optimizer), _digest(model, optimizer)


def _digest(model: Mapping[str, Any], optimizer: Mapping[str, Any]) -> str:
    hashed = hashlib.sha256()
    for name in sorted(model):
        hashed.update(name.encode())
        hashed.update(_bytes(model[name]))
    for key, state in sorted(optimizer["state"].items()):
        for name, value in sorted(state.items()):
            hashed.update(f"{key} {name}".encode())
            hashed.update(_bytes(value) if hasattr(value, "numpy") else repr(value).encode())
    hashed.update(repr([group["lr"] for group in optimizer["param_groups"]]).encode())
    return hashed.hexdigest()[:_DIGITS]


def _bytes(tensor: Any) -> bytes:
    return bytes(tensor.detach().numpy().tobytes())
