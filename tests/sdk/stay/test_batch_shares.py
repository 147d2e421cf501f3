"""Fewer ranks do the same steps of the same samples: nothing is left out, nothing comes twice."""

from collections import Counter
from itertools import chain
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader, DistributedSampler, RandomSampler

from faultrun.errors import FaultrunError
from faultrun.sdk.session import Session, read_identity
from faultrun.sdk.stay.batch_shares import Sharing
from faultrun.sdk.torch.loader.batch_shares import InParts, check_shares, shared_out, sharing_of


def samples_of(sharing: Sharing, step: int, total: int, batch: int) -> list[int]:
    """Those that count; a sample of weight 0 only keeps ranks in step."""
    parts = sharing.share(step, total, batch)
    return [position for part in parts if part.weight for position in part.positions]


worlds = st.integers(1, 6).flatmap(
    lambda full: st.tuples(st.just(full), st.lists(st.integers(1, full), min_size=1, max_size=40))
)


@given(worlds, st.integers(1, 4), st.integers(0, 30), st.booleans())
def test_an_epoch_has_the_samples_of_the_undisturbed_one_for_any_history_of_sizes(
    world: tuple[int, list[int]], batch: int, each: int, drop_last: bool
) -> None:
    full, sizes = world
    total = full * each
    seen: Counter[int] = Counter()
    steps = Sharing(full=full, world=full, rank=0).steps(total, batch, drop_last=drop_last)
    for step in range(steps):
        now = sizes[step % len(sizes)]  # a step that is taken back is done again by as many as there are then
        of_step = [
            position
            for rank in range(now)
            for position in samples_of(Sharing(full=full, world=now, rank=rank), step, total, batch)
        ]
        undisturbed = range(step * full * batch, min((step + 1) * full * batch, total))
        assert sorted(of_step) == list(undisturbed)
        seen.update(of_step)
    used = full * batch * (each // batch) if drop_last else total
    assert seen == Counter(range(used))


@given(worlds, st.integers(1, 4), st.integers(1, 30))
def test_ranks_do_as_many_parts_and_weights_make_one_mean(
    world: tuple[int, list[int]], batch: int, each: int
) -> None:
    full, sizes = world
    total = full * each
    for step, now in enumerate(sizes):
        if step * full * batch >= total:
            break
        shares = [Sharing(full=full, world=now, rank=rank) for rank in range(now)]
        parts = [share.share(step, total, batch) for share in shares]
        assert {len(one) for one in parts} == {-(-full // now)}
        assert max(len(part.positions) for one in parts for part in one) <= batch
        # The sum over parts, averaged over ranks, of weight * mean is the mean over the whole step.
        assert sum(part.weight for one in parts for part in one) / now == pytest.approx(1)
        size = min(total, (step + 1) * full * batch) - step * full * batch
        for part in (part for one in parts for part in one if part.weight):
            assert part.weight / now / len(part.positions) == pytest.approx(1 / size)


def test_a_whole_world_weighs_each_batch_with_one_exactly() -> None:
    for rank in range(3):
        (part,) = Sharing(full=3, world=3, rank=rank).share(1, 30, 4)
        assert part.weight == 1.0
        assert part.positions == tuple(range(12 + rank, 24, 3))


def loader_of(size: int, ranks: int, rank: int, **how: Any) -> DataLoader[Any]:
    data: Any = torch.arange(size)
    sampler: Any = DistributedSampler(
        data, ranks, rank, shuffle=how.pop("shuffle", True), drop_last=how.pop("even", False)
    )
    sampler.set_epoch(3)
    return DataLoader(data, sampler=sampler, **how)


def undisturbed(size: int, full: int, **how: Any) -> list[list[int]]:
    """The samples of each step as torch itself reads them."""
    ranks = [[batch.tolist() for batch in loader_of(size, full, rank, **how)] for rank in range(full)]
    return [sorted(sample for batch in step for sample in batch) for step in zip(*ranks, strict=True)]


@settings(max_examples=40, deadline=None)
@given(
    st.integers(1, 40),
    st.integers(2, 4),
    st.integers(1, 4),
    st.integers(1, 3),
    st.integers(0, 3),
    st.booleans(),
    st.booleans(),
)
def test_a_smaller_world_reads_what_torch_gives_the_whole_one(
    size: int, full: int, batch: int, world: int, done: int, drop_last: bool, even: bool
) -> None:
    world = min(world, full - 1)
    size = max(size, full)
    how = {"batch_size": batch, "drop_last": drop_last, "even": even}
    wanted = undisturbed(size, full, **how)
    ranks = []
    for rank in range(world):
        read: list[list[int]] = []
        step: list[int] = []
        sharing = Sharing(full=full, world=world, rank=rank)
        for content, part, more in shared_out(loader_of(size, world, rank, **how), sharing, done):
            step += content.tolist() if part.weight else []
            if not more:
                read.append(step)
                step = []
        ranks.append(read)
    got = [sorted(chain.from_iterable(step)) for step in zip(*ranks, strict=True)]
    assert got == wanted[done:]


def test_what_cannot_be_shared_out_is_named_and_said_what_to_give() -> None:
    data: Any = torch.arange(8)
    short = DistributedSampler(data, 2, 0, drop_last=True)
    short.num_samples, short.total_size = 3, 6
    for loader, why in (
        (DataLoader(data, sampler=short), "its sampler has another number of samples"),
        (DataLoader(data, sampler=RandomSampler(data)), "its sampler is a RandomSampler, which does not say"),
        ([1, 2], "a list goes through its samples in a way of its own"),
        (DataLoader(data, batch_size=None, sampler=DistributedSampler(data, 2, 0)), "no batches of one size"),
    ):
        with pytest.raises(FaultrunError) as refused:
            check_shares(loader)
        assert why in refused.value.because
    check_shares(loader_of(8, 2, 0))


def test_an_update_in_the_middle_of_a_step_is_refused_before_it_changes_anything() -> None:
    parts = InParts()
    assert (parts.weight, parts.accumulating) == (1.0, False)
    parts.check_update()
    parts.accumulating = True
    with pytest.raises(FaultrunError, match="before the global batch was complete"):
        parts.check_update()


def test_a_rank_knows_by_its_environment_that_others_were_left_out() -> None:
    told = {"RANK": "1", "WORLD_SIZE": "3", "FAULTRUN_WORLD_SIZE_FULL": "4"}
    session = read_identity(told)
    assert sharing_of(session) == Sharing(full=4, world=3, rank=1)
    assert session.batch_ranks == 4
    whole = read_identity({**told, "WORLD_SIZE": "4"})
    assert (sharing_of(whole), whole.batch_ranks) == (None, 4)
    assert sharing_of(Session(world_size=3)) is None
