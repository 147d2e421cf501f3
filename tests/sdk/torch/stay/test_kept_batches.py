"""A batch that may come again is given as the loader gave it, or not at all."""

import threading
from collections import UserDict, deque, namedtuple
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from faultrun.sdk.torch.state.trees import deep_copied
from faultrun.sdk.torch.stay.redo import KeptBatch

pytestmark = pytest.mark.torch


@dataclass
class Sample:
    x: Any


HOLDERS: dict[str, Callable[[Any], Any]] = {
    "a dict": lambda x: {"x": x, "y": [1]},
    "a named tuple": namedtuple("Pair", "x"),  # noqa: PYI024 - as scripts have it
    "a dataclass": Sample,
    "a UserDict": lambda x: UserDict(x=x),
    "a deque": lambda x: deque([x]),
    "an object": lambda x: SimpleNamespace(x=x),
    "one in another": lambda x: {"a": [Sample((x, UserDict(x=x)))]},
}


def doubled(content: Any) -> set[float]:
    """What its tensors began with, which are changed in place."""
    firsts: list[float] = []

    def double(one: Any) -> None:
        firsts.append(float(one[0]))
        one.mul_(2)

    deep_copied(content, double)
    return set(firsts)


@pytest.mark.parametrize("name", HOLDERS)
@pytest.mark.parametrize(("size", "is_copied"), [(4, False), (1 << 16, False), (1 << 16, True)])
def test_a_batch_is_given_again_as_it_was_or_not_at_all(name: str, size: int, is_copied: bool) -> None:
    given = HOLDERS[name](torch.ones(size))
    kept = KeptBatch(given, is_copied=is_copied)
    assert not kept.is_changed
    assert doubled(kept.again()) == {1.0}
    assert doubled(given) >= {1.0}
    assert kept.is_changed == (size > 4 and not is_copied)
    assert kept.is_changed or doubled(kept.again()) == {1.0}


@pytest.mark.parametrize("odd", [threading.Lock, lambda: map(str, (1 for _ in "a"))])
def test_a_batch_that_cannot_be_copied_is_known(odd: Callable[[], Any]) -> None:
    assert not KeptBatch(Sample([torch.ones(1), odd()]), is_copied=False).is_kept
