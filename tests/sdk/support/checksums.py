"""Sums over a torch training state, by which two runs are compared bit for bit."""

import zlib
from typing import Any

import torch


def checksums(model: Any, optimizer: Any) -> tuple[str, str]:
    """Over what all ranks share, and over everything."""
    buffers = [name for name in sorted(model) if "running" in name or "tracked" in name]
    shared = checksum({name: one for name, one in model.items() if name not in buffers}, optimizer)
    return f"{shared:08x}", f"{checksum(model, optimizer):08x}"


def checksum(model: Any, optimizer: Any) -> int:
    crc = 0
    for name in sorted(model):
        crc = zlib.crc32(model[name].numpy().tobytes(), crc)
    for key in sorted(optimizer["state"]):
        for name, value in sorted(optimizer["state"][key].items()):
            crc = zlib.crc32(
                value.numpy().tobytes() if isinstance(value, torch.Tensor) else repr((name, value)).encode(),
                crc,
            )
    return zlib.crc32(repr([group["lr"] for group in optimizer["param_groups"]]).encode(), crc)


def local_tensors(state: Any) -> Any:
    """This rank's pieces in place of the DTensors of a live state, or of what a save holds of them."""
    if isinstance(state, dict):
        return state["local"] if "local" in state else {key: local_tensors(one) for key, one in state.items()}
    if isinstance(state, list):
        return [local_tensors(one) for one in state]
    return (
        getattr(state.detach(), "_local_tensor", state.detach()) if isinstance(state, torch.Tensor) else state
    )
