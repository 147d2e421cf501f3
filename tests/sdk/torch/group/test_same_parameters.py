"""Ranks that train parameters of their own are refused where one rank's state is taken for another's."""

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from faultrun.errors import FaultrunError  # noqa: E402
from faultrun.sdk.session import Session  # noqa: E402
from faultrun.sdk.torch.group.same_parameters import SameParameters  # noqa: E402
from faultrun.sdk.torch.state.boundary import Objects, device_of  # noqa: E402
from faultrun.sdk.torch.state.state_dict import Parts  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("group_of_one")]


def net(seed: int) -> nn.Module:
    torch.manual_seed(1)
    made = nn.Sequential(nn.Linear(3, 5), nn.Linear(5, 5), nn.Embedding(900, 4))
    with torch.no_grad():
        made[1].bias.add_(seed)
    return made


def rank(number: int, model: nn.Module, *replicas: int, world: int = 3, stage: int = 1) -> SameParameters:
    parts = Parts(model=model, optimizers=(), objects=Objects({}), device=device_of(model), stage=stage)
    return SameParameters(parts, Session(rank=number, world_size=world), replicas)


def test_parameters_of_a_rank_that_differ_are_refused_by_name_and_step() -> None:
    rank(0, net(0)).stepped(1)
    rank(1, net(0)).stepped(1)
    with pytest.raises(FaultrunError) as refused:
        rank(2, net(1)).stepped(1)
    assert "1.bias differs between rank 0 and rank 2 behind step 1" in str(refused.value.because)


def test_ranks_that_say_that_each_has_its_own_state_may_differ() -> None:
    rank(0, net(0), 0).stepped(1)
    rank(1, net(1), 1).stepped(1)
    rank(0, net(0), 0, 2).stepped(2)
    rank(1, net(1), 1, 3).stepped(2)


def test_the_next_training_of_a_script_is_not_compared_with_the_one_before() -> None:
    rank(0, net(0)).stepped(1)
    rank(0, net(1), stage=2).stepped(1)
    rank(1, net(1), stage=2).stepped(1)


def test_steps_that_are_no_multiple_of_a_number_of_local_steps_are_looked_at() -> None:
    """Ranks that begin late to train apart are alike behind each average."""
    first, second = net(0), net(0)
    one, other = rank(0, first), rank(1, second)
    for step in range(1, 5):
        one.stepped(step)
        other.stepped(step)
    with torch.no_grad():
        second[2].weight[450:].zero_()
    one.stepped(5)
    with pytest.raises(FaultrunError):
        other.stepped(5)


def test_ranks_are_looked_at_anew_in_each_group_that_a_rank_has_come_into() -> None:
    """The newcomer and the others may go by learning rates of their own from then on."""
    first, other = rank(0, net(0)), rank(1, net(0))
    for step in range(1, 8):
        first.stepped(step)
        other.stepped(step)
    late = rank(1, net(1))
    for one in (first, late):
        one._session.moves_to(1, "")
    first.stepped(8)
    with pytest.raises(FaultrunError):
        late.stepped(8)


def test_an_optimizer_of_which_each_rank_keeps_its_share_is_refused_by_name() -> None:
    def stepped(number: int) -> SameParameters:
        model = net(0)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        optimizer.state[[*model.parameters()][number]]["momentum_buffer"] = torch.ones(3)
        parts = Parts(model=model, optimizers=(optimizer,), objects=Objects({}), device=device_of(model))
        return SameParameters(parts, Session(rank=number, world_size=3), ())

    stepped(0).stepped(1)
    with pytest.raises(FaultrunError) as refused:
        stepped(1).stepped(1)
    assert "what SGD 0 keeps of 0.weight differs between rank 0 and rank 1" in str(refused.value.because)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("change", "passes"), [("last bits", True), ("a local step", False)])
def test_last_bits_may_drift_on_devices_that_are_unlike_and_local_steps_may_not(
    dtype: Any, change: str, passes: bool
) -> None:
    first, second = net(0).to(dtype), net(0).to(dtype)
    one, other = rank(0, first), rank(1, second)
    one.stepped(1)
    seldom = 1 if dtype is torch.float32 else 1000  # short numbers are rounded to another now and then
    with torch.no_grad():
        for parameter in second.parameters():
            flat = parameter.view(-1)
            if change == "last bits":
                flat[::seldom] = torch.nextafter(flat[::seldom], torch.full((), 9.0, dtype=dtype))
            else:
                flat.add_(1e-2 * torch.randn(flat.shape).to(dtype) * flat.abs().mean())
    if passes:
        other.stepped(1)
        return
    with pytest.raises(FaultrunError):
        other.stepped(1)


def test_the_order_of_an_optimizers_parameters_is_its_ranks_own() -> None:
    def stepped(number: int) -> None:
        model = net(0)
        trained = [*model.parameters()]
        optimizer = torch.optim.SGD(trained[::-1] if number else trained, lr=0.1)
        for place, one in enumerate(trained):
            optimizer.state[one]["momentum_buffer"] = torch.full((3,), float(place))
        parts = Parts(model=model, optimizers=(optimizer,), objects=Objects({}), device=device_of(model))
        SameParameters(parts, Session(rank=number, world_size=2), ()).stepped(1)

    stepped(0)
    stepped(1)
