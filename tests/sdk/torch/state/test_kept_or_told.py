"""What is easily lost between two processes: kept as it was, or told by its name."""

from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from faultrun.sdk.torch.guard import Guard  # noqa: E402
from faultrun.sdk.torch.state.boundary import Objects  # noqa: E402
from faultrun.sdk.torch.state.own_attributes import attributes_of  # noqa: E402
from faultrun.sdk.torch.state.packing import filled, opened, pack  # noqa: E402
from faultrun.sdk.torch.state.trees import copied  # noqa: E402
from sdk.support.protected import protected  # noqa: E402

pytestmark = pytest.mark.torch


def job(directory: Path, kind: Any = torch.optim.Adam, **objects: Any) -> tuple[Guard, Any, nn.Module]:
    torch.manual_seed(1)
    net = nn.Linear(2, 2)
    optimizer = kind(net.parameters())
    guard = protected(directory, optimizer, net=net, objects=objects)
    guard.training.begin_here()
    return guard, optimizer, net


def step(guard: Guard, optimizer: Any, net: nn.Module) -> None:
    net(torch.ones(1, 2, dtype=net.weight.dtype)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    guard.step()


def test_an_object_with_an_empty_state_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mean = SimpleNamespace(state_dict=dict, load_state_dict=lambda _: None)
    kept = nn.BatchNorm1d(2)
    this = job(tmp_path, mean=mean, kept=kept)
    for _ in range(3):
        step(*this)
    told = capsys.readouterr().err
    assert told.count("nothing of objects['mean'] is kept") == 1
    assert "'kept'" not in told


def test_averages_of_a_module_among_objects_are_those_of_the_rank_that_saved() -> None:
    objects = Objects({"teacher": nn.BatchNorm1d(2), "ema": nn.Linear(2, 2)})
    assert objects.put_noted(b"") == ["teacher"]


def test_a_counter_stays_a_counter_on_its_way_to_another_rank() -> None:
    state = {"seen": Counter(a=2), "deep": {"more": Counter(b=1)}, "tensor": torch.ones(2)}
    packed = pack(state)
    came = filled(opened(packed.plan), packed.tensors)
    came["seen"]["new"] += 1
    assert came["seen"] == Counter(a=2, new=1)
    assert type(came["deep"]["more"]) is Counter


class Queue(nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("held", torch.zeros(0, 2))

    def put(self) -> None:
        self.held: Any = torch.cat([self.held, torch.ones(1, 2)])


def test_a_buffer_that_grows_in_a_module_among_objects_comes_back_in_its_length(tmp_path: Path) -> None:
    queue, other = Queue(), Queue()
    guard, optimizer, net = job(tmp_path / "a", queue=queue)
    queue.put()
    step(guard, optimizer, net)
    queue.put()
    guard.training.put_back()
    assert queue.held.shape == (1, 2)
    saved = copied(guard.training.state_at(guard.training.history[-1]))
    job(tmp_path / "b", queue=other)[0].load(saved)
    assert torch.equal(other.held, torch.ones(1, 2))


def test_a_model_that_was_cast_while_it_trained_comes_back_in_that_type(tmp_path: Path) -> None:
    def kind(parameters: Any) -> Any:
        return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)

    first, second = job(tmp_path / "a", kind), job(tmp_path / "b", kind)
    step(*first)
    first[2].bfloat16()
    step(*first)
    saved = torch.load(first[0].save(tmp_path / "saved.pt").path, weights_only=True)
    second[0].load(saved)
    assert second[2].weight.dtype is torch.bfloat16
    for one in (first, second):
        step(*one)
    assert torch.equal(first[2].weight, second[2].weight)


def test_gradients_that_are_views_of_one_buffer_are_emptied_there_and_others_dropped(tmp_path: Path) -> None:
    guard, optimizer, net = job(tmp_path)
    flat = torch.zeros(6)
    net.weight.grad, net.bias.grad = flat[:4].view(2, 2), flat[4:].view(2)
    for _ in range(3):
        flat.zero_()
        net(torch.ones(1, 2)).sum().backward()
        optimizer.step()
        guard.step()
    net(torch.ones(1, 2)).sum().backward()
    net.bias.grad = None
    net(torch.ones(1, 2)).sum().backward()
    guard.training.parts.forget_gradients()
    assert net.bias.grad is None, "it was made in this step"
    assert not flat[:4].any()
    net(torch.ones(1, 2)).sum().backward()
    assert torch.equal(flat[:4], torch.ones(4))


class Sums(nn.Module):  # type: ignore[misc]
    """A metric, as torchmetrics makes them."""

    def __init__(self) -> None:
        super().__init__()
        self.total, self.count, self.seen, self.unit = torch.zeros(()), 0, [torch.zeros(1)], "m"
        self.part = nn.ModuleList([nn.Linear(1, 1)])

    def update(self, value: float) -> None:
        self.total = self.total + value
        self.count += 1
        self.seen.append(torch.full((1,), value))

    @property
    def told(self) -> Any:
        return float(self.total), self.count, [float(one) for one in self.seen], self.unit


def test_attributes_of_a_module_among_objects_come_back_and_are_taken_back(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sums, other = Sums(), Sums()
    guard, optimizer, net = job(tmp_path / "a", sums=sums)
    for number in range(3):
        sums.update(number)
        step(guard, optimizer, net)
    there = sums.told
    sums.update(9.0)
    sums.unit = "km"
    guard.training.put_back()
    assert sums.told == there
    torch.save(guard.training.host_state_at(guard.training.history[-1]), tmp_path / "saved.pt")
    again, *_ = job(tmp_path / "b", sums=other)
    other.unit = "cm"  # as the next version of the script has it
    again.load(torch.load(tmp_path / "saved.pt", weights_only=True))
    assert other.told[:3] == there[:3]
    assert "nothing of objects" not in capsys.readouterr().err


def test_attributes_of_a_module_among_objects_are_each_ranks_own() -> None:
    one, two = Sums(), Sums()
    first, second = (Objects({"sums": sums, **attributes_of({"sums": sums})}) for sums in (one, two))
    for number in range(3):
        one.update(number)
    noted = first.noted()
    two.update(7.0)
    second.load(second.now())
    assert second.put_noted(noted) == []
    assert two.told == one.told
