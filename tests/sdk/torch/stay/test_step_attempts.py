"""What one attempt after the other says of its step."""

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

pytest.importorskip("torch")

import torch
from torch import nn
from torch.utils.data import DataLoader

from faultrun.sdk.session import Session
from faultrun.sdk.torch import protect
from faultrun.sdk.torch.group.group_store import PeerLost
from faultrun.sdk.torch.guard import Guard
from faultrun.sdk.torch.state.boundary import Objects, device_of
from faultrun.sdk.torch.state.state_dict import Parts
from faultrun.sdk.torch.training import Training
from faultrun.sdk.worker.save_files import Folder, SaveWriter
from faultrun.sdk.worker.update_lock import UpdatePhase
from faultrun.sdk.worker.worker import Worker

pytestmark = pytest.mark.torch

BATCHES, EPOCHS = 6, 2


class Rejoin:
    """Of a rank that finds its state whole whenever a peer has died."""

    of_newcomer = False
    train_on = SimpleNamespace(reads=lambda _: None, attempts=lambda **_: None)

    def __init__(self, training: Training) -> None:
        self._training, self.is_lost, self.rejoined = training, False, 0
        self.why_not = ""
        self.broken: Exception | None = None

    def settle(self) -> None:
        if self.is_lost:
            self.is_lost = False
            self.rejoined += 1
            for optimizer in self._training.parts.optimizers:
                optimizer.zero_grad()
            self._training.put_back()
            self._training.came_back()

    def lets_in(self) -> bool:
        return False

    def leave_if_lost(self) -> None:
        if self.is_lost:
            raise PeerLost("a rank is gone")

    def cannot_any_more(self, why: str) -> None:
        self.why_not = why

    def undoes(self, _error: Exception) -> bool:
        return self.is_lost

    def finish(self, _barrier: Any) -> bool:
        return True

    def at_an_epochs_end(self) -> None:
        """Nothing is copied."""

    def enter(self) -> None: ...

    check = stepped = forward_done = renews = enter

    def found_broken(self) -> Exception | None:
        return self.broken


@dataclass
class Job:
    """A small training. ``every``: so many batches make a step; ``lost``: (epoch, batch) and where there."""

    folder: Path
    words: dict[str, Any] = field(default_factory=dict)
    every: int = 1
    lost: dict[tuple[int, int], str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        torch.manual_seed(5)
        self.net = nn.Linear(1, 1)
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.01)
        parts = Parts(
            model=self.net, optimizers=(self.optimizer,), objects=Objects({}), device=device_of(self.net)
        )
        writer = SaveWriter(Folder(directory=self.folder), Session())
        training = Training(lambda: parts, Worker(Session()), writer)
        self.guard: Any = Guard(training)
        self.rejoin = Rejoin(training)
        self.guard.rejoin = cast("Any", self.rejoin)
        self.loader: Any = DataLoader(range(BATCHES), batch_size=None, shuffle=True, **self.words)
        self.done: dict[tuple[int, int], Any] = {}

    def batches(self) -> Iterator[tuple[tuple[int, int], int, bool]]:
        """Where it is, the batch, and whether that ends a step."""
        for epoch in range(self.guard.epoch, EPOCHS):
            for batch in self.guard.batches(self.loader, epoch):
                at = epoch, self.guard.step_in_epoch
                yield at, int(batch), at[1] % self.every == 0

    def one(self, at: tuple[int, int], batch: int, *, ends: bool) -> None:
        number = float(torch.rand(1))
        if self.lost.get(at) == "in":
            del self.lost[at]
            self.rejoin.is_lost = True
            raise RuntimeError("a collective failed")
        self.net(torch.full((1, 1), float(batch))).sum().backward()
        if ends:
            self.optimizer.step()
            self.optimizer.zero_grad()
        self.done[at] = batch, number

    def train(self, guard: Guard) -> None:
        held = self.rejoin.rejoined
        for at, batch, ends in self.batches():
            assert held == self.rejoin.rejoined, "what the function holds is of the group before"
            self.one(at, batch, ends=ends)
            if ends:
                guard.step()
            if self.lost.get(at) == "behind":
                del self.lost[at]
                self.rejoin.is_lost = True

    def trained(self) -> Any:
        """What a function for ``run`` read, where it was and what came of it."""
        self.guard.run(self.train)
        assert not self.lost
        return self.done, self.guard.global_step, float(self.net.weight.detach())


@pytest.fixture
def in_a_group(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("faultrun.sdk.torch.stay.step_attempts.training_group", object)


def test_an_attempt_that_is_kept_for_all_steps_tells_of_the_last(tmp_path: Path) -> None:
    job = Job(tmp_path)
    job.guard.training.begin_here()
    attempt, told = job.guard.attempt(), []
    for is_lost in (False, True, False):
        with attempt:
            if is_lost:
                job.rejoin.is_lost = True
                raise RuntimeError("a peer is gone")
            job.optimizer.step()
        told.append((job.guard.global_step, attempt.done))
    assert told == [(1, True), (1, False), (2, True)]


@pytest.mark.parametrize("every", [1, 2])
@pytest.mark.parametrize("words", [{}, {"num_workers": 1, "persistent_workers": True}])
def test_a_function_that_is_entered_again_reads_on_where_its_loader_was(
    words: dict[str, Any], every: int, tmp_path: Path, in_a_group: None
) -> None:
    expected = Job(tmp_path, words, every).trained()
    assert expected[1] == EPOCHS * BATCHES // every
    several = {(0, 1): "in", (0, 6): "behind", (1, 1): "in", (1, 4): "behind", (1, 6): "in"}
    for lost in ({(0, 3): "in"}, {(0, 4): "behind"}, several):
        assert Job(tmp_path, words, every, lost).trained() == expected


@pytest.mark.parametrize("attempts", [False, True])
def test_where_gradients_are_added_up_each_batch_comes_once_and_nobody_stays(
    attempts: bool, tmp_path: Path, in_a_group: None
) -> None:
    """A step is an update; the gradients of the batches before it are nowhere but here."""
    job = Job(tmp_path, every=3)
    for at, batch, ends in job.batches():
        with job.guard.attempt() if attempts else nullcontext():
            job.one(at, batch, ends=ends)
    assert job.guard.global_step == EPOCHS * BATCHES // 3
    assert "added up" in job.rejoin.why_not
    whole = Job(tmp_path, every=3)
    assert whole.trained() == (job.done, job.guard.global_step, float(job.net.weight.detach()))
    assert not whole.rejoin.why_not


@pytest.mark.parametrize("lost", [None, (0, 5), (1, 1)])
def test_a_batch_that_is_left_by_break_is_given_to_no_later_loop(
    lost: tuple[int, int] | None, tmp_path: Path, in_a_group: None
) -> None:
    def read(job: Job) -> Any:
        for epoch in range(job.guard.epoch, EPOCHS):
            for batch in job.guard.batches(job.loader, epoch):
                if job.guard.step_in_epoch > 4:
                    job.rejoin.is_lost = (epoch, 5) in job.lost
                    break
                with job.guard.attempt():
                    job.one((epoch, job.guard.step_in_epoch), int(batch), ends=True)
        return job.done, job.guard.global_step, float(job.net.weight.detach())

    whole = Job(tmp_path)
    expected = whole.guard.run(lambda _: read(whole))
    job = Job(tmp_path, lost={lost: "in"} if lost else {})
    assert expected[1] == EPOCHS * 4
    assert read(job) == expected
    assert bool(job.rejoin.rejoined) is bool(lost)
    assert not job.rejoin.why_not


def test_gradients_of_a_batch_that_is_left_by_break_are_added_up_too(
    tmp_path: Path, in_a_group: None
) -> None:
    job = Job(tmp_path)
    for epoch in range(EPOCHS):
        for batch in job.guard.batches(job.loader, epoch):
            job.one((epoch, job.guard.step_in_epoch), int(batch), ends=job.guard.step_in_epoch < 4)
            if job.guard.step_in_epoch == 4:
                break
    assert "added up" in job.rejoin.why_not


def test_a_step_that_is_left_by_break_begins_anew_in_a_later_loop(tmp_path: Path) -> None:
    def drawn(job: Job) -> list[tuple[int, float]]:
        numbers = []
        for last in (8, 12):
            for step in job.guard.steps(last):
                if step == 6 and last == 8:
                    break
                with job.guard.attempt():
                    numbers.append((step, float(torch.rand(1))))
                    job.optimizer.step()
            numbers.append((0, float(torch.rand(1))))
        return numbers

    whole = Job(tmp_path)
    assert whole.guard.run(lambda _: drawn(whole)) == drawn(Job(tmp_path))


@pytest.mark.parametrize("attempts", [False, True])
def test_without_faultrun_the_same_steps_are_counted(attempts: bool, tmp_path: Path) -> None:
    net = nn.Linear(1, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    guard = protect(net, optimizer, directory=tmp_path)
    for _ in guard.batches(list(range(BATCHES)), 0):
        with guard.attempt() if attempts else nullcontext():
            net(torch.ones(1, 1)).sum().backward()
            if guard.step_in_epoch % 3 == 0:
                optimizer.step()
                optimizer.zero_grad()
    assert guard.global_step == BATCHES // 3


def test_an_update_whose_closure_made_gradients_worth_nothing_is_none(
    tmp_path: Path, in_a_group: None
) -> None:
    """The average of DistributedDataParallel fails in it, behind the look that precedes an update."""
    job = Job(tmp_path)

    def closure() -> Any:
        loss = job.net(torch.ones(1, 1)).sum()
        loss.backward()
        job.rejoin.broken = PeerLost("a rank is gone")
        return loss

    with pytest.raises(PeerLost):
        job.optimizer.step(closure)
    assert job.guard.training.lock.phase is UpdatePhase.UPDATING, "half changed, and saved by nobody"


def test_a_scaler_unscales_anew_where_a_step_comes_again() -> None:
    net, scaler = nn.Linear(1, 1), torch.amp.GradScaler("cpu")
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    objects = Objects({"scaler": scaler})
    scaler.scale(net(torch.ones(1, 1)).sum()).backward()
    then = objects.capture()
    scaler.unscale_(optimizer)
    objects.put_back(then)
    scaler.unscale_(optimizer)


def test_a_step_without_an_update_counts_where_a_scaler_made_none(tmp_path: Path, in_a_group: None) -> None:
    job = Job(tmp_path)
    with job.guard.attempt():
        job.net(torch.ones(1, 1)).sum().backward()
        job.optimizer.param_groups[0]["lr"] /= 2
    assert job.guard.global_step == 1
    assert not job.rejoin.why_not
