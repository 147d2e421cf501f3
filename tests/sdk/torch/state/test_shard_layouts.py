"""Which ranks hold the same shards, and where one may be put back: meshes of eight ranks, seen by one."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.tensor import DTensor, Partial
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.testing._internal.distributed.fake_pg import FakeStore

from faultrun.errors import FaultrunError
from faultrun.sdk.torch import protect
from faultrun.sdk.torch.state.dcp import gathered, taken_apart
from faultrun.sdk.torch.state.rng import current_rng
from faultrun.sdk.torch.state.shards import (
    ModuleState,
    is_spread,
    local_of,
    packed,
    replica_group_of,
    unpacked,
)
from faultrun.sdk.torch.state.trees import copied, same
from faultrun.sdk.worker.save_files import Position

pytestmark = [pytest.mark.torch, pytest.mark.slow]

RANK, WORLD = 3, 8


@pytest.fixture(autouse=True)
def one_of_eight() -> Iterator[None]:
    """torch's own process group without peers: what talks to others would bring nonsense, and nothing may."""
    dist.init_process_group("fake", store=FakeStore(), rank=RANK, world_size=WORLD)
    yield
    dist.destroy_process_group()


def network() -> nn.Sequential:
    return nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.Linear(16, 8))


def fsdp() -> nn.Module:
    return fully_shard(network(), mesh=init_device_mesh("cpu", (WORLD,)))


def hybrid() -> nn.Module:
    return fully_shard(network(), mesh=init_device_mesh("cpu", (2, 4), mesh_dim_names=("replicate", "shard")))


def tensor_parallel(mesh: Any = None) -> nn.Module:
    whole = init_device_mesh("cpu", (WORLD,), mesh_dim_names=("tp",)) if mesh is None else mesh
    return parallelize_module(network(), whole, {"0": ColwiseParallel(), "2": RowwiseParallel()})


def both() -> nn.Module:
    mesh = init_device_mesh("cpu", (4, 2), mesh_dim_names=("dp", "tp"))
    return fully_shard(tensor_parallel(mesh["tp"]), mesh=mesh["dp"])


def all_three() -> nn.Module:
    mesh = init_device_mesh("cpu", (2, 2, 2), mesh_dim_names=("replicate", "shard", "tp"))
    return fully_shard(tensor_parallel(mesh["tp"]), mesh=mesh["replicate", "shard"])


@pytest.mark.parametrize(
    ("spread", "group"),
    [
        (fsdp, (3,)),
        (hybrid, (3, 7)),
        (tensor_parallel, (3,)),
        (both, (3,)),
        (all_three, (3, 7)),
        (network, ()),
    ],
)
def test_the_mesh_tells_who_holds_the_same(spread: Callable[[], nn.Module], group: tuple[int, ...]) -> None:
    model = spread()
    assert replica_group_of(model.parameters(), RANK) == group
    assert is_spread(model) == bool(group)


@pytest.mark.parametrize("spread", [fsdp, hybrid, tensor_parallel, both])
def test_shards_come_back_where_they_were(tmp_path: Path, spread: Callable[[], nn.Module]) -> None:
    model = spread()
    optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
    for parameter in model.parameters():
        local_of(
            parameter.detach()
        ).normal_()  # "fake" scatters whatever lay there, numbers that are none too
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    guard = protect(model, optimizer, directory=tmp_path)
    guard.step(5)
    saved = torch.load(guard.save(tmp_path / "shard.pt").path, weights_only=True)
    before = packed([ModuleState(model).read(), optimizer.state_dict()])
    kept = copied(before)
    optimizer.step()
    guard.load(saved)
    after = packed([ModuleState(model).read(), optimizer.state_dict()])
    assert same(after, kept)
    assert guard.global_step == 5


def test_a_shard_of_another_mesh_is_refused_by_name(tmp_path: Path) -> None:
    model = hybrid()
    guard = protect(model, torch.optim.SGD(model.parameters()), directory=tmp_path)
    saved = torch.load(guard.save(tmp_path / "shard.pt").path, weights_only=True)
    other = fsdp()
    with pytest.raises(FaultrunError, match=r"the saved shard of 0\.weight does not fit") as caught:
        protect(other, torch.optim.SGD(other.parameters()), directory=tmp_path).load(saved)
    assert caught.value.because == (
        "it was saved as piece *,3 of 16x8 (R,S0) on mesh 2x4 replicate,shard; "
        "here is piece 3 of 16x8 (S0) on mesh 8"
    )


def test_a_whole_state_is_not_taken_for_a_shard(tmp_path: Path) -> None:
    plain, model = network(), fsdp()
    saved = protect(plain, directory=tmp_path).save(tmp_path / "whole.pt")
    with pytest.raises(FaultrunError, match=r"the saved 0\.weight does not fit"):
        protect(model, directory=tmp_path).load(torch.load(saved.path, weights_only=True))


def test_summands_and_nested_states_are_packed_and_unpacked() -> None:
    mesh = init_device_mesh("cpu", (WORLD,))
    summand = DTensor.from_local(torch.arange(4.0), mesh, [Partial()], run_check=False)
    state = {"rows": [summand, 3], "plain": torch.ones(2), "more": {"none": None}}
    again = unpacked(packed(state), (mesh,))
    assert again["rows"][0].placements == summand.placements
    assert same(packed(again), packed(state))
    with pytest.raises(FaultrunError, match="no mesh like that"):
        unpacked(packed(state), ())


def test_the_first_fsdp_is_refused(tmp_path: Path) -> None:
    model = FullyShardedDataParallel(network(), use_orig_params=True, device_id=torch.device("cpu"))
    with pytest.raises(FaultrunError, match="FullyShardedDataParallel cannot be protected"):
        protect(model, directory=tmp_path).save(tmp_path / "shard.pt")


def test_a_place_among_other_ranks_is_as_many_samples() -> None:
    dist.destroy_process_group()
    alone = gathered(Position(40, 1, 16), replace(current_rng(), noted=b"own"), None)
    own = taken_apart(alone)
    assert own[1].noted == b"own"
    assert own[0] == Position(40, 1, 16)
    assert torch.equal(own[1].cpu, current_rng().cpu)
    dist.init_process_group("fake", store=FakeStore(), rank=RANK, world_size=WORLD)
    position, rng, _ = taken_apart(alone)
    assert position == Position(40, 1, 2)
    assert rng.noted == b""
    assert not torch.equal(rng.cpu, own[1].cpu), "this rank draws numbers of its own"
