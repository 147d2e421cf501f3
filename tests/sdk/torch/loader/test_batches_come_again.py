"""Batches come again as they were, or a loop is refused by name; how it was left is known, too."""

import itertools
import random
import threading
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, DistributedSampler, IterableDataset, Sampler

from faultrun.errors import FaultrunError
from faultrun.sdk.session import Session
from faultrun.sdk.torch.guard import Guard
from faultrun.sdk.torch.loader.batch_shares import check_shares
from faultrun.sdk.torch.provider import GaspFile, TorchProvider
from faultrun.sdk.worker.state_provider import SaveOrder
from faultrun.sdk.worker.worker import Worker
from sdk.support import wrappers
from sdk.support.protected import protected
from support.machine.processes import PATIENCE_S

pytestmark = [pytest.mark.torch, pytest.mark.slow]

SIZE, BATCH, EPOCHS = 16, 2, 4
HELD: dict[str, Any] = {}


def noisy(x: float) -> float:
    return x + float(HELD["rng"].normal())


@dataclass(slots=True)
class Slotted:
    rng: Any

    def __call__(self, x: float) -> float:
        return x + float(self.rng.normal())

    @staticmethod
    def always(x: float) -> float:
        return noisy(x)


AUGMENT = Slotted(None)


def by_global_object(x: float) -> float:
    return AUGMENT(x)


def by_default(rng: Any) -> Callable[[float], float]:
    def noisy_too(x: float, *, own: Any = rng) -> float:
        return x + float(own.normal())

    return noisy_too


class Rows(Dataset):  # type: ignore[misc]
    def __init__(self, change: Callable[[float], float] = float) -> None:
        self.change = change

    def __len__(self) -> int:
        return SIZE

    def __getitem__(self, number: int) -> float:
        return self.change(float(number))


HOLDERS: dict[str, Callable[[Any], Callable[[float], float]]] = {
    "slots": Slotted,
    "a helper's global": lambda _: lambda x: 0.0 + noisy(x),
    "a global object": lambda _: by_global_object,
    "a default": by_default,
    "a static method": lambda _: Slotted.always,
    "shared": lambda _: lambda x: x + float(torch.rand(())) + random.random() + float(np.random.rand()),
}


class Own(Sampler[Any]):  # type: ignore[misc]
    """An order that ``draw`` makes of its attributes."""

    def __init__(self, draw: Callable[[Any], Any], **own: Any) -> None:
        self.draw = draw
        self.__dict__.update(own)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.draw(self))

    def __len__(self) -> int:
        return SIZE


def order(seed: int) -> list[int]:
    return random.Random(seed).sample(range(SIZE), SIZE)


def counting(one: Any) -> list[int]:
    one.seen["epochs"] += 1
    one.seeds.append(len(one.seeds))
    return order(one.seen["epochs"] * 100 + one.seeds[-1])


def weighted(one: Any) -> list[int]:
    seed = int(torch.empty((), dtype=torch.int64).random_())
    drawn = torch.multinomial(one.weights, SIZE, True, generator=torch.Generator().manual_seed(seed))
    return [int(number) % SIZE for number in drawn]


def shuffled(one: Any) -> list[int]:
    one.rng.shuffle(one.pool)
    return [first for first, *_ in one.pool[:SIZE]]


def batched(one: Any) -> list[list[int]]:
    one.rng.shuffle(one.pool)
    return [*one.pool[: SIZE // BATCH]]


def by_many(one: Any) -> list[int]:
    return [int(number) % SIZE for number in torch.multinomial(one.many, SIZE)]


def endless(one: Any) -> Iterator[int]:
    one.stream = one.stream or (number for seed in itertools.count() for number in order(seed))
    return itertools.islice(one.stream, SIZE)


def as_it_goes(_: Any) -> Iterator[int]:
    return (np.random.randint(SIZE) for _ in range(SIZE))


def loader(**how: Any) -> Any:
    return DataLoader(how.pop("rows", Rows()), BATCH, **how)


class Both:
    """Two loaders side by side."""

    def __init__(self, *loaders: Any) -> None:
        self.loaders = loaders

    def set_epoch(self, _epoch: int) -> None: ...

    def __iter__(self) -> Iterator[Any]:
        return zip(*self.loaders, strict=True)


KEPT: dict[str, Callable[[], Any]] = {
    "counts in a dict and a deque": lambda: loader(sampler=Own(counting, seen={"epochs": 0}, seeds=deque())),
    "another order in it": lambda: loader(
        sampler=Own(lambda one: one.inner, inner=Own(counting, seen={"epochs": 0}, seeds=deque()))
    ),
    "lists that are shuffled in place": lambda: loader(
        sampler=Own(shuffled, pool=[[n % SIZE] * 8 for n in range(80)], rng=random.Random(5))
    ),
    "batches that are shuffled in place": lambda: DataLoader(
        Rows(), batch_sampler=Own(batched, pool=[[n % SIZE] * 2 for n in range(800)], rng=random.Random(5))
    ),
    "weights that are made anew": lambda: loader(sampler=Own(by_many, many=torch.ones(4000))),
    "weights": lambda: loader(sampler=Own(weighted, weights=torch.ones(SIZE))),
    "two side by side": lambda: Both(
        loader(shuffle=True), loader(sampler=Own(weighted, weights=torch.ones(SIZE)))
    ),
    "processes that are kept": lambda: loader(shuffle=True, num_workers=1, persistent_workers=True),
}


def noisy_loader(name: str, *, ahead: bool = False) -> Callable[[], Any]:
    def make() -> Any:
        plain = loader(rows=Rows(HOLDERS[name](HELD["rng"])), shuffle=True)
        return wrappers.DataLoaderShard(plain) if ahead else plain

    return make


KEPT |= {f"generator in {name}": noisy_loader(name) for name in HOLDERS}
KEPT |= {f"{name}, read ahead": noisy_loader(name, ahead=True) for name in ("shared", "slots")}


class Loop:
    def __init__(self, folder: Path, make: Callable[[], Any]) -> None:
        torch.manual_seed(1), random.seed(1), np.random.seed(1)
        HELD["rng"] = AUGMENT.rng = np.random.default_rng(5)
        self.loader, self.net = make(), nn.Linear(1, 1)
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.01)
        self.guard: Guard = protected(folder, self.optimizer, net=self.net)
        self.seen: list[str] = []

    def step(self, batch: Any) -> None:
        self.net(torch.rand(1, 1) * np.random.rand() * random.random()).sum().backward()
        self.optimizer.step()
        self.seen.append(f"{self.guard.epoch} {batch}")
        if (weights := getattr(getattr(self.loader, "sampler", None), "weights", None)) is not None:
            weights[self.guard.global_step % SIZE] += 1
        self.guard.step()

    def train(self, last: int = 1000) -> "Loop":
        """To the step that follows ``last``, whose batch is read and which is not made."""
        for epoch in range(self.guard.epoch, EPOCHS):
            for batch in self.guard.batches(self.loader, epoch):
                if self.guard.global_step == last:
                    return self
                self.step(batch)
            if (many := getattr(getattr(self.loader, "sampler", None), "many", None)) is not None:
                self.loader.sampler.many = many.roll(1) + self.guard.global_step
        return self

    def back(self, folder: Path, make: Callable[[], Any]) -> "Loop":
        """Another process, from the end of the last step."""
        training = self.guard.training
        torch.save(training.host_state_at(training.history[-1]), folder / "gasp.pt")
        again = Loop(folder, make)
        again.guard.load(torch.load(folder / "gasp.pt", weights_only=True))
        return again


@pytest.mark.parametrize("how", KEPT)
@pytest.mark.parametrize("last", [1, 5, 8, 11])
def test_a_loop_goes_on_with_the_same_batches(tmp_path: Path, how: str, last: int) -> None:
    whole = Loop(tmp_path / "whole", KEPT[how]).train().seen
    first = Loop(tmp_path, KEPT[how]).train(last)
    assert first.seen + first.back(tmp_path, KEPT[how]).train().seen == whole


class Stream(IterableDataset):  # type: ignore[misc]
    def __init__(self) -> None:
        self.numbers = itertools.cycle(range(SIZE + 1))

    def __iter__(self) -> Iterator[int]:
        return itertools.islice(self.numbers, SIZE)


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "zip": (lambda: zip(loader(), loader(), strict=True), "opened once"),
    "an open loader": (lambda: iter(loader()), "opened once"),
    "endless": (lambda: loader(sampler=Own(endless, stream=None)), "sampler.stream"),
    "endless data": (lambda: loader(rows=Stream()), "dataset.numbers"),
    "drawn as it goes": (lambda: loader(sampler=Own(as_it_goes)), "Own draws"),
    "drawn ahead": (lambda: loader(sampler=Own(as_it_goes), num_workers=1), "Own draws"),
    "too many weights": (
        lambda: loader(sampler=Own(by_many, many=torch.ones(40_000))),
        "bytes would have to be kept",
    ),
    "large weights": (lambda: loader(sampler=Own(weighted, weights=torch.ones(2000))), "sampler.weights"),
}


@pytest.mark.parametrize("how", REFUSED)
def test_what_nobody_could_find_again_is_refused_by_name_as_it_shows(tmp_path: Path, how: str) -> None:
    make, name = REFUSED[how]
    with pytest.raises(FaultrunError) as refused:
        Loop(tmp_path, make).train()
    assert name in refused.value.because


def test_a_list_that_is_another_and_a_second_loop_over_an_epoch_are_refused(tmp_path: Path) -> None:
    loop = Loop(tmp_path, loader)
    assert len(list(loop.guard.batches([[1], [2]], 0))) == 2
    for given, epoch in (([[2], [1]], 1), (loader(), 0)):
        with pytest.raises(FaultrunError, match="cannot"):
            next(loop.guard.batches(given, epoch))


def test_a_loop_beside_one_that_goes_on_is_refused_and_behind_it_is_not(tmp_path: Path) -> None:
    guard = Loop(tmp_path, loader).guard
    first, second = guard.batches(loader(), 0), guard.batches(loader(), 1)
    assert next(first) is not None
    with pytest.raises(FaultrunError, match="two loops at once"):
        next(second)
    del first  # which closes it
    assert len(list(guard.batches(loader(), 1))) == SIZE // BATCH


def test_a_sampler_that_shares_out_in_its_own_way_is_not_shared_out_to_fewer() -> None:
    class Contiguous(DistributedSampler):  # type: ignore[misc]
        def __iter__(self) -> Iterator[int]:
            return iter(range(self.num_samples))

    with pytest.raises(FaultrunError, match="fewer ranks"):
        check_shares(loader(sampler=Contiguous(Rows(), 2, 0)))


HIDDEN = {"calls": 0}


def hidden(_: Any) -> list[int]:
    HIDDEN["calls"] += 1
    return order(HIDDEN["calls"])


@pytest.mark.parametrize("workers", [0, 1])
def test_a_batch_that_differs_for_no_known_reason_ends_the_run_or_is_told_of(
    tmp_path: Path, workers: int, capsys: pytest.CaptureFixture[str]
) -> None:
    def make() -> Any:
        return loader(sampler=Own(hidden), num_workers=workers)

    first = Loop(tmp_path, make).train(11)
    again = first.back(tmp_path, make)
    if workers:
        again.train(12)
        assert "batch 4 of epoch 1 is another than the one" in capsys.readouterr().err
        return
    with pytest.raises(FaultrunError, match="batch 4 of epoch 1 is another"):
        again.train()
    assert Loop(tmp_path, make).train().guard.global_step == EPOCHS * SIZE // BATCH  # it begins anew


@pytest.mark.parametrize("carried", [True, False])
def test_a_batch_that_the_script_carries_into_the_next_step_is_told_of_when_it_comes_again(
    tmp_path: Path, carried: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    gasp = tmp_path / "gasp.pt"

    def train(upto: int) -> None:
        torch.manual_seed(3)
        net = nn.Linear(2, 2)
        guard = protected(tmp_path, torch.optim.SGD(net.parameters(), 0.1), net=net)
        if gasp.exists():
            guard.load(torch.load(gasp, weights_only=True))
        ahead = torch.randn(4, 2) if carried else torch.empty(0)
        for step in guard.steps(upto):
            if step == 3 and not gasp.exists():
                torch.save(guard.training.host_state_at(guard.training.history[-1]), gasp)
            given = ahead if carried else torch.randn(4, 2)
            for half in given.split(2):  # two passes in a step
                net(half).sum().backward()
            ahead = torch.randn(4, 2)
            guard.training.parts.optimizers[0].step()

    train(4)
    train(5)
    assert ("comes again with other inputs" in capsys.readouterr().err) is carried


@pytest.mark.parametrize("ends", ["break", "bar", "return", "error", "error in a call"])
def test_a_loop_that_was_left_by_break_is_over_and_no_other(tmp_path: Path, ends: str) -> None:
    loop = Loop(tmp_path, loader)

    def bar(batches: Iterator[Any]) -> Iterator[Any]:
        if ends != "bar":
            return batches
        return (one for one in batches)

    def train() -> None:
        for batch in bar(loop.guard.batches(loop.loader, 0)):
            loop.step(batch)
            if loop.guard.global_step == 3:
                if ends in ("break", "bar"):
                    break
                if ends == "return":
                    return
                if ends == "error":
                    raise RuntimeError
                fails()
        assert ends in ("break", "bar")

    def fails() -> None:
        raise RuntimeError

    try:
        train()
    except RuntimeError:
        assert ends.startswith("error")
    again = loop.back(tmp_path, loader)
    left = list(again.guard.batches(again.loader, 0))
    assert len(left) == (0 if ends in ("break", "bar") else SIZE // BATCH - 3)
    assert (again.guard.epoch, again.guard.step_in_epoch) == (0, 3 + len(left))
    assert len(list(again.guard.batches(again.loader, 1))) == SIZE // BATCH


def test_a_batch_that_nothing_was_done_with_comes_again_unless_its_loop_was_left_with_it(
    tmp_path: Path,
) -> None:
    loop, path = Loop(tmp_path, loader), tmp_path / "own.pt"
    for batch in loop.guard.batches(loop.loader, 0):
        loop.optimizer.zero_grad()
        if loop.guard.step_in_epoch > 3:
            break
        loop.guard.save(tmp_path / f"{loop.guard.global_step}.pt")
        loop.step(batch)
    loop.guard.save(path)
    for saved, left in ((tmp_path / "2.pt", SIZE // BATCH - 2), (path, 0)):
        again = Loop(tmp_path / "again", loader)
        again.guard.load(torch.load(saved, weights_only=True))
        assert len(list(again.guard.batches(again.loader, 0))) == left
    assert next(iter(loop.guard.batches(loop.loader, 1))) is not None
    back = loop.back(tmp_path, loader).guard
    assert (back.global_step, back.epoch, back.step_in_epoch) == (3, 1, 0)


def test_a_save_at_a_steps_end_waits_for_the_script_to_leave_its_loop(tmp_path: Path) -> None:
    """It is asked for in the midst of the step, and taken at its end: else the next batch would come."""
    loop = Loop(tmp_path / "loop", loader)
    training: Any = loop.guard.training
    wait, saved, waits = training.wait_decided, list[Any](), threading.Event()

    def waiting(_: float) -> None:
        waits.set()
        wait(PATIENCE_S)

    training.wait_decided = waiting
    provider, order = (
        TorchProvider(training, GaspFile(training)),
        SaveOrder(until_s=1e12, step=3, leaves=False),
    )
    thread = threading.Thread(target=lambda: saved.append(provider.save(order)))
    for batch in loop.guard.batches(loop.loader, 0):
        if loop.guard.global_step == 2:
            thread.start()
        loop.step(batch)
        if loop.guard.global_step == 3 and waits.wait(PATIENCE_S):
            break
    thread.join()
    again = Loop(tmp_path / "again", loader)
    again.guard.load(torch.load(saved[0].path, weights_only=True))
    assert (again.guard.global_step, list(again.guard.batches(again.loader, 0))) == (3, [])


def over_steps(guard: Guard, last: int, upto: int) -> list[int]:
    done = []
    for step in guard.steps(last):
        guard.training.parts.model(torch.ones(1)).sum().backward()
        guard.training.parts.optimizers[0].step()
        done.append(step)
        if step == upto:
            break
    return done


@pytest.mark.parametrize("run", ["one", "another"])
def test_a_loop_over_steps_that_was_left_by_break_is_over_for_this_run_alone(
    tmp_path: Path, run: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def begun(run_id: str) -> Guard:
        net, worker = nn.Linear(1, 1), Worker(Session(run_id=run_id))
        return protected(tmp_path, torch.optim.SGD(net.parameters(), 0.1), net=net, by=worker)

    first, again = begun("one"), begun(run)
    assert over_steps(first, 9, upto=3) == [1, 2, 3]
    behind = first.training.host_state_at(first.training.history[-1])
    assert over_steps(first, 6, upto=4) == [4]
    again.load(first.training.host_state_at(first.training.history[-1]))
    assert over_steps(again, 9, upto=5) == ([] if run == "one" else [5])
    assert over_steps(again, 6, upto=6) == ([] if run == "one" else [6])
    assert ("guard.steps(9) was left early" in capsys.readouterr().err) is (run == "one")
    last = begun(run)
    last.load(behind)
    assert over_steps(last, 9, upto=5) == ([] if run == "one" else [4, 5])


def test_a_loop_over_steps_that_begins_again_where_it_was_left_has_paused_and_goes_on(tmp_path: Path) -> None:
    def begun() -> Guard:
        net, worker = nn.Linear(1, 1), Worker(Session(run_id="one"))
        return protected(tmp_path, torch.optim.SGD(net.parameters(), 0.1), net=net, by=worker)

    first, again = begun(), begun()
    assert [over_steps(first, 9, upto) for upto in (2, 4)] == [[1, 2], [3, 4]]
    again.load(first.training.host_state_at(first.training.history[-1]))
    assert over_steps(again, 9, upto=9) == [5, 6, 7, 8, 9]


@pytest.mark.parametrize("how", ["steps", "run"])
def test_a_seed_behind_a_resume_changes_nothing_of_the_steps_that_follow(tmp_path: Path, how: str) -> None:
    def drawn(upto: int, resumed: Any = None) -> tuple[list[float], Any]:
        net = nn.Linear(1, 1)
        guard = protected(tmp_path, torch.optim.SGD(net.parameters(), 0.1), net=net)
        if resumed is not None:
            guard.load(resumed)
        torch.manual_seed(7)
        found: list[float] = []

        def step(_: object = None) -> None:
            found.append(float(torch.rand(())))
            net(torch.ones(1)).sum().backward()
            guard.training.parts.optimizers[0].step()

        def train(_: Guard) -> None:
            while guard.global_step < upto:
                step()
                guard.step()

        if how == "run":
            guard.run(train)
        else:
            [*map(step, guard.steps(upto))]
        return found, guard.training.host_state_at(guard.training.history[-1])

    whole, _ = drawn(4)
    torch.save(drawn(2)[1], tmp_path / "gasp.pt")
    assert drawn(4, torch.load(tmp_path / "gasp.pt", weights_only=True))[0] == whole[2:]


@pytest.mark.parametrize("how", ["ahead", "in its turn", "several a step"])
def test_a_batch_that_is_fetched_ahead_of_its_step_is_told_of(
    tmp_path: Path, how: str, capsys: pytest.CaptureFixture[str]
) -> None:
    loop = Loop(tmp_path, loader)
    batches = loop.guard.batches(loop.loader, 0)
    following = next(batches)
    while following is not None:
        if how == "several a step":
            loop.net(torch.ones(1)).sum().backward()
        now, following = following, None if how == "in its turn" else next(batches, None)
        loop.step(now)
        if how == "in its turn":
            following = next(batches, None)
    assert ("two batches were taken before the model" in capsys.readouterr().err) is (how == "ahead")


def test_the_seed_of_a_loader_that_is_opened_is_no_draw_of_the_script_which_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    loop = Loop(tmp_path, lambda: loader(shuffle=True))
    batches = loop.guard._loops._opened(loop.loader, 0)
    loop.guard._goes_on()
    assert "is drawn or changed behind step" not in capsys.readouterr().err
    loop.guard.training.takes_batch(0)
    loop.step(next(batches))
    torch.rand(())
    loop.guard._goes_on()
    assert "is drawn or changed behind step 1" in capsys.readouterr().err
