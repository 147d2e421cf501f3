"""What a dataset makes with its first samples, or reaches by a detour, comes back; or is refused by name."""

import functools
import random
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from faultrun.errors import FaultrunError
from sdk.support.resumed_loops import GENERATORS, Transformed, assert_goes_on, guarded, number_from, trained

pytestmark = [pytest.mark.torch, pytest.mark.slow]


class Lazy(Transformed):
    """Makes what it draws from for its first sample."""

    def __init__(self, make: Callable[[], Any]) -> None:
        super().__init__([])
        self.make = make

    def __getitem__(self, index: int) -> float:
        if "rng" not in vars(self):
            self.rng = self.make()
        return index + number_from(self.rng)


class Drawn(Transformed):
    """``draw`` adds to each sample."""

    def __init__(self, draw: Callable[[], float], **own: Any) -> None:
        super().__init__([lambda value: value + draw()])
        self.__dict__.update(own)


def from_a_cache(maxsize: int | None) -> Any:
    @functools.lru_cache(maxsize)
    def shared(name: str) -> Any:
        return np.random.default_rng(len(name))

    return Drawn(lambda: float(shared("a").random() + shared("b").random()))


def from_a_module_that_it_imports() -> Any:
    sys.modules["augmenting"] = module = types.ModuleType("augmenting")
    vars(module).update(rng=random.Random(5), own=random.Random(6))

    def draw() -> float:
        import augmenting  # type: ignore[import-not-found]
        from augmenting import own

        return float(augmenting.rng.random() + own.random())

    return Drawn(draw)


def from_defaults() -> Any:
    def draw(one: Any = None, other: Any = None) -> float:
        return float(one.random() + other.random())

    draw.__defaults__ = random.Random(5), random.Random(6)
    return Drawn(draw)


def spawning(spawner: Any) -> Any:
    return Drawn(lambda: float(np.random.default_rng(spawner.spawn(1)[0]).random()), seeds=spawner)


class Many:
    def __init__(self) -> None:
        self.rngs = [np.random.default_rng(number) for number in range(70)]

    def __call__(self, value: float) -> float:
        return value + float(self.rngs[int(value)].random())


def quasi_random() -> Any:
    engine = torch.quasirandom.SobolEngine(1, scramble=True, seed=3)
    return Drawn(lambda: float(engine.draw()), engine=engine)


DATASETS: dict[str, Callable[[], Any]] = {
    **{f"made lazily: {name}": functools.partial(Lazy, make) for name, make in GENERATORS.items()},
    "behind a cache": lambda: from_a_cache(None),
    "behind a cache with a limit": lambda: from_a_cache(8),
    "of a module that is imported where it draws": from_a_module_that_it_imports,
    "two defaults": from_defaults,
    "seeds that spawn": lambda: spawning(np.random.SeedSequence(5)),
    "a generator that spawns": lambda: spawning(np.random.default_rng(5)),
    "many": lambda: Transformed([Many()]),
    "a Sobol engine": quasi_random,
}


@pytest.mark.parametrize("what", DATASETS)
@pytest.mark.parametrize("stop_after", [2, 9])
def test_so_does_what_a_dataset_reaches_late_or_by_a_detour(
    tmp_path: Path, what: str, stop_after: int
) -> None:
    assert_goes_on(lambda: DataLoader(DATASETS[what](), batch_size=2, shuffle=True), tmp_path, stop_after)


def test_a_generator_that_a_new_process_does_not_have_is_refused_by_name(tmp_path: Path) -> None:
    first, loader = guarded(tmp_path), DataLoader(Lazy(lambda: random.Random(5)), batch_size=2)
    trained(first, loader, 2)
    saved = first.save(tmp_path / "saved.pt")
    second = guarded(tmp_path)
    second.load(torch.load(saved.path, weights_only=True))
    with pytest.raises(FaultrunError) as told:
        trained(second, DataLoader(Transformed([]), batch_size=2))
    assert "dataset.rng" in str(told.value.because)
