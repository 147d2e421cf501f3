"""Gradients that wait for an update, which a later batch makes: they are in no state that is saved."""

from typing import Any

from faultrun.errors import FaultrunError
from faultrun.sdk.torch.group.fsdp2 import groups_of
from faultrun.sdk.torch.state.shards import local_of
from faultrun.sdk.torch.training import Training
from faultrun.sdk.worker.update_lock import UpdatePhase

WHY_NOT = "gradients are added up over several batches, which only a function for guard.run can do again"


def adds_up(training: Training) -> bool:
    """Whether nothing was updated since the last boundary, and there are gradients.

    Not where a ``GradScaler``, say, has found them to be worth nothing: that is a step without an update.
    """
    if training.lock.phase is not UpdatePhase.CLEAN:
        return False
    try:
        parts = training.parts
    except FaultrunError:  # without faultrun nothing is refused
        return False
    if not _has_gradients(parts):
        return False
    if not training.history:  # without faultrun
        return not parts.objects.has_scaler
    last = training.history[-1]
    groups = [[group.copy() for group in one.param_groups] for one in parts.optimizers]
    return last.says_the_same(last._replace(groups=groups, objects=parts.objects.capture()))


def _has_gradients(parts: Any) -> bool:
    ours = (
        one for optimizer in parts.optimizers for group in optimizer.param_groups for one in group["params"]
    )
    if any(one.grad is not None and bool(local_of(one.grad).any()) for one in ours):
        return True
    return any(  # which fully_shard keeps to itself until it may talk to the other ranks
        not getattr(group, "reduce_grads", True)
        for module in parts.model.modules()
        if callable(getattr(module, "_get_fsdp_state", None))
        for group in groups_of(module._get_fsdp_state())
    )
