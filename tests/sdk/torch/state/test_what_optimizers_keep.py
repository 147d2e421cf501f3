"""What the groups and the states of optimizers hold beside plain numbers: saved, taken back, or refused."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from faultrun.errors import FaultrunError  # noqa: E402
from faultrun.sdk.torch.guard import Guard  # noqa: E402
from faultrun.sdk.torch.state.own_attributes import own_states  # noqa: E402
from sdk.support.protected import protected  # noqa: E402

pytestmark = pytest.mark.torch


class Counting(torch.optim.SGD):  # type: ignore[misc, name-defined]
    """Keeps a number under a word, and one of numpy's beside each parameter."""

    kept: Any = staticmethod(np.float64)

    def step(self, closure: Any = None) -> Any:
        self.state["steps"] = self.state.get("steps", 0) + 1
        for group in self.param_groups:
            for one in group["params"]:
                self.state[one]["seen"] = self.kept(self.state[one].get("seen", 0) + 1)
        return super().step(closure)


def job(directory: Path, kind: Any = torch.optim.SGD, **group: Any) -> tuple[Guard, Any, nn.Module]:
    torch.manual_seed(1)
    net = nn.Linear(2, 2)
    optimizer = kind([{"params": [*net.parameters()], **group}], lr=0.1, momentum=0.9)
    guard = protected(directory, optimizer, net=net)
    guard.training.begin_here()
    return guard, optimizer, net


def step(guard: Guard, optimizer: Any, net: nn.Module) -> None:
    net(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    guard.step()


def test_a_learning_rate_of_numpy_is_saved_as_a_number(tmp_path: Path) -> None:
    guard, optimizer, net = job(tmp_path)
    optimizer.param_groups[0]["lr"] = np.float64(0.5)
    step(guard, optimizer, net)
    saved = torch.load(guard.save(tmp_path / "saved.pt").path, weights_only=True)
    assert saved["optimizer"]["param_groups"][0]["lr"] == 0.5


def test_a_list_in_a_group_that_a_step_appends_to_is_taken_back_and_saved_as_of_the_step(
    tmp_path: Path,
) -> None:
    guard, optimizer, net = job(tmp_path, norms=[1.0])
    step(guard, optimizer, net)
    group, training = optimizer.param_groups[0], guard.training
    for _ in range(2):
        group["norms"].append(2.0)
        kept = training.state_at(training.history[-1])["optimizer"]["param_groups"][0]
        assert kept["norms"] == [1.0]
        training.put_back()
        assert group["norms"] == [1.0]


def test_what_an_optimizer_keeps_under_a_word_or_as_a_number_of_numpy_comes_back(tmp_path: Path) -> None:
    first, second = job(tmp_path, Counting), job(tmp_path, Counting)
    for _ in range(3):
        step(*first)
    second[0].load(torch.load(first[0].save(tmp_path / "saved.pt").path, weights_only=True))
    assert second[1].state["steps"] == 3
    assert second[1].state[second[2].weight]["seen"] == 3
    assert "momentum_buffer" in second[1].state[second[2].weight]


def test_what_no_save_can_hold_is_refused_in_the_step_in_which_it_comes(tmp_path: Path) -> None:
    guard, optimizer, net = job(tmp_path)
    optimizer.param_groups[0]["lr"] = np.float32(0.5)
    with pytest.raises(FaultrunError, match="SGD cannot be saved") as refused:
        step(guard, optimizer, net)
    assert "lr is a float32" in str(refused.value.because)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Counting, "kept", staticmethod(np.float32))
        with pytest.raises(FaultrunError, match="seen is a float32"):
            step(*job(tmp_path, Counting))


@pytest.mark.parametrize(("module", "is_own"), [("lightning_optim", True), ("lightning.pytorch.core", False)])
def test_a_module_of_the_script_is_no_librarys_because_its_name_begins_alike(
    monkeypatch: pytest.MonkeyPatch, module: str, is_own: bool
) -> None:
    monkeypatch.setattr(Counting, "__module__", module)
    assert bool(own_states([Counting([nn.Parameter(torch.ones(1))], lr=0.1)])) is is_own
