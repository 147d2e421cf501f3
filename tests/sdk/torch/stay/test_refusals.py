"""What cannot outlive a peer is refused by name, before anybody has died."""

import gc
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel
from torch.testing._internal.distributed import fake_pg  # noqa: F401 - registers the backend

from faultrun.errors import FaultrunError
from faultrun.sdk.snapshots.interval import SnapshotEvery, SnapshotInterval
from faultrun.sdk.stay.next_group import Regroup
from faultrun.sdk.torch import _why_no_rejoin as why_no_rejoin
from faultrun.sdk.torch.group import fsdp2
from faultrun.sdk.torch.group.ddp import Averaging, why_not
from faultrun.sdk.torch.group.fsdp2 import Sharded, groups_of, sharded_beside
from faultrun.sdk.torch.group.group_store import PeerLost
from faultrun.sdk.torch.group.process_group import TrainingGroup
from faultrun.sdk.torch.stay.preconditions import Preconditions
from faultrun.sdk.torch.stay.rejoin import Rejoin
from faultrun.sdk.worker.death_note import tells_of_a_dead_peer
from support.machine.processes import wait_until

pytestmark = [pytest.mark.torch, pytest.mark.long]


@pytest.fixture(autouse=True)
def a_group_of_four() -> Iterator[None]:
    dist.init_process_group("fake", rank=0, world_size=4)
    yield
    dist.destroy_process_group()


def net() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"find_unused_parameters": True}, "find_unused_parameters"),
        ({"static_graph": True}, "static_graph"),
        ({}, ""),
    ],
)
def test_what_of_ddp_is_refused(how: dict[str, Any], words: str) -> None:
    why = why_not(DistributedDataParallel(net(), **how))
    assert words in why
    assert bool(words) == bool(why)


def test_a_torch_without_idle_groups_is_refused_before_anybody_died(monkeypatch: pytest.MonkeyPatch) -> None:
    def of_earlier_versions(*_: int) -> None:
        raise AttributeError("_create_internal")

    assert why_not(DistributedDataParallel(net())) == ""
    monkeypatch.setattr("faultrun.sdk.torch.group.ddp.idle_group", of_earlier_versions)
    assert "another process group" in why_not(DistributedDataParallel(net()))


def test_a_rank_whose_torch_lacks_a_name_in_the_middle_of_a_rejoin_saves_as_after_any_fault() -> None:
    said: list[tuple[str, str]] = []

    def fails(**_: Any) -> None:
        raise AttributeError("_init_process_groups")

    rejoin: Any = object.__new__(Rejoin)
    rejoin._able, rejoin._undone, rejoin.incarnation, rejoin._rejoin = True, RuntimeError(), 3, fails
    rejoin._worker = SimpleNamespace(
        regroup=Regroup(), say=lambda kind, incarnation, why: said.append((kind, why))
    )
    with pytest.raises(PeerLost) as told:
        rejoin.settle()
    assert tells_of_a_dead_peer(told.value), "it waits to be asked for what it has"
    ((kind, why),) = said
    assert (kind, why[:36]) == ("cannot_rejoin", "AttributeError: _init_process_groups")


def test_a_hook_of_the_scripts_own_is_not_replaced() -> None:
    ddp = DistributedDataParallel(net())
    ddp.register_comm_hook(None, allreduce_hook)
    assert "communication hook of its own" in why_not(ddp)


def test_an_average_over_the_ranks_that_still_have_inputs_is_torchs_and_refused_where_it_comes_late() -> None:
    early, late = DistributedDataParallel(net()), DistributedDataParallel(net())
    with early.join(divide_by_initial_world_size=False, throw_on_early_termination=False):
        assert "divide_by_initial_world_size=False" in why_not(early)
    with early.join():
        assert why_not(early) == ""
    Averaging(lambda: None).hook([late], in_group=True)
    loss = late(torch.ones(1, 8)).sum()
    joined = late.join(divide_by_initial_world_size=False, throw_on_early_termination=False)
    with joined, pytest.raises(FaultrunError, match="divide_by_initial_world_size=False"):
        loss.backward()


def test_sparse_gradients_and_a_part_of_the_ranks_are_refused() -> None:
    assert "sparse" in why_not(DistributedDataParallel(nn.Embedding(4, 4, sparse=True)))
    some = dist.new_group([0, 1])
    assert "not over all ranks" in why_not(DistributedDataParallel(net(), process_group=some))


def test_each_ddp_is_found_wherever_the_script_keeps_it_and_as_long_as_it_lives() -> None:
    group = TrainingGroup("gloo", {})
    group.sees_ddp()
    around = nn.ModuleDict({"inner": DistributedDataParallel(net())})
    first, critic = around["inner"], DistributedDataParallel(net())
    first.module = first.module
    assert group.ddps == [first, critic]
    del critic
    assert group.ddps == [first]


def test_two_ddp_whose_gradients_come_at_the_same_time_and_one_that_is_made_in_a_step_are_refused() -> None:
    group = TrainingGroup("gloo", {})
    group.sees_ddp()
    inner = DistributedDataParallel(nn.Linear(8, 8), bucket_cap_mb=0.0001)
    outer = DistributedDataParallel(
        nn.Sequential(nn.Linear(8, 8), inner, nn.Linear(8, 8)), bucket_cap_mb=0.0001
    )
    averaging = Averaging(lambda: None)
    training: Any = SimpleNamespace(redo=SimpleNamespace(in_function=False))
    unable = Preconditions(training, SimpleNamespace(twice=""), group, averaging, None, "")  # type: ignore[arg-type]
    assert "in a step" in unable.by_now
    averaging.hook(group.ddps, in_group=True)
    inner(torch.ones(1, 8)).sum().backward()
    assert (unable.by_now, averaging.arranges) == ("", True)
    for _ in range(2):
        outer(torch.ones(1, 8)).sum().backward()
    assert "into one another" in unable.by_now
    assert not averaging.arranges


def test_a_sharded_teacher_beside_the_model_enters_the_next_groups_with_it_while_it_lives(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    earlier = {*map(id, sharded_beside(net()))}  # other tests' of this process
    own = SimpleNamespace(collect=gc.collect)
    own.get_objects = lambda: [one for one in gc.get_objects() if id(one) not in earlier]
    monkeypatch.setattr(fsdp2, "gc", own)
    model, teacher = fully_shard(net()), [fully_shard(net())]
    sharded = Sharded(model)
    sharded.finds_others()
    assert sharded.why_not == ""
    infos = [group.mesh_info for one in teacher for group in groups_of(one._get_fsdp_state())]
    for info in infos:
        info.shard_process_group = None
    sharded.enters()
    assert [info.shard_process_group for info in infos] == [dist.group.WORLD] * len(infos)
    teacher.clear()
    infos.clear()
    wait_until(lambda: not sharded_beside(model), what="its end, if another thread collects garbage now")


def test_several_process_groups_are_refused_and_so_is_a_backend_that_cannot_be_left() -> None:
    assert TrainingGroup("gloo", {}).why_not == ""
    assert "mpi" in TrainingGroup("mpi", {}).why_not
    made = dist.new_group([0, 1])
    assert "process groups besides" in TrainingGroup("gloo", {}).besides(frozenset())
    assert TrainingGroup("gloo", {}).besides(frozenset({made.group_name})) == ""


def test_a_shard_of_which_no_copy_is_made_is_refused_by_name() -> None:
    guard: Any = SimpleNamespace(sharing=None)
    assert "snapshot_every=0" in why_no_rejoin(guard, None, SnapshotInterval(0))
    asked: list[SnapshotEvery] = ["auto", 1, 7]
    assert [why_no_rejoin(guard, None, SnapshotInterval(every)) for every in asked] == [""] * 3
    assert why_no_rejoin(guard, None, None) == "", "every rank has the state"


def test_fully_shard_is_refused_over_a_part_of_the_ranks_of_a_mesh_or_of_the_model() -> None:
    flat = init_device_mesh("cpu", (4,))
    assert Sharded(fully_shard(net(), mesh=flat)).why_not == ""
    part = net()
    fully_shard(part[0], mesh=flat)
    assert "whole model" in Sharded(part).why_not
    both = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicas", "shards"))
    assert Sharded(fully_shard(net(), mesh=both)).why_not == "", "HSDP"
    nested = net()
    fully_shard(nested[0], mesh=flat)
    assert Sharded(fully_shard(nested, mesh=flat)).why_not == ""
    assert "not of all ranks" in Sharded(fully_shard(net(), mesh=both["shards"])).why_not
    plan = {"0": ColwiseParallel(), "2": RowwiseParallel()}
    tensor_parallel = parallelize_module(net(), both["replicas"], plan)
    assert "part of a mesh" in Sharded(fully_shard(tensor_parallel, mesh=both["shards"])).why_not
