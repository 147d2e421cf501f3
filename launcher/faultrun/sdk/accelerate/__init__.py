"""Fault tolerance for a loop with accelerate.

    model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)
    guard = sdk.accelerate.protect(accelerator, directory="ckpt")                                     # 1
    guard.resume()
    for epoch in range(guard.epoch, EPOCHS):
        for images, labels in guard.batches(loader, epoch):                                           # 2
            with accelerator.accumulate(model):
                ...
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
            guard.step()                                                                              # 3

Call ``protect`` after the last ``accelerator.prepare``. Folders of ``accelerator.save_state`` hold the place
in the epoch from then on, with or without faultrun, and ``load_state`` brings it back.
"""

import os
from typing import Any

import torch
from accelerate import Accelerator

from faultrun.errors import FaultrunError
from faultrun.sdk.accelerate.guard import AccelerateGuard, Place
from faultrun.sdk.session import Session
from faultrun.sdk.torch.group.same_parameters import SameParameters
from faultrun.sdk.torch.provider import GaspFile, keep
from faultrun.sdk.torch.snapshots.last_boundary import LastBoundary
from faultrun.sdk.torch.state.boundary import Objects, device_of
from faultrun.sdk.torch.state.own_attributes import own_states
from faultrun.sdk.torch.state.state_dict import Parts, is_compiled, unwrapped, unwrapped_optimizer
from faultrun.sdk.torch.training import Training
from faultrun.sdk.worker.save_files import Folder, SaveWriter, folder_of
from faultrun.sdk.worker.worker import worker

__all__ = ["AccelerateGuard", "Folder", "protect"]

_SHARDED = frozenset({"DEEPSPEED", "FSDP", "MEGATRON_LM", "XLA"})
"""``DistributedType`` of those where a rank does not hold the whole state, or not where it can be read."""


def protect(accelerator: Accelerator, *, directory: str | os.PathLike[str] | Folder) -> AccelerateGuard:
    """Be ready to save all that ``accelerator`` has prepared whenever faultrun asks, and to go on from it.

    That is every model, optimizer and scheduler, the scaler, and what was given to
    ``register_for_checkpointing``. Files go to ``<directory>/rank_<rank>/gasp-step_<step>.pt``.
    FaultrunError: nothing was prepared, the state is sharded (FSDP, DeepSpeed, Megatron-LM), or could never
    be saved.
    """
    this = worker()  # first: it notes what ends this process, a refusal too
    _check(accelerator)
    writer = SaveWriter(folder_of(directory), this.session if this is not None else Session())
    training = Training(lambda: _parts(accelerator), this, writer)
    guard = AccelerateGuard(training, accelerator)
    if this is not None:
        guard.alike = SameParameters(training.parts, this.session, writer.folder.replica_group)
        if this.session.socket and this.session.world_size > 1:
            guard.last_boundary = LastBoundary(training, this)
        keep(training, this, GaspFile(training))
    accelerator.register_for_checkpointing(guard.place)
    return guard


def _check(accelerator: Accelerator) -> None:
    if (kind := accelerator.distributed_type.value) in _SHARDED:
        raise FaultrunError(
            "sdk.accelerate cannot protect this training",
            because=f"with {kind} each rank holds a part, and accelerate gathers them in collectives, which"
            " hang once a rank is dead",
            hint="leave protect() out: restarts go on from accelerator.save_state with faultrun"
            " --recipe=accelerate; a model of fully_shard can be given to sdk.torch.protect",
        )
    if not accelerator._models or not accelerator._optimizers:
        because = "the accelerator has prepared no model, or no optimizer"
        hint = "call protect() after accelerator.prepare(model, optimizer, ...)"
        raise FaultrunError("sdk.accelerate has nothing to protect", because=because, hint=hint)


def _parts(accelerator: Accelerator) -> Parts:
    models = [unwrapped(one) for one in accelerator._models]
    model = models[0] if len(models) == 1 else torch.nn.ModuleList(models)
    objects = {
        **_named("scheduler", accelerator._schedulers),
        **_named("object", [one for one in accelerator._custom_objects if not isinstance(one, Place)]),
        **({} if accelerator.scaler is None else {"scaler": accelerator.scaler}),
        **own_states(accelerator._optimizers),
    }
    return Parts(
        model=model,
        optimizers=tuple(map(unwrapped_optimizer, accelerator._optimizers)),
        objects=Objects(objects),
        wrapped=tuple(accelerator._models),
        device=device_of(model),
        # a list of models has no forward pass, each of them has
        watched=tuple(
            one for one, whole in zip(models, accelerator._models, strict=True) if not is_compiled(whole)
        ),
    )


def _named(name: str, them: list[Any]) -> dict[str, Any]:
    return {f"{name}_{number}": one for number, one in enumerate(them)}
