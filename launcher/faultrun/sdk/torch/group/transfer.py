"""One rank's state to another over the process group: a plan, then tensor after tensor from where it lies."""

from typing import Any

import torch
import torch.distributed as dist

from faultrun.sdk.torch.state.packing import filled, opened, pack, places


def send(state: Any, to: int, device: Any) -> None:
    """Send ``state`` to rank ``to``, which receives. RuntimeError: it is gone."""
    packed = pack(state)
    plan = torch.frombuffer(bytearray(packed.plan), dtype=torch.uint8).to(device)
    dist.send(torch.tensor([plan.numel()], dtype=torch.int64, device=device), to)
    dist.send(plan, to)
    for tensor in packed.tensors:
        if tensor.numel():
            dist.send(_bytes_of(tensor).to(device), to)


def receive(source: int, device: Any) -> Any:
    """What rank ``source`` sends, on the CPU. RuntimeError: it is gone."""
    size = torch.zeros(1, dtype=torch.int64, device=device)
    dist.recv(size, source)
    plan = torch.empty(int(size), dtype=torch.uint8, device=device)
    dist.recv(plan, source)
    state = opened(plan.cpu().numpy().tobytes())
    tensors = places(state)
    for tensor in tensors:
        if tensor.numel():
            incoming = torch.empty_like(_bytes_of(tensor), device=device)
            dist.recv(incoming, source)
            _bytes_of(tensor).copy_(incoming)
    return filled(state, tensors)


def exchanged(numbers: list[int], device: Any) -> list[list[int]]:
    """The numbers of all ranks, by rank; each gives as many. RuntimeError: one is gone."""
    own = torch.tensor(numbers, dtype=torch.int64, device=device)
    of_all = [torch.empty_like(own) for _ in range(dist.get_world_size())]
    dist.all_gather(of_all, own)
    return [one.tolist() for one in of_all]


def _bytes_of(tensor: Any) -> Any:
    """Its content as bytes, in place: some backends know few types."""
    return tensor.reshape(-1).view(torch.uint8)
