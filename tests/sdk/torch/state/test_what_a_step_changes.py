"""Everything that a step changes is known: it is taken back, saved, and comes back."""

from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from faultrun.errors import FaultrunError
from faultrun.sdk.session import Session
from faultrun.sdk.torch.guard import Guard
from faultrun.sdk.torch.loader.script_generators import ScriptGenerators
from faultrun.sdk.torch.provider import GaspFile, TorchProvider
from faultrun.sdk.torch.state.boundary import Objects, device_of
from faultrun.sdk.torch.state.own_attributes import own_states
from faultrun.sdk.torch.state.state_dict import Parts
from faultrun.sdk.torch.state.trees import copied, same
from faultrun.sdk.torch.training import Training
from faultrun.sdk.worker.save_files import Folder, SaveWriter
from faultrun.sdk.worker.state_provider import SaveOrder
from faultrun.sdk.worker.update_lock import NotSaved
from faultrun.sdk.worker.worker import Worker
from sdk.support.protected import protected

pytestmark = pytest.mark.torch


class Kept:
    def __init__(self, **kept: Any) -> None:
        self.kept = kept

    def state_dict(self) -> dict[str, Any]:
        return self.kept

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.kept = state


class Counting(nn.Module):  # type: ignore[misc]
    """What it keeps is no tensor."""

    calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return x

    def get_extra_state(self) -> dict[str, int]:
        return {"calls": self.calls}

    def set_extra_state(self, state: dict[str, int]) -> None:
        self.calls = state["calls"]


class Noam:
    def __init__(self, optimizer: Any) -> None:
        self.optimizer, self.n = optimizer, 0

    def step(self) -> None:
        self.n += 1
        self.optimizer.param_groups[0]["lr"] = 0.1 / self.n
        self.optimizer.step()

    def state_dict(self) -> dict[str, Any]:
        return self.optimizer.state_dict()  # type: ignore[no-any-return]


class Job:
    def __init__(
        self, folder: Path, objects: dict[str, Any] | None = None, rank: int = 0, **how: Any
    ) -> None:
        torch.manual_seed(1)
        self.net = nn.Sequential(nn.Linear(3, 3), Counting())
        self.criterion = nn.Linear(3, 1)
        self.optimizers = [
            torch.optim.AdamW([*one.parameters()], lr=torch.tensor(0.1), **how)
            for one in (self.net, self.criterion)
        ]
        self.noam = Noam(self.optimizers[1])
        parts = Parts(
            model=self.net,
            optimizers=tuple(self.optimizers),
            objects=Objects({**(objects or {}), **own_states([self.noam])}),
            device=device_of(self.net),
        )
        worker = Worker(Session(rank=rank, world_size=2))
        self.training = Training(lambda: parts, worker, SaveWriter(Folder(directory=folder), worker.session))
        self.guard = Guard(self.training)
        self.training.begin_here()

    def updates(self) -> None:
        self.criterion(self.net(torch.ones(1, 3))).sum().backward()
        self.optimizers[0].step()
        self.noam.step()

    def step(self) -> None:
        self.updates()
        self.guard.step()


CHANGES: dict[str, Callable[[Kept, int], object]] = {
    "in place": lambda one, size: one.kept["a"].add_(1),
    "uncounted": lambda one, size: one.kept["a"].data.add_(1),
    "replaced": lambda one, size: one.kept.update(a=one.kept["a"] + 1),
    "grown": lambda one, size: one.kept.update(a=torch.ones(2 * size)),
    "set": lambda one, size: one.kept["seen"].add(size),
    "list": lambda one, size: one.kept["list"].append([size]),
    "array": lambda one, size: one.kept["array"].__iadd__(1),
    "number": lambda one, size: one.kept.update(n=one.kept["n"] + 1),
}


@pytest.mark.parametrize("size", [4, 1 << 16])
@pytest.mark.parametrize("change", CHANGES)
def test_an_object_of_any_size_is_taken_back_and_saved_as_it_was(
    change: str, size: int, tmp_path: Path
) -> None:
    own = Kept(a=torch.zeros(size), seen=set(), list=[1], array=np.zeros(3), n=1)
    job = Job(tmp_path, {"own": own})
    job.step()
    then = copied(own.kept)
    CHANGES[change](own, size)
    assert not same(own.kept, then)
    saved = job.training.state_at(job.training.history[-1])["objects"]["own"]
    assert same(saved, then)
    job.training.put_back()
    assert same(own.kept, then)
    CHANGES[change](own, size)
    job.step()
    assert not same(job.training.history[-1].objects["own"], then)


def test_hyperparameters_extra_state_and_what_is_not_the_models_come_back(tmp_path: Path) -> None:
    job, other = Job(tmp_path / "a"), Job(tmp_path / "b")
    job.step()
    rate = job.optimizers[0].param_groups[0]["lr"]
    saved = copied(job.training.state_at(job.training.history[-1]))
    rate.fill_(7.0)
    job.net(torch.ones(1, 3))
    assert same(copied(job.training.state_at(job.training.history[-1])), saved)
    job.training.put_back()
    assert float(rate) == pytest.approx(0.1)
    assert (job.net[1].calls, job.noam.n) == (1, 1)
    other.criterion.weight.data.zero_()
    other.guard.load(saved)
    assert torch.equal(other.criterion.weight, job.criterion.weight)
    assert (other.net[1].calls, other.noam.n) == (1, 1)


def test_what_is_drawn_behind_a_step_belongs_to_it_once_the_script_goes_on(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    own = Kept(n=0)
    job = Job(tmp_path, {"own": own, "rng": ScriptGenerators({"rng": rng})})
    job.step()
    assert not job.training.goes_on()
    for draw in (torch.random.default_generator.seed, np.random.rand, rng.random):
        draw()
        assert job.training.goes_on()
        assert not job.training.goes_on()
    own.kept["n"] += 1
    assert job.training.goes_on()
    expected = float(torch.rand(1)), rng.random()
    job.training.redo.noted[2] = b""
    job.training.put_back()
    assert (float(torch.rand(1)), rng.random()) == expected


def test_another_ranks_save_brings_this_ranks_own_objects(tmp_path: Path) -> None:
    saved = []
    for rank in (0, 1):
        job = Job(tmp_path, {"own": Kept(n=rank, t=torch.tensor([rank]))}, rank=rank)
        job.step()
        saved.append(copied(job.training.state_at(job.training.history[-1])))
    own = Kept()
    again = Job(tmp_path, {"own": own}, rank=1)
    again.guard.load(saved[0])
    assert same(own.kept, {"n": 1, "t": torch.tensor([1])})


def test_a_ranks_own_objects_come_back_from_a_sharded_checkpoint_that_any_rank_wrote(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    class Large(Kept):
        """One that is too large to be noted."""

    made = [
        Job(tmp_path, {"own": Kept(n=rank), "queue": Large(t=torch.full((1 << 16,), rank))}, rank=rank)
        for rank in (0, 1)
    ]
    for job in made:
        job.step()
    first, second = (job.guard.state_dict() for job in made)
    own = Kept()
    again = Job(tmp_path, {"own": own, "queue": Large()})
    again.guard.load_state_dict({**first, "objects": second["objects"]})
    assert own.kept == {"n": 0}
    assert "objects (queue) are those of one rank, which saved" in capsys.readouterr().err


def whole(job: Job) -> bool:
    return job.training.whole_now() is not None


def test_a_step_is_taken_to_be_whole_only_if_it_did_what_each_one_did(tmp_path: Path) -> None:
    own = Kept(n=0)
    job = Job(tmp_path, {"own": own})
    for _ in range(2):
        own.kept["n"] += 1
        job.step()
    job.updates()
    assert not whole(job)  # the object has not moved
    own.kept["n"] += 1
    assert whole(job)
    job.net.requires_grad_(False)
    assert not whole(job)  # perhaps for a part of the step
    job.net.requires_grad_(True)
    job.guard.step()
    job.optimizers[0].step()
    own.kept["n"] += 1
    assert not whole(job)  # one of its updates is missing
    job.guard.step()  # as the script says
    own.kept["n"] += 1
    job.updates()
    assert not whole(job)  # steps differ


def test_a_step_without_an_update_stands_only_if_the_scaler_has_said_so(tmp_path: Path) -> None:
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    job = Job(tmp_path, {"scaler": scaler})
    for loss in (1.0, float("nan"), None, 1.0):
        if loss is not None:
            scaler.scale(job.criterion(job.net(torch.ones(1, 3))).sum() * loss).backward()
            for one in job.optimizers:
                scaler.step(one)
            scaler.update()
            job.training.parts.forget_gradients()
        job.guard.step()
    assert job.guard.global_step == 4
    assert job.training.history[-1].position.step == 4
    assert [one.position.step for one in job.training.history] == [2, 4]


def test_parameters_that_no_update_changes_are_neither_saved_nor_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = Job(tmp_path)
    job.step()
    order = SaveOrder(until_s=1e12)
    for change in (job.net[0].weight.detach().add_, job.net[0].weight.data.mul_):
        change(2.0)
        with pytest.raises(NotSaved, match="by no update"):
            TorchProvider(job.training, GaspFile(job.training)).save(order)
        job.step()
        assert "parameters are changed before step" in capsys.readouterr().err or job.guard.global_step == 3
    job.net[0].weight.detach().add_(1.0)
    with pytest.raises(FaultrunError, match="step 4 could not be saved"):
        job.guard.step()


def test_each_training_of_a_script_goes_on_from_its_own_state(tmp_path: Path) -> None:
    first, second = Job(tmp_path), Job(tmp_path)
    second.training.parts.stage = 2
    first.step()
    second.step()
    of_first, of_second = ({"stage": number} for number in (1, 2))
    assert second.training.stage.of_this(of_second) is of_second
    assert second.training.stage.of_this(of_first) is None
    with pytest.raises(FaultrunError, match=r"2\. training, and this is its 1\. one"):
        first.training.stage.of_this(of_second)
    first.training.ends_stage()
    ended = first.training.stage.of_this(of_second)
    assert ended is not None
    assert (ended["global_step"], ended["stage"]) == (1, 1)


class Lookahead(torch.optim.SGD):  # type: ignore[misc]
    """Keeps numbers and weights of its own; of what it has hidden nobody can know."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, lr=0.1)
        self.k, self.hidden = 0, Path()
        self.slow: dict[Any, Any] = {"late": [torch.zeros(0)]}

    def step(self, closure: Any = None) -> None:
        super().step(closure)
        self.k += 1
        self.slow = {"late": [torch.full((2,), self.k)], self.k: torch.tensor(self.k)}


def test_what_an_optimizer_of_the_script_keeps_in_attributes_comes_back(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    net = nn.Linear(2, 1)
    ours, begun = Lookahead(net.parameters()), Lookahead(net.parameters())
    guard = protected(tmp_path, Noam(ours), net=net)
    assert capsys.readouterr().err.count("Lookahead.hidden is not kept: ") == 1
    net(torch.ones(1, 2)).sum().backward()
    ours.step()
    guard.step()
    saved = guard.save(tmp_path / "saved.pt")
    protected(tmp_path, Noam(begun), net=net).load(torch.load(saved.path, weights_only=True))
    assert (begun.k, [*begun.slow]) == (1, ["late", 1])
    assert same(begun.slow, ours.slow)


def test_a_module_and_an_object_that_can_be_called_in_an_optimizer_of_the_script_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    net = nn.Linear(2, 1)
    ours = Lookahead(net.parameters())
    ours.average, ours.rule, ours.net, ours.sign = nn.Linear(2, 1), Called(), net, torch.sign
    protected(tmp_path, ours, net=net)
    told = capsys.readouterr().err
    assert [told.count(f"Lookahead.{name} is not kept") for name in ("average", "rule", "net", "sign")] == [
        *(1, 1, 0, 0)
    ]


class Called:
    def __call__(self) -> None: ...


class Around(torch.optim.Optimizer):  # type: ignore[misc]
    """Has other optimizers make its updates: in a list, or as one whose groups are its own."""

    def __init__(self, net: Any, how: str) -> None:
        super().__init__(net.parameters(), {})
        if how == "list":
            self.parts = [torch.optim.SGD([one], lr=0.1, momentum=0.9) for one in net.parameters()]
            return
        self.param_groups: list[Any]
        self.base: Any = torch.optim.SGD(self.param_groups, lr=0.1, momentum=0.9)
        self.param_groups = self.base.param_groups
        if how == "shared":
            self.state = self.base.state

    def step(self, closure: Any = None) -> None:
        for one in self.parts if hasattr(self, "parts") else [self.base]:
            one.step(closure)


@pytest.mark.parametrize("how", ["groups", "shared", "list"])
def test_what_an_optimizer_in_one_of_the_script_keeps_comes_back_and_what_they_share_is_shared(
    tmp_path: Path, how: str, capsys: pytest.CaptureFixture[str]
) -> None:
    class Run:
        def __init__(self) -> None:
            self.net = nn.Linear(2, 1)
            self.optimizer = Around(self.net, how)
            self.guard = protected(tmp_path, self.optimizer, net=self.net)

        def step(self, lr: float) -> None:
            for group in self.optimizer.param_groups:
                group["lr"] = lr
            self.net(torch.ones(1, 2)).sum().backward()
            self.optimizer.step()
            self.guard.step()

    first, again = Run(), Run()
    first.step(0.1)
    saved = first.guard.save(tmp_path / "saved.pt")
    again.guard.load(torch.load(saved.path, weights_only=True))
    for one in (first, again):
        one.net.zero_grad()
        one.step(0.5)
    assert same(again.net.state_dict(), first.net.state_dict())
    assert "not kept" not in capsys.readouterr().err


@pytest.mark.parametrize("late", [np.mean([0.25]), np.int64(3), np.bool_(True), {3}], ids=type)
def test_a_number_that_comes_late_into_a_state_is_saved(tmp_path: Path, late: Any) -> None:
    stopper = Kept(best=None)
    guard = protected(tmp_path, torch.optim.SGD(nn.Linear(2, 2).parameters()), objects={"stopper": stopper})
    stopper.kept["best"] = late
    guard.step()
    saved = guard.save(tmp_path / "saved.pt")
    guard.load(torch.load(saved.path, weights_only=True))
    assert stopper.kept == {"best": late}


@pytest.mark.parametrize("late", [Path(), np.zeros(2), np.float32(1), deque([1])], ids=type)
def test_what_no_save_can_hold_is_refused_in_the_step_that_shows_it(tmp_path: Path, late: Any) -> None:
    stopper = Kept(best=None)
    guard = protected(tmp_path, torch.optim.SGD(nn.Linear(2, 2).parameters()), objects={"stopper": stopper})
    guard.training.begin_here()
    stopper.kept["best"] = [late]
    with guard.updating():
        pass
    with pytest.raises(FaultrunError, match=r"objects\['stopper'\] cannot be saved") as told:
        guard.step()
    assert type(late).__name__ in str(told.value.because)


LEFT_HALF_DONE: dict[str, Callable[[Any, Any], Any]] = {
    "a mode": lambda net, _: net[0].eval(),
    "a forward hook": lambda net, _: net[0].register_forward_hook(print, with_kwargs=True, always_call=True),
    "a hook before": lambda net, _: net[0].register_forward_pre_hook(print),
    "a hook in front": lambda net, _: net[1].register_forward_pre_hook(print, prepend=True),
    "a backward hook": lambda net, _: net[0].register_full_backward_hook(print),
    "a hook removed": lambda _, handle: handle.remove(),
    "one for another": lambda net, handle: (handle.remove(), net[1].register_forward_pre_hook(print)),
    "frozen": lambda net, _: net.requires_grad_(False),
}


def settings(net: Any) -> list[Any]:
    hooks = [[*one.items()] for module in net for name, one in vars(module).items() if "_hooks" in name]
    return [hooks, [one.training for one in net], [one.requires_grad for one in net.parameters()]]


@pytest.mark.parametrize("name", LEFT_HALF_DONE)
def test_a_step_that_is_broken_off_leaves_modules_as_they_were(name: str, tmp_path: Path) -> None:
    net = nn.Sequential(nn.Linear(3, 3), nn.Dropout(), nn.Linear(3, 1))
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    guard = protected(tmp_path, optimizer, net=net)
    step = iter(guard.steps(3))
    for _ in range(2):
        next(step)
        with guard.attempt():
            net(torch.ones(1, 3)).sum().backward()
            optimizer.step()
    handle = net[1].register_forward_pre_hook(print)  # between two steps
    next(step)
    before = settings(net)
    LEFT_HALF_DONE[name](net, handle)
    assert settings(net) != before
    guard.training.is_broken_off()
    guard.training.put_back()
    assert settings(net) == before
    handle.remove()
    assert not net[1]._forward_pre_hooks
