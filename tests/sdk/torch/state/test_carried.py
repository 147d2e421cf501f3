"""What a script carries from one step into the next is told, and nothing else is taken for it."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader

from faultrun.sdk.torch.guard import Guard
from sdk.support.protected import protected

pytestmark = [pytest.mark.torch, pytest.mark.slow]

LEFT_OVER = "are added to in the next"
OPEN = "a DataLoader is open that guard.batches has not opened"
BEHIND = "changed behind guard.step()"


class Pair:
    """Two models with an optimizer each, as of a GAN, and an object."""

    def __init__(self, folder: Path) -> None:
        self.nets = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
        self.optimizers = [torch.optim.SGD(one.parameters(), 0.01) for one in self.nets]
        self.best = {"value": 0.0}
        self.state_dict: Callable[[], Any] = lambda: dict(self.best)
        self.load_state_dict: Callable[[Any], None] = self.best.update
        self.guard: Guard = protected(folder, *self.optimizers, net=self.nets, objects={"best": self})

    def backward(self) -> None:
        self.nets(torch.ones(2, 2)).sum().backward()

    def update(self) -> None:
        for one in self.optimizers:
            one.step()


def zeroed_first(pair: Pair) -> None:
    for one in pair.optimizers:
        one.zero_grad()
    pair.backward()
    pair.backward()
    pair.update()


def zeroed_last(pair: Pair) -> None:
    pair.backward()
    pair.update()
    for one in pair.optimizers:
        one.zero_grad(set_to_none=False)


def one_by_one(pair: Pair) -> None:
    """Each is set to zero right before its own backward pass: the other's has added to it by then."""
    for one in pair.optimizers:
        one.zero_grad()
        pair.backward()
        one.step()


def decayed(pair: Pair) -> None:
    pair.backward()
    pair.update()
    for one in pair.nets.parameters():
        one.grad.mul_(0.9)


@pytest.mark.parametrize(
    ("step", "is_told"), [(zeroed_first, False), (zeroed_last, False), (one_by_one, False), (decayed, True)]
)
def test_gradients_that_the_next_update_is_made_of_too_are_told(
    tmp_path: Path, step: Callable[[Pair], None], is_told: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    pair = Pair(tmp_path)
    for _ in pair.guard.steps(4):
        step(pair)
    assert (LEFT_OVER in capsys.readouterr().err) is is_told


def cycle(loader: Any) -> Iterator[Any]:
    while True:
        yield from loader


def loader(**how: Any) -> Any:
    return DataLoader(torch.ones(8, 2), 2, **how)


@pytest.mark.parametrize(
    ("opened", "is_told"),
    [
        (lambda: iter(loader()), True),
        (lambda: cycle(loader()), True),
        (lambda: [*loader()], False),
        (lambda: iter(loader(num_workers=1, persistent_workers=True)), False),
    ],
    ids=["iterator", "cycle", "evaluation", "evaluation in processes"],
)
def test_a_loader_that_the_script_has_opened_is_told(
    tmp_path: Path, opened: Callable[[], Any], is_told: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    pair, held = Pair(tmp_path), opened()
    for _ in pair.guard.steps(3):
        next(iter(held))
        zeroed_first(pair)
    assert (OPEN in capsys.readouterr().err) is is_told
    del held


def test_the_loader_of_guard_batches_is_none_of_those(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pair = Pair(tmp_path)
    for _ in pair.guard.batches(loader(), 0):
        zeroed_first(pair)
        pair.guard.step()
    assert OPEN not in capsys.readouterr().err


@pytest.mark.parametrize("asks", [True, False])
def test_an_object_that_a_loop_of_the_scripts_own_changes_between_two_steps_is_told(
    tmp_path: Path, asks: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    pair = Pair(tmp_path)
    for step in pair.guard.steps(4) if asks else range(4):
        zeroed_first(pair)
        if asks:
            continue
        pair.guard.step()
        if step == 1:
            pair.best["value"] += 1.0
    assert (BEHIND in capsys.readouterr().err) is not asks


@pytest.mark.parametrize("steps", [5, 6])
def test_a_newcomer_writes_over_nothing_that_the_dead_rank_has_noted(tmp_path: Path, steps: int) -> None:
    dead = Pair(tmp_path)
    for _ in dead.guard.steps(steps):
        zeroed_first(dead)
        torch.rand(3)
    newcomer = Pair(tmp_path).guard.training
    newcomer.inside = False
    newcomer.begin_here()
    assert newcomer.recorder.at_step(dead.guard.training.position) is not None
