"""A step in several parts says so where its gradients are not what is added up."""

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from torch import nn

from faultrun.sdk.torch.loader.batch_shares import InParts

pytestmark = pytest.mark.torch


class Step:
    """Steps of a model with two optimizers, one a layer; ``told``: why steps in parts would be another."""

    def __init__(self, *layers: nn.Module) -> None:
        self.layers = layers
        self.optimizers = [torch.optim.SGD(one.parameters(), lr=0.01) for one in layers]
        self.told: list[str] = []
        self.parts = InParts()
        self.parts.watch(self.optimizers, self.told.append, keeps_world=True)

    def part(self, inputs: Any, *, more: bool, begin: Callable[[], object] = list) -> None:
        self.parts.accumulating = more
        self.parts.begins()
        begin()
        for one in self.layers:
            one(inputs).square().sum().backward()
        if more:
            self.parts.ends()

    def updates(self, *optimizers: int) -> None:
        for number in optimizers:
            self.optimizers[number].step()
            self.parts.updated()
            self.optimizers[number].zero_grad()
        self.parts.end()


DROPS: dict[str, Callable[[nn.Embedding], object]] = {
    "model": lambda table: table.zero_grad(set_to_none=False),
    "in place": lambda table: gradient(table).zero_(),
    "its data": lambda table: gradient(table).data.zero_(),
    "none": lambda table: setattr(table.weight, "grad", None),
}


def gradient(table: nn.Embedding) -> Any:
    assert table.weight.grad is not None
    return table.weight.grad


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("how", DROPS)
def test_gradients_of_a_table_that_are_dropped_between_two_parts_are_seen(how: str, sparse: bool) -> None:
    table = nn.Embedding(1000, 4, sparse=sparse)
    step = Step(table)
    step.part(torch.tensor([7, 701]), more=True)
    step.part(torch.tensor([3]), more=True, begin=step.optimizers[0].zero_grad)
    assert step.told == []
    step.part(torch.tensor([8]), more=False, begin=lambda: DROPS[how](table))
    is_copy = sparse and how == "its data"
    assert step.told == ["its steps drop the gradients of their earlier parts"] * (not is_copy)


@pytest.mark.parametrize("places_are_empty", [False, True])
def test_gradients_that_an_optimizer_leaves_for_the_next_step_are_seen(places_are_empty: bool) -> None:
    step = Step(nn.Linear(2, 2), nn.Linear(2, 2))
    inputs = torch.ones(1, 2)
    for _ in range(20 if places_are_empty else 1):
        step.part(inputs, more=False)
        step.updates(0, 1)
    for last in (False, True):
        if places_are_empty:
            step.part(inputs, more=True)
        step.part(inputs, more=False)
        step.updates(0)
        seen = ["its steps add to gradients that the step before has left"] * last
        assert sorted({*step.told}) == seen


def test_gradients_that_are_zeros_or_dropped_as_a_step_begins_are_not_left() -> None:
    step = Step(nn.Linear(2, 2))
    for _ in range(4):
        step.part(torch.ones(1, 2), more=True, begin=step.optimizers[0].zero_grad)
        step.part(torch.ones(1, 2), more=False)
        step.optimizers[0].step()
        step.parts.updated()
        step.parts.end()
    for _ in range(2):
        step.part(torch.ones(1, 2), more=False, begin=step.optimizers[0].zero_grad)
        step.optimizers[0].step()
        step.optimizers[0].zero_grad(set_to_none=False)
        step.parts.end()
    assert step.told == []
