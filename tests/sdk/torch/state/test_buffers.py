"""Buffers are those that the modules hold at each boundary, however they came there."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from faultrun.sdk.torch.guard import Guard
from sdk.support.protected import protected

pytestmark = [pytest.mark.torch, pytest.mark.slow]

STEPS = 6


class Net(nn.Module):  # type: ignore[misc]
    """``kind`` says what a forward pass does to its buffers, ``size`` how many numbers they have."""

    def __init__(self, kind: str, size: int) -> None:
        super().__init__()
        self.kind, self.weight = kind, nn.Parameter(torch.ones(3))
        self.register_buffer("mean", torch.zeros(size), persistent="hidden" not in kind)
        self.register_buffer("old", torch.zeros(size))
        self.inner = nn.Module()
        self.inner.register_buffer("table", torch.arange(float(size)), persistent=False)
        if kind == "tied":
            self.inner.register_buffer("again", self.mean)
        if kind == "expanded":
            self.register_buffer("one", torch.ones(1).expand(4), persistent=False)
        if "none" in kind:
            self.register_buffer("late", None)
        if "resized" in kind:
            self.register_buffer("low", torch.tensor([]), persistent="hidden" not in kind)

    def forward(self, inputs: Any) -> Any:
        new = 0.9 * self.mean + inputs.detach().mean()
        CHANGES[self.kind.removeprefix("hidden-")](self, new)
        return (inputs * self.weight).sum() * self.mean.float().sum()

    def values(self) -> dict[str, Any]:
        """All buffers, under all names."""
        found = {}
        for path, module in self.named_modules(remove_duplicate=False):
            for key, one in module._buffers.items():
                found[f"{path}.{key}"] = None if one is None else one.detach().clone()
        return found


def in_place(net: Net, new: Any) -> None:
    net.mean.copy_(new)


def assigned(net: Net, new: Any) -> None:
    net.mean = new


def swapped(net: Net, new: Any) -> None:
    net.old = net.mean
    net.mean = new


def grown(net: Net, new: Any) -> None:
    net.mean = torch.cat([new, torch.ones(1)])


def wider(net: Net, new: Any) -> None:
    net.mean = new.double() / 3


def other_memory(net: Net, new: Any) -> None:
    net.mean.data = new


def uncounted(net: Net, new: Any) -> None:
    net.mean.data.mul_(0.9).add_(new, alpha=0.1)


def uncounted_number(net: Net, new: Any) -> None:
    net.mean.data[-2] += new.sum()


def cast(net: Net, _: Any) -> None:
    net.double()
    net.mean.add_(1.0 / 3)


def loaded(net: Net, new: Any) -> None:
    net.load_state_dict({**net.state_dict(), "mean": new}, assign=True)


def registered(net: Net, _: Any) -> None:
    if not hasattr(net, "count"):
        net.register_buffer("count", torch.zeros(2), persistent=False)
    net.count += 1


def from_none(net: Net, new: Any) -> None:
    net.late = new if net.late is None else net.late + new


def resized(net: Net, new: Any) -> None:
    net.low.resize_(2, new.numel()).copy_(new.expand(2, -1))
    net.old.resize_(net.old.numel() % 5 + 2).fill_(new.sum().item())


def other_module(net: Net, _: Any) -> None:
    inner = nn.Module()
    inner.register_buffer("table", net.inner.table * 1.5, persistent=False)
    net.inner = inner


def with_a_graph(net: Net, _: Any) -> None:
    net.mean = 0.5 * net.mean.detach() + net.weight.sum()


CHANGES: dict[str, Callable[[Net, Any], None]] = {
    "hidden": in_place,
    "in place": in_place,
    "tied": in_place,
    "expanded": in_place,
    "assigned": assigned,
    "swapped": swapped,
    "grown": grown,
    "wider": wider,
    "data": other_memory,
    "uncounted": uncounted,
    "uncounted number": uncounted_number,
    "cast": cast,
    "loaded": loaded,
    "registered": registered,
    "none": from_none,
    "resized": resized,
    "module": other_module,
    "graph": with_a_graph,
}
"""What a forward pass does to its buffers, given the newest mean."""

HIDDEN = ("hidden-assigned", "hidden-swapped", "hidden-grown", "hidden-none", "hidden-resized")
KINDS = (*CHANGES, *HIDDEN)


def guarded(net: Net, directory: Path) -> tuple[Guard, Callable[[int], None]]:
    """As under faultrun; and what makes a step."""
    optimizer = torch.optim.SGD([net.weight], lr=0.001)
    guard = protected(directory, optimizer, net=net)
    guard.training.begin_here()

    def step(number: int) -> None:
        net(torch.full((3,), float(number))).backward()
        optimizer.step()
        optimizer.zero_grad()
        guard.step()

    return guard, step


def assert_same(left: dict[str, Any], right: dict[str, Any]) -> None:
    assert left.keys() == right.keys()
    for name, one in left.items():
        other = right[name]
        assert (one is None) == (other is None), name
        assert one is None or (one.dtype == other.dtype and torch.equal(one, other)), name


@pytest.fixture(params=[4, 40_000], ids=["small", "large"])
def size(request: pytest.FixtureRequest) -> int:
    """Below the limit at which a buffer is copied at every step, and above it."""
    return int(request.param)


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_saved_brings_every_buffer_back_and_training_goes_on_as_it_would_have(
    tmp_path: Path, kind: str, size: int
) -> None:
    net = Net(kind, size)
    guard, step = guarded(net, tmp_path)
    for number in range(1, STEPS + 1):
        step(number)
        if number == 3:
            state = guard.training.state_at(guard.training.history[-1])
            torch.save(state, tmp_path / "saved.pt")
            there = net.values()
    newcomer = Net(kind, size)
    other, goes_on = guarded(newcomer, tmp_path)
    other.load(torch.load(tmp_path / "saved.pt", weights_only=True))
    assert_same(newcomer.values(), there)
    for number in range(4, STEPS + 1):
        goes_on(number)
    assert_same(newcomer.values(), net.values())


@pytest.mark.parametrize("kind", KINDS)
def test_a_step_that_is_taken_back_leaves_every_buffer_as_it_was(
    tmp_path: Path, kind: str, size: int
) -> None:
    net = Net(kind, size)
    guard, step = guarded(net, tmp_path)
    for number in (1, 2, 3):
        step(number)
        there = net.values()
        for _ in range(2):
            net(torch.ones(3))
            guard.training.put_back()
            assert_same(net.values(), there)


@pytest.mark.parametrize("kind", KINDS)
def test_looking_at_a_state_in_the_middle_of_a_step_changes_nothing_of_the_boundary(
    tmp_path: Path, kind: str, size: int
) -> None:
    net = Net(kind, size)
    guard, step = guarded(net, tmp_path)
    step(1)
    there = net.values()
    net(torch.ones(3))
    saved = guard.training.state_now()
    told = {**saved["model"], **saved["buffers"]}
    assert torch.equal(told.get("mean", there[".mean"]), net.mean)
    guard.training.put_back()
    assert_same(net.values(), there)


def test_a_forward_pass_without_gradients_may_leave_tensors_that_nobody_may_write_to(tmp_path: Path) -> None:
    net = Net("assigned", 4)
    guard, step = guarded(net, tmp_path)
    step(1)
    with torch.inference_mode():
        net(torch.ones(3))
    guard.training.note_boundary()
    there = net.values()
    with torch.inference_mode():
        net.mean.add_(1)
    guard.training.put_back()
    assert_same(net.values(), there)


def test_large_tables_that_nothing_changes_are_not_saved(tmp_path: Path) -> None:
    guard, step = guarded(Net("in place", 40_000), tmp_path)
    step(1)
    state = guard.training.state_now()
    assert state["buffers"] == {}
    assert "inner.table" not in state["model"]
