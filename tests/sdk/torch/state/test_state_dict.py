"""What is saved of a torch training, and that it is brought back exactly; without other ranks."""

import json
import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from faultrun.errors import FaultrunError
from faultrun.sdk.session import Session
from faultrun.sdk.torch import protect
from faultrun.sdk.torch.guard import Guard
from faultrun.sdk.torch.provider import GaspFile, TorchProvider
from faultrun.sdk.torch.state.boundary import Device, Objects
from faultrun.sdk.torch.state.state_dict import Parts
from faultrun.sdk.torch.state.trees import copied
from faultrun.sdk.torch.training import Training
from faultrun.sdk.worker.save_files import Folder, SaveWriter
from faultrun.sdk.worker.state_provider import SaveOrder
from faultrun.sdk.worker.update_lock import NotSaved, UpdatePhase
from faultrun.sdk.worker.worker import Worker
from sdk.scripts.train_all import Everything
from sdk.support import wrappers
from sdk.support.fake_supervisor import supervised
from sdk.support.protected import protected
from sdk.support.torch_imports import IMPORTS
from support.places import TESTS

pytestmark = [pytest.mark.torch, pytest.mark.slow]

TRAIN_ALL = TESTS / "sdk" / "scripts" / "train_all.py"


class Letters(IterableDataset):  # type: ignore[misc]
    def __iter__(self) -> Iterator[float]:
        return (torch.rand(1).item() for _ in range(12))


def plain_list() -> Any:
    return list(range(12))


def shuffled() -> Any:
    return DataLoader(TensorDataset(torch.arange(24)), batch_size=2, shuffle=True)


def with_generator() -> Any:
    generator = torch.Generator().manual_seed(5)
    return DataLoader(TensorDataset(torch.arange(24)), batch_size=2, shuffle=True, generator=generator)


def unbatched() -> Any:
    return DataLoader(TensorDataset(torch.arange(12)), batch_size=None, shuffle=True)


def stream() -> Any:
    return DataLoader(Letters(), batch_size=None)


def with_workers() -> Any:
    return DataLoader(TensorDataset(torch.arange(24)), batch_size=2, shuffle=True, num_workers=1)


def with_workers_for_all_epochs() -> Any:
    data = TensorDataset(torch.arange(24))
    return DataLoader(data, batch_size=2, shuffle=True, num_workers=1, persistent_workers=True)


def epochs_of(
    guard: Guard, loader: Any, stop_after: int | None = None, first: int | None = None
) -> list[str]:
    """What a loop over three epochs sees: batches, and random numbers between them."""
    seen: list[str] = []
    for epoch in range(guard.epoch if first is None else first, 3):
        for batch in guard.batches(loader, epoch):
            seen.append(f"{epoch} {batch} {torch.rand(1).item():.6f} {random.random():.6f}")
            guard.step()
            if guard.global_step == stop_after:
                return seen
    return seen


def small_guard(directory: Path) -> Guard:
    torch.manual_seed(1)
    random.seed(1)
    net = nn.Linear(2, 2)
    return protect(net, torch.optim.SGD(net.parameters(), lr=0.1), directory=directory)


@pytest.mark.parametrize(
    "make",
    [
        *(plain_list, shuffled, with_generator, unbatched, stream),
        *(wrappers.by_epoch, wrappers.by_a_generator_of_the_sampler, wrappers.accelerated),
        *(wrappers.accelerated_with_a_generator, wrappers.by_fabric),
    ],
)
@pytest.mark.parametrize("stop_after", [1, 5, 12, 13, 24, 35])
def test_a_loop_goes_on_with_the_batches_and_numbers_that_would_have_come(
    tmp_path: Path, make: Callable[[], Any], stop_after: int
) -> None:
    whole = epochs_of(small_guard(tmp_path), make())
    first = small_guard(tmp_path)
    began = epochs_of(first, make(), stop_after)
    saved = first.save(tmp_path / "saved.pt")
    torch.rand(7)  # what happens later must not matter
    second = small_guard(tmp_path)
    loader = make()
    second.load(torch.load(saved.path, weights_only=True))
    assert began + epochs_of(second, loader) == whole


def test_a_loop_that_begins_at_epoch_0_again_repeats_no_epoch_that_is_done(tmp_path: Path) -> None:
    whole = epochs_of(small_guard(tmp_path), stream())
    steps = len(whole)
    first = small_guard(tmp_path)
    began = epochs_of(first, stream(), steps - 1)
    saved = first.save(tmp_path / "saved.pt")
    second = small_guard(tmp_path)
    second.load(torch.load(saved.path, weights_only=True))
    assert began + epochs_of(second, stream(), first=0) == whole
    assert epochs_of(second, stream(), first=1) != [], "what a script trains again later is its own affair"


@pytest.mark.parametrize(
    ("make", "stop_after"),
    [(with_workers, 5), (with_workers_for_all_epochs, 12), (with_workers_for_all_epochs, 17)],
)
def test_loader_processes_keep_the_order(make: Callable[[], Any], stop_after: int, tmp_path: Path) -> None:
    whole = epochs_of(small_guard(tmp_path), make())
    first = small_guard(tmp_path)
    began = epochs_of(first, make(), stop_after)
    saved = first.save(tmp_path / "saved.pt")
    second = small_guard(tmp_path)
    second.load(torch.load(saved.path, weights_only=True))
    assert began + epochs_of(second, make()) == whole


@pytest.mark.filterwarnings(
    "ignore:Detected call of .lr_scheduler.step"
)  # after a step that the scaler skipped
def test_everything_saved_at_any_moment_is_brought_back_exactly(tmp_path: Path) -> None:
    """Saves are asked for as it goes; a training resumed from each of them ends in the very same state."""
    with supervised(tmp_path / "s", 1, imports=IMPORTS) as one:
        env = {"CKPT": str(tmp_path / "ckpt"), "OUT": str(tmp_path)}
        one.start(0, TRAIN_ALL, "0.002", env=env)
        one.wait_for(lambda: one.step_of(0) >= 1, "step 1")
        while len(one.heard(0, "saved")) < 8 and one.step_of(0) < 20:
            count = len(one.heard(0, "saved"))
            one.say(0, "save", deadline_s=10.0)
            one.wait_for(lambda: len(one.heard(0, "saved")) > count, "a save")  # noqa: B023 - waited for at once
        assert one.wait_ended(0) == [0], one.logs()
        saves = one.heard(0, "saved")
        assert one.heard(0, "failed") == []
    end = (tmp_path / "sum").read_text()
    assert len({saved["step"] for saved in saves}) > 2
    for saved in saves:
        training = Everything(str(tmp_path / "unused"))
        training.guard.load(torch.load(saved["path"], weights_only=True))
        assert training.guard.global_step == saved["step"]
        for _ in training.train():
            pass
        assert training.sum() == end


def test_an_optimizer_without_hooks_is_refused_with_a_way_out(tmp_path: Path) -> None:
    with pytest.raises(FaultrunError, match=r"guard\.updating"):
        protected(tmp_path, object())


class Stream:
    """A device that does what it is asked later: a mark is passed once ``done`` has come to its number."""

    def __init__(self) -> None:
        self.asked = 0
        self.done = 1 << 30

    def mark(self) -> Callable[[], bool]:
        self.asked += 1
        number = self.asked
        return lambda: number <= self.done


def ahead_of_its_device(tmp_path: Path, stream: Stream) -> tuple[Guard, TorchProvider, nn.Module, Any]:
    net = nn.Linear(2, 2)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.1)
    parts = Parts(
        model=net,
        optimizers=(optimizer,),
        objects=Objects({}),
        device=Device(mark=stream.mark, ahead=64, to_host=lambda state: state),
    )
    writer = SaveWriter(Folder(directory=tmp_path), Session())
    training = Training(lambda: parts, Worker(Session()), writer)
    return Guard(training), TorchProvider(training, GaspFile(training)), net, optimizer


def one_step(guard: Guard, net: nn.Module, optimizer: Any) -> None:
    net(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    guard.step()


def soon(window_s: float = 5.0) -> SaveOrder:
    import time

    return SaveOrder(until_s=time.monotonic() + window_s)


class ByEpoch:
    """A script that steps its scheduler between two epochs, and saves before or after that."""

    def __init__(self, directory: Path) -> None:
        torch.manual_seed(1)
        self.net = nn.Linear(2, 2)
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=1.0)
        self.scheduler = torch.optim.lr_scheduler.StepLR(self.optimizer, 1, gamma=0.5)
        objects = {"scheduler": self.scheduler}
        self.guard = protected(directory, self.optimizer, net=self.net, objects=objects)

    def trains(self, path: Path | None = None, *, first: bool = False) -> list[tuple[int, float]]:
        """Each step with its learning rate, to the end or to a save behind the second epoch."""
        rates: list[tuple[int, float]] = []
        for epoch in range(self.guard.epoch, 4):
            for _ in self.guard.batches(DataLoader(TensorDataset(torch.arange(6)), batch_size=2), epoch):
                one_step(self.guard, self.net, self.optimizer)
                rates.append((self.guard.global_step, self.optimizer.param_groups[0]["lr"]))
            if path is not None and first and epoch == 1:
                self.guard.save(path)
                return rates
            self.scheduler.step()
            if path is not None and epoch == 1:
                self.guard.save(path)
                return rates
        return rates


@pytest.mark.parametrize("first", [True, False])
def test_what_a_script_does_between_two_epochs_is_not_done_twice_after_a_save_there(
    tmp_path: Path, *, first: bool
) -> None:
    whole = ByEpoch(tmp_path / "whole").trains()
    began = ByEpoch(tmp_path / "began").trains(tmp_path / "saved.pt", first=first)
    again = ByEpoch(tmp_path / "again")
    again.guard.load(torch.load(tmp_path / "saved.pt", weights_only=True))
    assert began + again.trains() == whole


def test_a_program_ahead_of_its_device_is_saved_where_the_device_stands(tmp_path: Path) -> None:
    """The third update hangs on the device; the program has gone on and asked for two more."""
    stream = Stream()
    guard, provider, net, optimizer = ahead_of_its_device(tmp_path, stream)
    for _ in range(2):
        one_step(guard, net, optimizer)
    device_state = {name: one.clone() for name, one in net.state_dict().items()}
    stream.done = stream.asked
    for _ in range(3):
        one_step(guard, net, optimizer)
    net.load_state_dict(device_state)  # what a device that hangs would hold
    saved = provider.save(soon())
    assert saved.step == 2
    state = torch.load(saved.path, weights_only=True)
    steps = {float(one["step"]) for one in state["optimizer"]["state"].values()}
    assert steps == {2.0}  # counted on the CPU, which was at 5


def test_a_device_that_hangs_inside_an_update_cannot_be_saved(tmp_path: Path) -> None:
    stream = Stream()
    guard, provider, net, optimizer = ahead_of_its_device(tmp_path, stream)
    one_step(guard, net, optimizer)
    stream.done = stream.asked + 1  # past the beginning of the next update, not past its end
    one_step(guard, net, optimizer)
    with pytest.raises(NotSaved, match="middle of an update"):
        provider.save(soon(0.5))
    assert guard.training.lock.phase is UpdatePhase.CLEAN


def test_a_step_that_nobody_ended_is_of_the_life_of_now(tmp_path: Path) -> None:
    """The first one behind a rejoin: the main thread stands after its update, and the peers have ended it."""
    guard, provider, net, optimizer = ahead_of_its_device(tmp_path, Stream())
    for _ in range(2):
        one_step(guard, net, optimizer)
    session = guard.training.writer.session
    session.incarnation, session.trained_in = 1, 0
    net(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    saved = provider.save(soon())
    told = json.loads(Path(f"{saved.path}.manifest.json").read_bytes())
    assert (saved.step, told["incarnation"], session.life) == (3, 1, 0)


def test_the_same_step_is_written_once(tmp_path: Path) -> None:
    guard, provider, net, optimizer = ahead_of_its_device(tmp_path, Stream())
    one_step(guard, net, optimizer)
    first, second = provider.save(soon()), provider.save(soon())
    assert first == second
    assert len(list(tmp_path.rglob("*.pt"))) == 1


def test_a_script_may_save_in_its_own_format(tmp_path: Path) -> None:
    guard, _, net, optimizer = ahead_of_its_device(tmp_path, Stream())
    one_step(guard, net, optimizer)
    form = GaspFile(guard.training, state=lambda _: {"mine": net.weight.detach().clone()}, save_fn=torch.save)
    own = TorchProvider(guard.training, form)
    saved = own.save(soon())
    assert torch.load(saved.path, weights_only=True)["mine"].shape == (2, 2)
    assert os.path.getsize(saved.path) == saved.size_bytes  # noqa: PTH202


def test_a_copy_of_a_state_counts_nothing_anew(tmp_path: Path) -> None:
    """``MultiStepLR`` keeps a Counter, which would count the pairs that it is made of."""
    net = nn.Linear(2, 2)
    scheduler = torch.optim.lr_scheduler.MultiStepLR(torch.optim.SGD(net.parameters(), lr=0.1), [3, 3, 5])
    objects = Objects({"scheduler": scheduler})
    assert copied(objects.capture()) == {"scheduler": scheduler.state_dict()}
