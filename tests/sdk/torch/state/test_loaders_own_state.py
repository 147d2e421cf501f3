"""What samplers, datasets and transforms draw from is found, and comes back; or is refused by name."""

import functools
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import BatchSampler, DataLoader, IterableDataset, Sampler, TensorDataset

from faultrun.errors import FaultrunError
from sdk.support.resumed_loops import (
    GENERATORS,
    SIZE,
    Transformed,
    assert_goes_on,
    guarded,
    number_from,
    order_from,
    trained,
)

pytestmark = [pytest.mark.torch, pytest.mark.slow]


class Order(Sampler[int]):  # type: ignore[misc]
    """What ``draw`` makes of it, for each epoch anew; it has these attributes."""

    def __init__(self, draw: Callable[[Any], list[Any]], **own: Any) -> None:
        self.draw = draw
        self.__dict__.update(own)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.draw(self))

    def __len__(self) -> int:
        return SIZE


def shuffled(rng: Any) -> Order:
    return Order(lambda one: order_from(one.rng), rng=rng)


def batches(rng: Any) -> Order:
    def draw(one: Any) -> list[Any]:
        order = order_from(one.rng)
        return [order[at : at + 2] for at in range(0, SIZE, 2)]

    return Order(draw, rng=rng)


def in_place(shuffle: Callable[[Any], Any], order: Any) -> Order:
    """Shuffles what it has: each epoch's order follows from all before."""

    def draw(one: Any) -> list[int]:
        shuffle(one.order)
        return [int(number) for number in one.order]

    return Order(draw, order=order)


def counting() -> Order:
    """Counts its epochs by itself."""

    def draw(one: Any) -> list[int]:
        one.calls += 1
        return order_from(np.random.default_rng(one.calls))

    return Order(draw, calls=0)


class Noisy:
    """A transform."""

    def __init__(self, generator: Any) -> None:
        self.rng = generator

    def __call__(self, value: float) -> float:
        return value + number_from(self.rng)


class Stateful(Order):
    """Tells its state, which nobody could find."""

    def __init__(self) -> None:
        super().__init__(
            lambda one: order_from(np.random.default_rng(one.next_seed())), _hidden=[{"seed": 3}]
        )

    def next_seed(self) -> int:
        self._hidden[0]["seed"] += 1
        return int(self._hidden[0]["seed"])

    def state_dict(self) -> dict[str, int]:
        return dict(self._hidden[0])

    def load_state_dict(self, state: dict[str, int]) -> None:
        self._hidden[0].update(state)


class Stream(IterableDataset):  # type: ignore[misc]
    def __init__(self, generator: Any) -> None:
        self.rng = generator

    def __iter__(self) -> Iterator[float]:
        return iter([number_from(self.rng) for _ in range(SIZE)])


def items() -> Any:
    return TensorDataset(torch.arange(float(SIZE)))


class OfTheClass(Order):
    rng = np.random.default_rng(5)


def closed_over(generator: Any) -> Any:
    def collate(samples: list[Any]) -> float:
        return sum(float(one) for (one,) in samples) + number_from(generator)

    return collate


def collated(samples: list[Any], rng: Any) -> float:
    return sum(float(one) for (one,) in samples) + number_from(rng)


PLACES: dict[str, Callable[[Any], Any]] = {
    "sampler": lambda rng: DataLoader(items(), batch_size=2, sampler=shuffled(rng)),
    "batch_sampler": lambda rng: DataLoader(items(), batch_sampler=batches(rng)),
    "sampler of a batch_sampler": lambda rng: DataLoader(
        items(), batch_sampler=BatchSampler(shuffled(rng), 2, drop_last=False)
    ),
    "dataset": lambda rng: DataLoader(Transformed([Noisy(rng)]), batch_size=2, shuffle=True),
    "two places": lambda rng: DataLoader(
        Transformed([abs, Noisy(rng)]), batch_size=2, sampler=shuffled(np.random.default_rng(2))
    ),
    "closure": lambda rng: DataLoader(items(), batch_size=2, collate_fn=closed_over(rng)),
    "partial": lambda rng: DataLoader(items(), batch_size=2, collate_fn=functools.partial(collated, rng=rng)),
    "stream": lambda rng: DataLoader(Stream(rng), batch_size=2),
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("kind", GENERATORS)
@pytest.mark.parametrize("stop_after", [2, 6, 9, 20])
def test_a_generator_goes_on_wherever_it_is_held(
    tmp_path: Path, place: str, kind: str, stop_after: int
) -> None:
    assert_goes_on(lambda: PLACES[place](GENERATORS[kind]()), tmp_path, stop_after)


def shuffled_list(make: Callable[[], Any]) -> Callable[[], Any]:
    return lambda: DataLoader(items(), batch_size=2, sampler=in_place(make().shuffle, list(range(SIZE))))


def of_the_class() -> Any:
    OfTheClass.rng = np.random.default_rng(5)
    return DataLoader(items(), batch_size=2, sampler=OfTheClass(lambda one: order_from(one.rng)))


OTHERS: dict[str, Callable[[], Any]] = {
    "list shuffled by its own": shuffled_list(lambda: random.Random(5)),
    "list shuffled by numpy": shuffled_list(lambda: np.random.default_rng(5)),
    "list shuffled by all": shuffled_list(lambda: random),
    "array shuffled": lambda: DataLoader(
        items(), batch_size=2, sampler=in_place(np.random.default_rng(5).shuffle, np.arange(SIZE))
    ),
    "counts by itself": lambda: DataLoader(items(), batch_size=2, sampler=counting()),
    "state_dict": lambda: DataLoader(items(), batch_size=2, sampler=Stateful()),
    "class attribute": of_the_class,
}


@pytest.mark.parametrize("what", OTHERS)
@pytest.mark.parametrize("stop_after", [2, 6, 9, 20])
def test_so_does_a_sampler_whose_order_follows_from_the_one_before(
    tmp_path: Path, what: str, stop_after: int
) -> None:
    assert_goes_on(OTHERS[what], tmp_path, stop_after)


def open_already() -> Any:
    sampler = counting()
    sampler.__dict__["source"] = (one for one in range(SIZE))
    return DataLoader(items(), batch_size=2, sampler=sampler)


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: DataLoader(items(), batch_size=2, sampler=shuffled(random.SystemRandom())), "sampler.rng"),
        (open_already, "sampler.source"),
    ],
    ids=["SystemRandom", "open iterator"],
)
def test_what_cannot_be_positioned_is_refused_by_name_at_once(
    tmp_path: Path, make: Callable[[], Any], name: str
) -> None:
    with pytest.raises(FaultrunError) as told:
        trained(guarded(tmp_path), make())
    assert name in str(told.value.because)


def test_a_large_order_that_is_shuffled_in_place_is_refused_at_the_epoch_that_shows_it(
    tmp_path: Path,
) -> None:
    order = list(range(30_000))
    sampler = in_place(random.Random(5).shuffle, order)
    loader = DataLoader(TensorDataset(torch.arange(30_000)), batch_size=10_000, sampler=sampler)
    with pytest.raises(FaultrunError) as told:
        trained(guarded(tmp_path), loader)
    assert "sampler.order" in str(told.value.because)


def test_generators_of_which_loader_processes_have_copies_are_named_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dataset = Transformed([Noisy(np.random.default_rng(5))])
    trained(guarded(tmp_path), DataLoader(dataset, batch_size=6, num_workers=1))
    assert capsys.readouterr().err.count("dataset.transforms.0.rng: the loader's processes draw") == 1
