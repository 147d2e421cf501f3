"""Parameter groups that are added, and parameters that are frozen and unfrozen, while a training runs."""

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

from faultrun.errors import FaultrunError
from faultrun.sdk.torch.guard import Guard
from faultrun.sdk.torch.state.trees import same
from faultrun.sdk.torch.state.updated import Updated
from sdk.support.protected import protected
from support.machine.free_port import free_port

pytestmark = [pytest.mark.torch, pytest.mark.slow]

LAST = 8


class Loop:
    """One training: ``changes`` are done by the script before a step, by its number, and only then."""

    def __init__(self, directory: Path, changes: dict[int, list[str]]) -> None:
        torch.manual_seed(3)
        self.net = nn.Sequential(*(nn.Linear(2, 2) for _ in range(3)))
        self.net[1].requires_grad_(False)
        self.optimizer = torch.optim.Adam(self.net[0].named_parameters(), lr=0.05)
        self.changes = changes
        self.guard: Guard = protected(directory, self.optimizer, net=self.net)

    def change(self, words: str) -> None:
        what, _, which = words.partition(" ")
        layer = self.net[int(which)]
        known = {id(one) for group in self.optimizer.param_groups for one in group["params"]}
        if what != "add":
            layer.requires_grad_(what == "thaw")
        elif not known & {id(one) for one in layer.parameters()}:
            group = {"params": [*layer.named_parameters(prefix=which)], "lr": 0.01 * (2 + int(which))}
            self.optimizer.add_param_group(group)

    def begin(self, step: int) -> None:
        for words in self.changes.get(step, []):
            self.change(words)
        self.optimizer.zero_grad()
        loss = self.net(torch.full((1, 2), float(step))).square().sum()
        if loss.requires_grad:
            loss.backward()

    def train(self, last: int) -> None:
        for step in range(self.guard.global_step + 1, last + 1):
            self.begin(step)
            self.optimizer.step()
            self.guard.step()

    def saved(self, path: Path) -> Any:
        return torch.load(self.guard.save(path).path, weights_only=True)

    def end(self) -> Any:
        flags = [one.requires_grad for one in self.net.parameters()]
        return self.net.state_dict(), self.optimizer.state_dict(), flags


CHANGES = st.dictionaries(
    st.integers(1, LAST),
    st.lists(
        st.sampled_from([f"{what} {n}" for what in ("add", "freeze", "thaw") for n in range(3)]), max_size=2
    ),
    max_size=4,
)
FEW = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@FEW
@given(changes=CHANGES, at=st.integers(0, LAST - 1))
def test_whatever_was_added_or_frozen_comes_back_in_another_process(
    changes: dict[int, list[str]], at: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("run")
    undisturbed, first = Loop(folder, changes), Loop(folder, changes)
    undisturbed.train(LAST)
    first.train(at)
    again = Loop(folder, changes)
    again.guard.load(first.saved(folder / "saved.pt"))
    again.train(LAST)
    assert same(again.end(), undisturbed.end())


@FEW
@given(changes=CHANGES, at=st.integers(1, LAST))
def test_what_was_added_or_frozen_in_a_step_that_is_taken_back_is_taken_back(
    changes: dict[int, list[str]], at: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("run")
    undisturbed, hit = Loop(folder, changes), Loop(folder, changes)
    undisturbed.train(LAST)
    training = hit.guard.training
    training.begin_here()
    hit.train(at - 1)
    hit.begin(at)
    before = training.state_at(training.history[-1])
    training.put_back()
    training.came_back()
    assert same(before["optimizer"], hit.optimizer.state_dict()), "as a save in that step tells it"
    hit.train(LAST)
    assert same(hit.end(), undisturbed.end())


def test_a_group_of_what_the_model_does_not_hold_is_refused_by_name_in_the_step_that_shows_it(
    tmp_path: Path,
) -> None:
    loop = Loop(tmp_path, {})
    loop.train(2)
    loop.optimizer.add_param_group({"params": [("scale", nn.Parameter(torch.ones(1)))]})
    with pytest.raises(FaultrunError, match="parameter group was added"):
        loop.train(3)


def test_what_ddp_was_made_without_is_refused_once_it_is_unfrozen(tmp_path: Path) -> None:
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{free_port()}", rank=0, world_size=1)
    try:
        net = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
        net[0].requires_grad_(False)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        model = DistributedDataParallel(net)
        guard: Guard = protected(tmp_path, optimizer, net=model)
        for step in range(4):
            model(torch.ones(1, 2)).sum().backward()
            optimizer.step()
            if step == 2:
                net[0].requires_grad_(True)
                with pytest.raises(FaultrunError, match=r"0.weight was unfrozen"):
                    guard.step()
                return
            guard.step()
    finally:
        dist.destroy_process_group()


@pytest.mark.parametrize("hooked", [True, False])
def test_what_ddp_has_that_no_save_holds_is_told_as_training_goes_on(
    hooked: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{free_port()}", rank=0, world_size=1)
    try:
        model = DistributedDataParallel(nn.Linear(2, 2))
        if hooked:
            model.register_comm_hook(PowerSGDState(None), powerSGD_hook)
        updated = Updated(model.module, [], [model])
        updated.tell_what_is_anew(2)
        updated.tell_what_is_anew(3)
    finally:
        dist.destroy_process_group()
    words = "communication hook powerSGD_hook begins anew" if hooked else "arranges its buckets anew"
    assert capsys.readouterr().err.count(words) == (2 if hooked else 1)


def test_a_schedule_that_holds_the_groups_goes_on_in_them_and_states_keep_their_types(tmp_path: Path) -> None:
    loop = Loop(tmp_path, {})
    (parameter, *_), held = loop.optimizer.param_groups[0]["params"], loop.optimizer.param_groups
    loop.train(2)
    loop.optimizer.state[parameter]["count"] = torch.ones(2, dtype=torch.int32)
    state, kept = loop.guard.training.state_now(), loop.optimizer.param_groups[0]
    loop.guard.load(state)
    assert loop.optimizer.param_groups is held
    assert held[0] is kept
    assert loop.optimizer.state[parameter]["count"].dtype == torch.int32


@pytest.mark.parametrize("by_name", [True, False])
def test_what_an_optimizer_keeps_goes_to_the_same_parameters_in_whatever_order_its_groups_have_them(
    tmp_path: Path, by_name: bool
) -> None:
    def trained(order: list[int], groups: list[int], steps: int, load: Any = None) -> tuple[Any, Any]:
        torch.manual_seed(3)
        net = nn.Sequential(*(nn.Linear(2, 2) for _ in range(3)))
        named = [*net.named_parameters()]
        halves = [named[0::2], named[1::2]]
        picked = [[halves[each][at] if by_name else halves[each][at][1] for at in order] for each in groups]
        lrs = [0.01 * (2 + each) for each in groups]
        made = [{"params": params, "lr": lr} for params, lr in zip(picked, lrs, strict=True)]
        optimizer = torch.optim.Adam(made)
        guard = protected(tmp_path, optimizer, net=net)
        if load is not None:
            guard.load(load)
        for step in range(guard.global_step + 1, steps + 1):
            net(torch.full((1, 2), float(step))).square().sum().backward()
            optimizer.step()
            optimizer.zero_grad()
            guard.step()
        kept = {name: optimizer.state[one] for name, one in named}
        return guard.training.state_now(), (net.state_dict(), kept)

    _, there = trained([0, 1, 2], [0, 1], 4)
    half, _ = trained([0, 1, 2], [0, 1], 2)
    torch.save(half, tmp_path / "half.pt")
    _, here = trained([2, 0, 1], [1, 0], 4, torch.load(tmp_path / "half.pt", weights_only=True))
    assert same(here, there)
