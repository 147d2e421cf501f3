"""What samplers, datasets and transforms draw from is found, and comes back; or is refused by name."""

import functools
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, Dataset, IterableDataset, Sampler, TensorDataset

from faultrun.errors import FaultrunError
from faultrun.sdk.session import Session
from faultrun.sdk.torch.guard import Guard
from faultrun.sdk.torch.state.boundary import Device, Objects
from faultrun.sdk.torch.state.state_dict import Parts
from faultrun.sdk.torch.training import Training
from faultrun.sdk.worker.save_files import Folder, SaveWriter
from faultrun.sdk.worker.worker import Worker

pytestmark = [pytest.mark.torch, pytest.mark.slow]

SIZE = 12

GENERATORS: dict[str, Callable[[], Any]] = {
    "default_rng": lambda: np.random.default_rng(5),
    "philox": lambda: np.random.Generator(np.random.Philox(5)),
    "sfc": lambda: np.random.Generator(np.random.SFC64(5)),
    "mt": lambda: np.random.Generator(np.random.MT19937(5)),
    "RandomState": lambda: np.random.RandomState(5),
    "Random": lambda: random.Random(5),
    "torch": lambda: torch.Generator().manual_seed(5),
}


def order_from(generator: Any, size: int = SIZE) -> list[int]:
    """A new order."""
    if isinstance(generator, torch.Generator):
        return [int(one) for one in torch.randperm(size, generator=generator)]
    if isinstance(generator, random.Random):
        return generator.sample(range(size), size)
    return [int(one) for one in generator.permutation(size)]


def number_from(generator: Any) -> float:
    if isinstance(generator, torch.Generator):
        return float(torch.rand(1, generator=generator))
    return float(generator.random()) if hasattr(generator, "random") else float(generator.rand())


class Shuffled(Sampler[int]):  # type: ignore[misc]
    def __init__(self, generator: Any) -> None:
        self.rng = generator

    def __iter__(self) -> Iterator[int]:
        return iter(order_from(self.rng))

    def __len__(self) -> int:
        return SIZE


class Batches(Shuffled):
    def __iter__(self) -> Iterator[Any]:
        order = order_from(self.rng)
        return iter([order[at : at + 2] for at in range(0, SIZE, 2)])

    def __len__(self) -> int:
        return SIZE // 2


class Noisy:
    """A transform."""

    def __init__(self, generator: Any) -> None:
        self.rng = generator

    def __call__(self, value: float) -> float:
        return value + number_from(self.rng)


class Transformed(Dataset):  # type: ignore[misc]
    def __init__(self, transforms: Any) -> None:
        self.transforms = transforms

    def __getitem__(self, index: int) -> float:
        value = float(index)
        for one in self.transforms:
            value = one(value)
        return value

    def __len__(self) -> int:
        return SIZE


class InPlace(Sampler[int]):  # type: ignore[misc]
    """Shuffles what it has: each epoch's order follows from all before."""

    def __init__(self, shuffle: Callable[[Any], Any], order: Any) -> None:
        self.shuffle, self.order = shuffle, order

    def __iter__(self) -> Iterator[int]:
        self.shuffle(self.order)
        return iter([int(one) for one in self.order])

    def __len__(self) -> int:
        return len(self.order)


class Counting(Sampler[int]):  # type: ignore[misc]
    """Counts its epochs by itself."""

    def __init__(self) -> None:
        self.calls = 0

    def __iter__(self) -> Iterator[int]:
        self.calls += 1
        return iter(order_from(np.random.default_rng(self.calls)))

    def __len__(self) -> int:
        return SIZE


class Stateful(Sampler[int]):  # type: ignore[misc]
    """Tells its state, which nobody could find."""

    def __init__(self) -> None:
        self._hidden = [{"seed": 3}]

    def __iter__(self) -> Iterator[int]:
        self._hidden[0]["seed"] += 1
        return iter(order_from(np.random.default_rng(self._hidden[0]["seed"])))

    def __len__(self) -> int:
        return SIZE

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


class OfTheClass(Shuffled):
    rng = np.random.default_rng(5)

    def __init__(self) -> None:
        pass


def closed_over(generator: Any) -> Any:
    def collate(samples: list[Any]) -> float:
        return sum(float(one) for (one,) in samples) + number_from(generator)

    return collate


def collated(samples: list[Any], rng: Any) -> float:
    return sum(float(one) for (one,) in samples) + number_from(rng)


PLACES: dict[str, Callable[[Any], Any]] = {
    "sampler": lambda rng: DataLoader(items(), batch_size=2, sampler=Shuffled(rng)),
    "batch_sampler": lambda rng: DataLoader(items(), batch_sampler=Batches(rng)),
    "sampler of a batch_sampler": lambda rng: DataLoader(
        items(), batch_sampler=BatchSampler(Shuffled(rng), 2, drop_last=False)
    ),
    "dataset": lambda rng: DataLoader(Transformed([Noisy(rng)]), batch_size=2, shuffle=True),
    "two places": lambda rng: DataLoader(
        Transformed([abs, Noisy(rng)]), batch_size=2, sampler=Shuffled(np.random.default_rng(2))
    ),
    "closure": lambda rng: DataLoader(items(), batch_size=2, collate_fn=closed_over(rng)),
    "partial": lambda rng: DataLoader(items(), batch_size=2, collate_fn=functools.partial(collated, rng=rng)),
    "stream": lambda rng: DataLoader(Stream(rng), batch_size=2),
}


def guarded(directory: Path) -> Guard:
    """As ``protect`` does it beside faultrun."""
    net = nn.Linear(1, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    parts = Parts(
        model=net,
        optimizers=(optimizer,),
        objects=Objects({}),
        device=Device(mark=None, ahead=2, to_host=lambda state: state),
    )
    writer = SaveWriter(Folder(directory=directory), Session())
    return Guard(Training(lambda: parts, Worker(Session()), writer))


def trained(guard: Guard, loader: Any, stop_after: int | None = None) -> list[str]:
    seen: list[str] = []
    for epoch in range(guard.epoch, 4):
        for batch in guard.batches(loader, epoch):
            seen.append(f"{epoch} {batch}")
            guard.step()
            if guard.global_step == stop_after:
                return seen
    return seen


def assert_goes_on(make: Callable[[], Any], directory: Path, stop_after: int) -> None:
    def anew() -> Any:
        torch.manual_seed(1)
        random.seed(1)
        np.random.seed(1)
        return make()

    whole = trained(guarded(directory), anew())
    first = guarded(directory)
    began = trained(first, anew(), stop_after)
    saved = first.save(directory / "saved.pt")
    second, loader = guarded(directory), anew()
    second.load(torch.load(saved.path, weights_only=True))
    assert began + trained(second, loader) == whole


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("kind", GENERATORS)
@pytest.mark.parametrize("stop_after", [2, 6, 9, 20])
def test_a_generator_goes_on_wherever_it_is_held(
    tmp_path: Path, place: str, kind: str, stop_after: int
) -> None:
    assert_goes_on(lambda: PLACES[place](GENERATORS[kind]()), tmp_path, stop_after)


def shuffled_list(make: Callable[[], Any]) -> Callable[[], Any]:
    return lambda: DataLoader(items(), batch_size=2, sampler=InPlace(make().shuffle, list(range(SIZE))))


def of_the_class() -> Any:
    OfTheClass.rng = np.random.default_rng(5)
    return DataLoader(items(), batch_size=2, sampler=OfTheClass())


OTHERS: dict[str, Callable[[], Any]] = {
    "list shuffled by its own": shuffled_list(lambda: random.Random(5)),
    "list shuffled by numpy": shuffled_list(lambda: np.random.default_rng(5)),
    "list shuffled by all": shuffled_list(lambda: random),
    "array shuffled": lambda: DataLoader(
        items(), batch_size=2, sampler=InPlace(np.random.default_rng(5).shuffle, np.arange(SIZE))
    ),
    "counts by itself": lambda: DataLoader(items(), batch_size=2, sampler=Counting()),
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
    sampler = Counting()
    sampler.source = (one for one in range(SIZE))
    return DataLoader(items(), batch_size=2, sampler=sampler)


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: DataLoader(items(), batch_size=2, sampler=Shuffled(random.SystemRandom())), "sampler.rng"),
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
    sampler = InPlace(random.Random(5).shuffle, order)
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
