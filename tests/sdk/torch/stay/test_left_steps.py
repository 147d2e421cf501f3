"""A loop over ``guard.steps`` that the script leaves by ``break`` is over, after a resume too."""

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from faultrun.sdk.torch.guard import Guard  # noqa: E402
from sdk.support.protected import protected  # noqa: E402

pytestmark = pytest.mark.torch


def guarded(directory: Path) -> tuple[Guard, nn.Module, Any]:
    net = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    return protected(directory, optimizer, net=net), net, optimizer


def train(guard: Guard, net: nn.Module, optimizer: Any, last: int, breaks_at: int = 0) -> list[int]:
    seen = []
    for step in guard.steps(last):
        net(torch.ones(1, 2)).sum().backward()
        optimizer.step()
        seen.append(step)
        if step == breaks_at:
            break
    return seen


def resumed(first: Guard, directory: Path) -> tuple[Guard, nn.Module, Any]:
    again = guarded(directory)
    again[0].load(torch.load(first.save(directory / "saved.pt").path, weights_only=True))
    return again


def test_a_loop_that_was_left_makes_no_more_steps_and_the_next_loop_does(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = guarded(tmp_path)
    assert train(*first, 9, breaks_at=3) == [1, 2, 3]
    assert first[0].global_step == 3, "the step that was left by break has ended"
    again = resumed(first[0], tmp_path)
    assert train(*again, 9) == []
    assert "guard.steps was left by break at step 3" in capsys.readouterr().err
    assert train(*again, 5) == [4, 5]


def test_a_second_loop_of_the_same_process_goes_on_behind_a_break(tmp_path: Path) -> None:
    first = guarded(tmp_path)
    assert train(*first, 9, breaks_at=3) == [1, 2, 3]
    assert train(*first, 6) == [4, 5, 6]
    assert train(*resumed(first[0], tmp_path), 8) == [7, 8]
