"""Fault tolerance for a torch script, in three lines.

    guard = sdk.torch.protect(model, optimizer, directory="ckpt", objects={"scheduler": scheduler})   # 1
    guard.resume()
    for epoch in range(guard.epoch, EPOCHS):
        for images, labels in guard.batches(loader, epoch):                                           # 2
            ...
            optimizer.step()
            scheduler.step()
            guard.step()                                                                              # 3

Call ``protect`` in the main thread, after the model's parameters are on their device and before the first
step.
"""

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch

from faultrun.errors import FaultrunError
from faultrun.sdk.session import Session
from faultrun.sdk.snapshots.interval import AUTO, SnapshotEvery, SnapshotInterval, checked
from faultrun.sdk.torch.group.process_group import init_process_group
from faultrun.sdk.torch.group.same_parameters import SameParameters
from faultrun.sdk.torch.guard import Guard
from faultrun.sdk.torch.loader.script_generators import generators_near
from faultrun.sdk.torch.provider import GASP_SUFFIX, GaspFile, TorchProvider, keep
from faultrun.sdk.torch.snapshots.last_boundary import LastBoundary
from faultrun.sdk.torch.snapshots.state_copies import StateCopies
from faultrun.sdk.torch.state.boundary import Objects, device_of
from faultrun.sdk.torch.state.own_attributes import attributes_of, own_states
from faultrun.sdk.torch.state.shards import ModuleState, is_spread, replica_group_of
from faultrun.sdk.torch.state.state_dict import Parts, is_compiled, unwrapped, unwrapped_optimizer
from faultrun.sdk.torch.stay.rejoin import Rejoin
from faultrun.sdk.torch.training import Training
from faultrun.sdk.worker.save_files import Folder, SaveWriter, folder_of
from faultrun.sdk.worker.worker import worker

__all__ = ["Folder", "Guard", "init_process_group", "protect"]


def protect(
    model: Any,
    *optimizers: Any,
    directory: str | os.PathLike[str] | Folder,
    objects: Mapping[str, Any] | None = None,
    state_fn: Callable[[], Any] | None = None,
    save_fn: Callable[[Any, str], object] | None = None,
    snapshot_every: SnapshotEvery = AUTO,
) -> Guard:
    """Be ready to save this training whenever faultrun asks, and to go on from what was saved.

    ``objects`` are schedulers, scalers, averaged models and whatever else has ``state_dict`` and
    ``load_state_dict``, by name. Wrappers such as DistributedDataParallel are looked through. Files go to
    ``<directory>/rank_<rank>/gasp-step_<step>.pt``; give a ``Folder`` to say which ranks hold the same state
    (default: all; of a model that is spread over a device mesh by FSDP2 or tensor parallelism: those with the
    same shards) or how many gasps to keep.

    ``state_fn()`` replaces the dict that is saved, ``save_fn(state, path)``
    replaces ``torch.save``; both run in another thread, and ``state_fn`` once here.

    ``snapshot_every``: every how many steps a shard that no other rank has is copied into memory that
    outlives this process, from which it comes back; at most so many steps are then done again. 1: each step
    waits for its copy, and none is done again. "auto": as often as 99 % of the speed allow. 0: never.
    Where ranks meet between the updates of a step, every how many steps a replica copies its own, too.
    FaultrunError for what could never be saved: optimizers without step hooks,
    models in FullyShardedDataParallel without ``state_fn``, states that cannot be pickled and read
    again, a directory that cannot be written to; and beside another training that has not begun.
    """

    def parts() -> Parts:
        inner, updating = unwrapped(model), tuple(map(unwrapped_optimizer, optimizers))
        _check(inner, updating, objects or {}, state_fn)
        return Parts(
            shards=ModuleState(inner) if state_fn is None and is_spread(inner) else None,
            model=inner,
            optimizers=updating,
            objects=Objects(
                {**(objects or {}), **attributes_of(objects or {}), **own_states(optimizers), **generators}
            ),
            wrapped=(model,),
            device=device_of(inner),
            watched=() if is_compiled(model) else (inner,),
        )

    this = worker()  # first: it notes what ends this process, a refusal too
    generators = generators_near(sys._getframe(1)) if state_fn is None else {}
    checked(snapshot_every)
    writer = SaveWriter(folder_of(directory), this.session if this is not None else Session())
    if this is None:
        training = Training(parts, None, writer)
        for one in map(unwrapped_optimizer, optimizers):
            if hasattr(one, "register_step_post_hook"):  # a batch without an update ends no step here either
                one.register_step_post_hook(lambda *_: training.lock.end())
        return Guard(training)
    if isinstance(other := this.provider, TorchProvider):
        other.gives_way()
    if state_fn is None:
        writer = _for_its_replicas(writer, model)
    training = Training(parts, this, writer)
    guard = Guard(training)
    if this.session.socket:
        suffix = GASP_SUFFIX if save_fn is None else ""
        is_part = training.is_shard or training.parts.shards is not None
        interval = SnapshotInterval(snapshot_every) if is_part else None
        copies = StateCopies(this, training, interval, suffix)
        refused = _why_no_rejoin(training, state_fn, interval)
        guard.rejoin = Rejoin(training, this, refused, copies, guard.step)
        if not is_part and state_fn is None and snapshot_every != 0 and this.session.world_size > 1:
            guard.last_boundary = LastBoundary(training, this, snapshot_every)
    if state_fn is None:
        guard.alike = SameParameters(training.parts, this.session, writer.folder.replica_group)
    state = None if state_fn is None else lambda _: state_fn()
    keep(training, this, GaspFile(training, state_fn, state, save_fn=save_fn))
    return guard


def _why_no_rejoin(
    training: Training, state_fn: Callable[[], Any] | None, interval: SnapshotInterval | None
) -> str:
    """What keeps a rank from outliving a peer, as far as it is known here; empty if nothing does."""
    if interval is not None and interval.asked == 0:
        return "by snapshot_every=0 no copy is made of its part of the state, which not all ranks have"
    if training.sharing is not None:
        return "ranks were left out, and those that are here do their work in parts"
    if state_fn is not None:
        return "a state_fn says what is saved, and nothing says what else changes"
    return ""


def _check(
    model: Any, optimizers: tuple[Any, ...], objects: Mapping[str, Any], state_fn: Callable[[], Any] | None
) -> None:
    for name, one in {"the model": model, **objects}.items():
        if not callable(getattr(one, "state_dict", None)) or not hasattr(one, "load_state_dict"):
            because = f"{type(one).__name__} has no state_dict and load_state_dict"
            hint = "leave it out, or give it these two methods"
            raise FaultrunError(f"{name} cannot be protected", because=because, hint=hint)
    for optimizer in optimizers:
        if not hasattr(optimizer, "register_step_pre_hook"):
            because = "it has no step hooks, so the SDK cannot see when it changes the parameters"
            hint = "leave it out and put its step into `with guard.updating():`"
            raise FaultrunError(f"{type(optimizer).__name__} cannot be protected", because=because, hint=hint)
    if state_fn is None and any("FullyShardedDataParallel" in type(one).__name__ for one in model.modules()):
        raise FaultrunError(
            "a model in FullyShardedDataParallel cannot be protected as it is",
            because="its parameters are flattened, and gathering its state needs the ranks that may be dead",
            hint="shard it with fully_shard (FSDP2), or give protect() a state_fn that returns this rank's "
            "shard, and a Folder with replica_group",
        )


def _for_its_replicas(writer: SaveWriter, model: Any) -> SaveWriter:
    """With the ranks that hold the same shards as this one, unless the script has named them."""
    inner = unwrapped(model)
    if writer.folder.replica_group or not is_spread(inner):
        return writer
    group = frozenset(replica_group_of(inner.state_dict(keep_vars=True).values(), writer.session.rank))
    if group and isinstance(model, torch.nn.parallel.DistributedDataParallel):
        group |= frozenset(torch.distributed.get_process_group_ranks(model.process_group))
    return replace(writer, folder=replace(writer.folder, replica_group=tuple(sorted(group))))
