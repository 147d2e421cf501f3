"""Models, optimizers and loaders in the wrappers of others: looked through, or refused."""

from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from faultrun.errors import FaultrunError
from faultrun.sdk.session import Session
from faultrun.sdk.torch import protect
from faultrun.sdk.torch.guard import Guard
from faultrun.sdk.torch.loader.loader_position import check_positions
from faultrun.sdk.torch.state.state_dict import unwrapped_optimizer
from faultrun.sdk.worker.worker import Worker
from sdk.support import wrappers

pytestmark = [pytest.mark.torch, pytest.mark.slow]


def accelerate_prepares(*them: Any) -> Any:
    return import_module("accelerate").Accelerator(cpu=True).prepare(*them)


def fabric_sets_up(net: nn.Module, optimizer: Any, loader: Any) -> Any:
    fabric = import_module("lightning.fabric").Fabric(accelerator="cpu", devices=1)
    return *fabric.setup(net, optimizer), fabric.setup_dataloaders(loader)


def as_accelerate(net: nn.Module, optimizer: Any, loader: Any) -> Any:
    return net, wrappers.AcceleratedOptimizer(optimizer), wrappers.DataLoaderShard(loader)


def as_fabric(net: nn.Module, optimizer: Any, loader: Any) -> Any:
    return (
        wrappers.FabricModule(net),
        wrappers.FabricOptimizer(optimizer),
        wrappers.FabricDataLoader(loader),
    )


ALL = [
    as_accelerate,
    as_fabric,
    pytest.param(
        accelerate_prepares,
        marks=pytest.mark.skipif(find_spec("accelerate") is None, reason="accelerate is not installed"),
    ),
    pytest.param(
        fabric_sets_up,
        marks=pytest.mark.skipif(find_spec("lightning") is None, reason="lightning is not installed"),
    ),
]


class Training:
    """Three epochs of twelve steps with whatever ``wrap`` makes of model, optimizer and loader."""

    def __init__(self, wrap: Callable[..., Any], directory: Path, worker: Worker | None) -> None:
        torch.manual_seed(3)
        net = nn.Linear(1, 1)
        optimizer = torch.optim.Adam(net.parameters(), lr=0.1)
        self.net, self.optimizer, self.loader = wrap(net, optimizer, wrappers.by_epoch())
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr("faultrun.sdk.torch.worker", lambda: worker)
            self.guard: Guard = protect(self.net, self.optimizer, directory=directory)
        self.seen: list[list[int]] = []

    def go(self, until: int = 1000) -> list[float]:
        """Train on up to this step; the weights."""
        for epoch in range(self.guard.epoch, 3):
            for (batch,) in self.guard.batches(self.loader, epoch):
                self.seen.append(batch.tolist())
                loss = self.net(batch.float().reshape(-1, 1)).square().mean()
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
                self.guard.step()
                if self.guard.global_step == until:
                    return self.weights()
        return self.weights()

    def weights(self) -> list[float]:
        return [value for one in self.net.parameters() for value in one.detach().reshape(-1).tolist()]


@pytest.mark.parametrize("wrap", ALL)
@pytest.mark.parametrize("until", [5, 12, 17])
def test_a_wrapped_training_goes_on_with_its_own_data_and_ends_the_same(
    tmp_path: Path, wrap: Callable[..., Any], until: int
) -> None:
    undisturbed = Training(wrap, tmp_path / "a", Worker(Session()))
    end = undisturbed.go()
    first = Training(wrap, tmp_path / "b", Worker(Session()))
    first.go(until)
    saved = first.guard.save(tmp_path / "saved.pt")
    second = Training(wrap, tmp_path / "c", Worker(Session()))
    second.guard.load(torch.load(saved.path, weights_only=True))
    assert second.go() == end
    assert first.seen + second.seen == undisturbed.seen


@pytest.mark.parametrize("wrap", ALL)
def test_without_faultrun_a_wrapped_training_is_untouched(tmp_path: Path, wrap: Callable[..., Any]) -> None:
    training = Training(wrap, tmp_path, None)
    training.go()
    assert training.guard.global_step == 36
    assert not unwrapped_optimizer(training.optimizer)._optimizer_step_pre_hooks
    assert not list(tmp_path.iterdir())


def test_an_optimizer_that_keeps_something_of_its_own_is_not_looked_through() -> None:
    inner = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1)
    keeps = wrappers.Lookahead(inner)
    assert unwrapped_optimizer(keeps) is keeps
    assert unwrapped_optimizer(wrappers.FabricOptimizer(wrappers.AcceleratedOptimizer(inner))) is inner


@pytest.mark.parametrize("wrap", [wrappers.Prefetching, lambda loader: wrappers.Repeating(loader.dataset)])
def test_a_loader_whose_place_cannot_be_found_again_is_refused_unused(wrap: Callable[[Any], Any]) -> None:
    with pytest.raises(FaultrunError, match="cannot find a place in"):
        check_positions(wrap(wrappers.by_epoch()))


class Odd:
    """No part of a training at all."""


@pytest.mark.parametrize(
    "build",
    [
        lambda: protect(Odd(), directory=5),  # type: ignore[arg-type]
        lambda: protect(nn.Linear(1, 1), Odd(), directory="/proc/none"),
        lambda: protect(nn.Linear(1, 1), directory="ck", objects={"x": Odd()}),
        lambda: protect(nn.Linear(1, 1), directory="ck", state_fn=lambda: 1 / 0),
    ],
)
def test_without_faultrun_nothing_is_refused(build: Callable[[], Guard]) -> None:
    guard = build()
    assert guard.resume() is None
    assert list(guard.batches(wrappers.Prefetching([1, 2]), 0)) == [1, 2]


class Gathered(torch.optim.SGD):  # type: ignore[misc]
    """As a sharded optimizer: its state is with others."""

    def state_dict(self) -> Any:
        raise RuntimeError("Optimizer state has not been consolidated on this rank")


class HoldsAnObject:
    """Its state can be pickled, and cannot be read again without running its class."""

    def state_dict(self) -> Any:
        return {"best": Odd()}

    def load_state_dict(self, state: Any) -> None:
        """Never called."""


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"state_fn": lambda: {"open": lambda: None}}, "pickle"),
        ({"state_fn": lambda: 1 / 0}, "ZeroDivisionError"),
        ({"objects": {"x": Odd()}}, "Odd has no state_dict"),
        ({"of": Gathered}, "has not been consolidated"),
        ({"objects": {"x": HoldsAnObject()}}, "refuses to read it again"),
    ],
)
def test_a_state_that_could_not_be_saved_or_read_again_is_refused_by_protect(
    tmp_path: Path, more: dict[str, Any], says: str
) -> None:
    owner = Worker(Session())
    with pytest.MonkeyPatch.context() as patched, pytest.raises(FaultrunError) as error:
        patched.setattr("faultrun.sdk.torch.worker", lambda: owner)
        net = nn.Linear(1, 1)
        kind = more.pop("of", torch.optim.SGD)
        protect(net, kind(net.parameters(), lr=0.1), directory=tmp_path, **more)
    assert says in error.value.because
    assert not [path for path in tmp_path.rglob("*") if path.name.startswith(".tmp")]
