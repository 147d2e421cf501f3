"""Where ranks meet between the first update of a step and its last, the last step's end is kept as a copy."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

from faultrun.sdk.torch.guard import Guard
from faultrun.sdk.torch.provider import GaspFile, TorchProvider
from faultrun.sdk.torch.snapshots.last_boundary import LastBoundary
from faultrun.sdk.torch.state.trees import copied, same
from faultrun.sdk.torch.stay.live_state import LiveState
from faultrun.sdk.worker.state_provider import SaveOrder
from faultrun.sdk.worker.update_lock import NotSaved
from sdk.support.protected import protected

pytestmark = [pytest.mark.torch, pytest.mark.slow, pytest.mark.usefixtures("group_of_one")]


class Dies(Exception):
    """What a collective raises whose peer is gone."""


class Adversaries:
    """Two nets that are updated one after the other; ``between`` is called where peers are met.

    A third is frozen.
    """

    def __init__(self, directory: Path, width: int = 4, every: Any = "auto") -> None:
        self.nets = nn.ModuleList([nn.Linear(width, width) for _ in range(3)])
        self.follows = self.nets[2].requires_grad_(False)
        self.optimizers = [torch.optim.Adam(one.parameters()) for one in self.nets[:2]]
        self.guard: Guard = protected(directory, *self.optimizers, net=self.nets)
        worker = self.guard.training.worker
        assert worker is not None
        self.guard.last_boundary = LastBoundary(self.guard.training, worker, every)
        self.x = torch.ones(2, width)

    def step(self, between: Callable[[], object]) -> None:
        for net, optimizer in zip(self.nets, self.optimizers, strict=False):
            optimizer.zero_grad()
            net(self.x).square().sum().backward()
            between()
            optimizer.step()
        self.guard.step()

    def state(self) -> Any:
        training = self.guard.training
        return copied(training.state_at(training.history[-1]))

    def saved(self, **order: Any) -> Any:
        training = self.guard.training
        saved = TorchProvider(training, GaspFile(training)).save(
            SaveOrder(until_s=time.monotonic() + 5, **order)
        )
        return torch.load(saved.path, weights_only=True)


def meet() -> None:
    dist.all_reduce(torch.ones(1))


def breaks_in_update(times: int) -> Callable[[], None]:
    """A collective that is whole ``times``, and fails from then on."""
    left = iter(range(times))

    def between() -> None:
        if next(left, None) is None:
            raise Dies
        meet()

    return between


def test_a_survivor_between_two_updates_saves_the_end_of_the_last_step(tmp_path: Path) -> None:
    script = Adversaries(tmp_path)
    for _ in range(3):
        script.step(meet)
    whole = script.state()
    with pytest.raises(Dies):
        script.step(breaks_in_update(1))
    script.guard.training.lock.stop()
    found = script.saved(leaves=True, peers_lost=True)
    assert found["global_step"] == 3
    assert same(found, whole)


def test_whoever_meets_nobody_between_updates_keeps_no_copy(tmp_path: Path) -> None:
    script = Adversaries(tmp_path)
    for _ in range(3):
        meet()
        script.step(lambda: None)
    assert script.guard.training.kept is None


@pytest.mark.parametrize(("every", "step"), [(1, 7), (4, 4), (3, 6)])
def test_a_copy_is_as_old_as_the_script_allows(tmp_path: Path, every: int, step: int) -> None:
    script, states = Adversaries(tmp_path, width=256, every=every), {}
    for number in range(1, 8):
        script.step(meet)
        states[number] = script.state()
    assert script.guard.training.kept is not None
    with pytest.raises(Dies):
        script.step(breaks_in_update(1))
    script.guard.training.lock.stop()
    assert same(script.saved(leaves=True, peers_lost=True), states[step])


def test_a_stop_of_all_waits_for_the_end_of_a_step_that_is_whole(tmp_path: Path) -> None:
    script = Adversaries(tmp_path)
    for _ in range(2):
        script.step(meet)
    with pytest.raises(Dies):
        script.step(breaks_in_update(1))
    training = script.guard.training
    with pytest.raises(NotSaved):
        TorchProvider(training, GaspFile(training)).save(SaveOrder(until_s=time.monotonic() + 1.5))


def test_a_state_that_was_loaded_is_not_followed_by_an_earlier_copy(tmp_path: Path) -> None:
    script = Adversaries(tmp_path)
    for _ in range(3):
        script.step(meet)
    script.guard.load(script.state())
    assert script.guard.training.kept is None


def test_a_rank_finds_its_numbers_at_a_copy_that_is_older_than_its_steps(tmp_path: Path) -> None:
    script = Adversaries(tmp_path, width=256, every=4)
    for _ in range(4):
        script.step(meet)
    training = script.guard.training
    place, expected = training.position, training.recorder.read(training.history[-1].rng)
    for _ in range(3):
        torch.rand(3)
        script.step(meet)
    again = protected(tmp_path, *script.optimizers, net=script.nets).training.recorder
    found = again.at_step(place)
    assert found is not None
    assert torch.equal(found.cpu, expected.cpu)


def damp(job: Adversaries) -> None:
    for state in job.optimizers[0].state.values():
        state["exp_avg"].mul_(0.5)


def damp_uncounted(job: Adversaries) -> None:
    for state in job.optimizers[0].state.values():
        state["exp_avg"].data.mul_(0.5)


def count(job: Adversaries) -> None:
    for state in job.optimizers[0].state.values():
        state["seen"] = state.get("seen", 0) + 1


def swap(job: Adversaries) -> None:
    job.nets[1].weight.data = job.nets[0].weight.data.clone()


def average(job: Adversaries) -> None:
    with torch.no_grad():
        for one, other in zip(job.follows.parameters(), job.nets[0].parameters(), strict=True):
            one.lerp_(other, 0.5)


def average_uncounted(job: Adversaries) -> None:
    for one, other in zip(job.follows.parameters(), job.nets[0].parameters(), strict=True):
        one.data.lerp_(other.data, 0.5)


EARLY = [damp, damp_uncounted, count, swap, average, average_uncounted]


@pytest.mark.parametrize("change", EARLY)
def test_what_changes_before_the_update_has_the_last_step_copied(
    tmp_path: Path, change: Callable[[Adversaries], object]
) -> None:
    job = Adversaries(tmp_path)
    job.step(lambda: None)
    change(job)
    job.step(lambda: None)  # which sees it, and copies from here on
    there, where = job.state(), job.nets[1].weight.data_ptr()
    change(job)
    found = job.saved(peers_lost=True)
    assert same(found["model"], there["model"])
    assert same(found["optimizer"], there["optimizer"])
    live = LiveState(job.guard.training, lambda: None)
    live.interrupted()
    assert live.is_whole
    assert [same(job.state()[name], there[name]) for name in ("model", "optimizer")] == [True, True]
    assert job.nets[1].weight.data_ptr() == where
