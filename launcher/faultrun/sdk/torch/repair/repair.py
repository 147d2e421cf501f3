"""A rank with bad memory keeps its process: what is bad, who is told, and the device that works again.

The state that it needs then comes as it does to a newcomer (``rejoin``).
"""

from collections.abc import Iterator
from typing import Any

import torch

from faultrun.sdk.memory_fault import MemoryFault, MemoryFaultKind
from faultrun.sdk.torch.repair.torch_npu import npu
from faultrun.sdk.torch.state.shards import local_of
from faultrun.sdk.torch.state.trees import map_tensors
from faultrun.sdk.torch.training import Training
from faultrun.sdk.worker.worker import Worker

_VERDICT_S = 5.0
"""For the supervisor's word that all leave their group; without it the fault ends this process, while the
others, whose group the fault has broken, still wait for theirs (``rejoin``)."""
_NAMED = 5


class Repair:
    """Brings a rank back whose memory is bad, in the same process. Main thread."""

    def __init__(self, training: Training, worker: Worker) -> None:
        self._training, self._worker = training, worker
        self._rebuild = self.lost_state = False
        """Whether the state of this rank must come from elsewhere."""

    def fault_in(self, error: BaseException) -> MemoryFault | None:
        """The memory fault that ``error`` is, or tells of; None for any other."""
        if isinstance(error, MemoryFault):
            return error if error.kind is not MemoryFaultKind.NONE else None
        device = npu()
        return device.fault_in(error) if device is not None else None

    def may_begin(self, fault: MemoryFault, incarnation: int, *, able: bool) -> bool:
        """Whether all leave their group, so that this rank gets its state anew. Waits for that word.

        From here on this rank's state is not saved, if any of it is bad.
        """
        self.lost_state = self._spoils(fault)
        if self.lost_state:
            self._training.lock.spoil(f"memory of this rank is bad: {fault}")
        if not able or fault.kind is MemoryFaultKind.OUTSIDE:
            return False
        self._worker.say("memory_fault", incarnation=incarnation, what=self._words(fault))
        if not self._worker.regroup.wait_lost(incarnation, _VERDICT_S):
            return False
        self._rebuild = self.lost_state
        return True

    def start_device(self) -> None:
        """The device was stopped with the group, or has bad memory: it works from here on."""
        device, rebuild = npu(), self._rebuild
        self._rebuild = False
        if device is not None:
            device.start((tensor for _, tensor in self._state()), rebuild=rebuild)

    def _spoils(self, fault: MemoryFault) -> bool:
        if fault.kind is MemoryFaultKind.TEMPORARY:
            return False
        if not fault.bad:
            return True
        ours = {_memory_of(tensor) for _, tensor in self._state()}
        return any(not isinstance(one, torch.Tensor) or _memory_of(one) in ours for one in fault.bad)

    def _words(self, fault: MemoryFault) -> str:
        """``persistent memory fault in 0.weight``, for people."""
        place_of = {_memory_of(tensor): name for name, tensor in self._state()}
        names = [
            place_of.get(_memory_of(one), "a tensor of the step")
            if isinstance(one, torch.Tensor)
            else str(one)
            for one in fault.bad
        ]
        where = f" in {', '.join(names[:_NAMED])}" if names else ""
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        why = f": {fault.why}" if fault.why else ""
        return f"{fault.kind.name.lower()} memory fault{where}{more}{why}"

    def _state(self) -> Iterator[tuple[str, Any]]:
        """All tensors that outlive a step, by name."""
        parts = self._training.parts
        for name, tensor in (*parts.model.named_parameters(), *parts.model.named_buffers()):
            yield name, local_of(tensor.detach())
        found: list[Any] = []
        for optimizer in parts.optimizers:
            map_tensors(optimizer.state_dict()["state"], found.append)
        yield from (("the optimizer's state", local_of(tensor)) for tensor in found)


def _memory_of(tensor: Any) -> int:
    pointer: int = local_of(tensor.detach()).untyped_storage().data_ptr()
    return pointer
