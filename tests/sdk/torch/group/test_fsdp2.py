"""What an interrupted backward pass leaves in ``fully_shard``: nothing that the next could be added to."""

from typing import Any

import pytest
import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

from faultrun.sdk.torch.group.fsdp2 import Sharded
from faultrun.sdk.torch.state.shards import local_of

pytestmark = [pytest.mark.torch, pytest.mark.slow, pytest.mark.usefixtures("group_of_one")]

HALF = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)


class Interrupted(Exception):
    """As a collective that fails."""


class Training:
    """Three layers, in groups as ``how`` says."""

    def __init__(self, how: set[str]) -> None:
        torch.manual_seed(3)
        self.net = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4))
        hybrid = "hybrid" in how
        names = ("replicas", "shards")
        mesh = init_device_mesh(
            "cpu", (1, 1) if hybrid else (1,), mesh_dim_names=names if hybrid else names[1:]
        )
        options: dict[str, Any] = {"mesh": mesh, "reshard_after_forward": "kept" not in how}
        if "half" in how:
            options["mp_policy"] = HALF
        if "nested" in how:
            for layer in self.net[:2]:  # the last one is in the group of the whole
                fully_shard(layer, **options)
        fully_shard(self.net, **options)
        self.strikes_in = -1
        for number, layer in enumerate(self.net):
            layer.register_forward_hook(lambda _, __, output, number=number: self._watch(output, number))
        self.sharded = Sharded(self.net)
        self.sharded.between_steps(has_run=False)

    def _watch(self, output: Any, number: int) -> None:
        if output.requires_grad:
            output.register_hook(lambda _: self._strike(number))

    def _strike(self, number: int) -> None:
        if number == self.strikes_in:
            raise Interrupted

    def backward(self, factor: float, how: set[str]) -> None:
        """A step's passes: with "summed" the first of two waits for the second, as in ``no_sync``."""
        inputs = torch.full((2, 4), factor)
        if "summed" in how:
            self.net.set_requires_gradient_sync(False)
            self.net(inputs).float().pow(2).mean().backward()
            self.net.set_requires_gradient_sync(True)
        if "partial" in how:
            self.net.set_requires_all_reduce(False)
            self.net(inputs).float().pow(2).mean().backward()
            self.net.set_requires_all_reduce(True)
        self.net(inputs * 2).float().pow(2).mean().backward()

    def taken_back(self) -> None:
        """As a rank does it that stays."""
        for parameter in self.net.parameters():
            parameter.grad = None
        self.sharded.enters()
        assert self.sharded.left == ""

    def gradients(self) -> list[Any]:
        found = [local_of(one.grad).clone() for one in self.net.parameters()]
        self.net.zero_grad()
        return found


@pytest.mark.parametrize("layout", ["flat", "nested", "hybrid", "nested hybrid", "nested kept"])
@pytest.mark.parametrize("way", ["", "half", "summed", "half summed", "partial"])
@pytest.mark.parametrize("before_first", [True, False], ids=["in the first step", "later"])
def test_the_gradients_of_a_repeated_step_are_those_of_one_attempt(
    layout: str, way: str, *, before_first: bool
) -> None:
    how = {*layout.split(), *way.split()}
    if "partial" in how and "hybrid" not in how:
        how.remove("partial")
    training = Training(how)
    if not before_first:
        training.backward(1.0, how)
        training.gradients()
        training.sharded.between_steps(has_run=True)
    for layer in (2, 1, 0):
        training.strikes_in = layer
        with pytest.raises(Interrupted):
            training.backward(1.0, how)
        training.taken_back()
        training.strikes_in = -1
        training.backward(1.0, how)
        repeated = training.gradients()
        fresh = Training(how)
        fresh.backward(1.0, how)
        expected = fresh.gradients()
        assert all(map(torch.equal, repeated, expected))


def test_whatever_else_an_interrupted_step_leaves_is_named() -> None:
    """As of another version of torch, which keeps sums where nobody knows of them."""
    training = Training({"nested"})
    training.backward(1.0, set())
    training.net.zero_grad()
    training.sharded.between_steps(has_run=True)
    assert training.sharded.left == ""
    group = training.sharded._groups()[0]
    group.sums = [torch.ones(2)]
    assert training.sharded.left == "FSDPParamGroup.sums"
