"""What one attempt after the other says of its step."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from torch import nn
from torch.utils.data import DataLoader

from faultrun.sdk.files import Folder, Position, SaveWriter
from faultrun.sdk.session import Session
from faultrun.sdk.torch.attempts import StepAttempt
from faultrun.sdk.torch.capture import Buffers, Objects, device_of
from faultrun.sdk.torch.guard import Guard
from faultrun.sdk.torch.rejoin import PeerLost
from faultrun.sdk.torch.state import Parts
from faultrun.sdk.worker import Worker

pytestmark = pytest.mark.torch

BATCHES, EPOCHS = 6, 2


def test_one_that_is_kept_for_all_steps_tells_of_the_last() -> None:
    def counts() -> None:
        guard.position = Position(guard.position.step + 1)

    rejoin = SimpleNamespace(found_broken=lambda: None, undoes=lambda error: True, settle=lambda: None)
    redo = SimpleNamespace(attempted=False, in_function=False)
    guard: Any = SimpleNamespace(
        position=Position(), rejoin=rejoin, redo=redo, accumulating=False, step=counts
    )
    attempt = StepAttempt(guard)
    told = []
    for is_lost in (False, True, False):
        with attempt:
            if is_lost:
                raise RuntimeError("a peer is gone")
        told.append((guard.position.step, attempt.done))
    assert told == [(1, True), (1, False), (2, True)]


class Rejoin:
    """Of a rank that finds its state whole whenever a peer has died."""

    is_outside = False

    def __init__(self, guard: Guard) -> None:
        self._guard = guard
        self.is_lost = False
        self.rejoined = 0

    def settle(self) -> None:
        if self.is_lost:
            self.is_lost = False
            self.rejoined += 1
            self._guard.redo.put_back()
            self._guard.came_back()

    def leave_if_lost(self) -> None:
        if self.is_lost:
            raise PeerLost("a rank is gone")

    def undoes(self, _error: Exception) -> bool:
        return self.is_lost

    def finish(self, _barrier: Any) -> bool:
        return True

    def found_broken(self) -> None: ...

    enter = check = stepped = forward_done = found_broken


def what_a_function_reads(folder: Path, words: dict[str, Any], *, lost_at: dict[int, str]) -> list[Any]:
    """Steps, batches and random numbers, of a rank whose peers die in some steps or behind them."""
    torch.manual_seed(5)
    net = nn.Linear(1, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    parts = Parts(
        model=net,
        optimizers=(optimizer,),
        objects=Objects({}),
        buffers=Buffers(net),
        device=device_of(net),
        forward_hooks=False,
    )
    writer = SaveWriter(Folder(directory=folder), Session())
    guard = Guard(lambda: parts, Worker(Session()), writer)
    rejoin: Any = Rejoin(guard)
    guard.rejoin = rejoin
    loader: Any = DataLoader(range(BATCHES), batch_size=None, shuffle=True, **words)
    done: list[Any] = []
    left = dict(lost_at)

    def train(guard: Guard) -> None:
        held = rejoin.rejoined
        for epoch in range(guard.epoch, EPOCHS):
            for batch in guard.batches(loader, epoch):
                assert held == rejoin.rejoined, "what the function holds is of the group before"
                step = guard.global_step + 1
                number = float(torch.rand(1))
                if left.get(step) == "in":
                    del left[step]
                    rejoin.is_lost = True
                    raise RuntimeError("a collective failed")
                net(torch.full((1, 1), float(batch))).sum().backward()
                optimizer.step()
                optimizer.zero_grad()
                guard.step()
                done.append((step, int(batch), number, epoch))
                if left.get(step) == "behind":
                    del left[step]
                    rejoin.is_lost = True

    guard.run(train)
    assert not left
    return [*done, float(net.weight.detach())]


@pytest.mark.parametrize("words", [{}, {"num_workers": 1, "persistent_workers": True}])
def test_a_function_that_is_entered_again_reads_on_where_its_loader_was(
    words: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("faultrun.sdk.torch.attempts.training_group", object)
    expected = what_a_function_reads(tmp_path, words, lost_at={})
    assert [step for step, *_ in expected[:-1]] == [*range(1, EPOCHS * BATCHES + 1)]
    for lost_at in ({3: "in"}, {4: "behind"}, {1: "in", 6: "behind", 7: "in", 12: "in"}):
        assert what_a_function_reads(tmp_path, words, lost_at=lost_at) == expected
