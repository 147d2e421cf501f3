"""Ranks that live read what the missing ones would have: every sample of every step, and once."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader, DistributedSampler

from faultrun.sdk.stay.rank_places import RankPlaces
from faultrun.sdk.torch.loader.loader_position import opened_after
from faultrun.sdk.torch.loader.missing_samples import MissingSamples

pytestmark = pytest.mark.torch

WORLD = 4


def loader_of(size: int, rank: int, **how: Any) -> DataLoader[Any]:
    data: Any = torch.arange(size)
    sampler: Any = DistributedSampler(data, WORLD, rank, drop_last=how.pop("even", False))
    sampler.set_epoch(3)
    return DataLoader(data, sampler=sampler, **how)


class Rank:
    """One rank with its own loader, from its batch ``done`` on."""

    def __init__(self, rank: int, done: int, size: int, **how: Any) -> None:
        self.loader = loader_of(size, rank, **how)
        self.own = opened_after(self.loader, done)
        self.missing = MissingSamples(rank)
        self.batch: Any = None

    def does(self, step: int, places: RankPlaces, *, again: bool) -> list[tuple[list[int], float]]:
        """The samples of each part of a step, and what their mean counts for."""
        self.missing.places = places
        self.batch = self.batch if again else next(self.own)
        parts = list(self.missing.parts(self.batch, self.loader, 3, step))
        assert [more for _, _, more in parts] == [True] * (len(parts) - 1) + [False]
        return [(content.tolist(), weight) for content, weight, _ in parts]


histories = st.lists(st.sets(st.integers(0, WORLD - 1), max_size=WORLD - 1), min_size=1, max_size=8)
"""Who is missing in one step after the other."""


@settings(max_examples=60, deadline=None)
@given(histories, st.integers(WORLD, 60), st.integers(1, 4), st.booleans(), st.booleans(), st.booleans())
def test_each_step_has_its_samples_once_and_each_counts_as_it_would(
    history: Sequence[set[int]], size: int, batch: int, drop_last: bool, even: bool, again: bool
) -> None:
    how = {"batch_size": batch, "drop_last": drop_last, "even": even}
    undisturbed = [[one.tolist() for one in loader_of(size, rank, **how)] for rank in range(WORLD)]
    ranks: dict[int, Rank] = {}
    for step in range(len(undisturbed[0])):
        places = RankPlaces(WORLD, tuple(sorted(history[step % len(history)])))
        ranks = {one: ranks.get(one) or Rank(one, step, size, **how) for one in places.members}
        done = [rank.does(step, places, again=False) for rank in ranks.values()]
        if again:  # it was taken back
            done = [rank.does(step, places, again=True) for rank in ranks.values()]
        assert len({len(parts) for parts in done}) == 1, "their collectives would not meet"
        expected = sorted(one for rank in undisturbed for one in rank[step])
        counted = [(samples, weight) for parts in done for samples, weight in parts if weight]
        assert sorted(one for samples, _ in counted for one in samples) == expected
        for samples, weight in counted:
            assert len(samples) <= batch
            assert weight / WORLD / len(samples) == pytest.approx(1 / len(expected))


@pytest.mark.parametrize("workers", [0, 2])
def test_processes_of_the_loader_read_all_but_the_first_step(workers: int) -> None:
    how: dict[str, Any] = {"batch_size": 3, "num_workers": workers, "persistent_workers": bool(workers)}
    rank = Rank(0, 0, 60, **how)
    before = torch.get_rng_state()
    read = []
    for step in range(4):
        parts = rank.does(step, RankPlaces(WORLD, (2,)), again=False)
        read.append(sorted(parts[1][0]))
    assert torch.equal(torch.get_rng_state(), before), "nothing is drawn for it"
    missing = [one.tolist() for one in loader_of(60, 2, batch_size=3)]
    assert all(set(part) <= set(batch) for part, batch in zip(read, missing, strict=False))
    assert [len(part) for part in read] == [1, 1, 1, 1]


def test_a_share_is_of_the_epoch_that_was_opened_though_the_sampler_is_told_of_the_next() -> None:
    plain, told = Rank(0, 0, 24, batch_size=2), Rank(0, 0, 24, batch_size=2)
    told.missing.opens(told.loader, 3)
    told.loader.sampler.set_epoch(4)
    places = RankPlaces(WORLD, (1,))
    assert told.does(0, places, again=False)[1:] == plain.does(0, places, again=False)[1:]
