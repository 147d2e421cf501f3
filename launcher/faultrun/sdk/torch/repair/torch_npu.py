"""torch_npu's own calls for a device whose memory has an uncorrectable error (UCE).

Never run on an NPU: its tests have an emulation of these names over gloo. What the names do was read in
torch_npu (``npu/_recovery.py``, ``csrc/npu/Module.cpp``) and in MindSpeed-LLM's
``high_availability/tft_stop_clean.py``, whose order this keeps: the devices of all ranks are stopped, which
ends their collectives; the memory is looked at; the devices are started, the communicators resumed, and the
tensors of the rank with the fault declared safe before they are written over.
"""

import re
import sys
import threading
from collections.abc import Iterable
from typing import Any

import torch

from faultrun.sdk.memory_fault import MemoryFault, MemoryFaultKind

_TELLS = re.compile(r"UCE ERROR|HBM MULTI BIT ECC|0x80E01801", re.IGNORECASE)
"""In a RuntimeError of torch_npu; what it was, ``check_uce_in_memory`` says."""


class Npu:
    """The device of this process."""

    def __init__(self, module: Any) -> None:
        self._npu = module.npu
        self._changes = threading.Lock()
        self._stopped = self._left = False

    def fault_in(self, error: BaseException) -> MemoryFault | None:
        """The fault that ``error`` tells of, if the device knows of one too. Stops the device to look."""
        if not isinstance(error, RuntimeError) or not _TELLS.search(str(error)):
            return None
        self.stop()
        kind = MemoryFaultKind(int(self._npu.check_uce_in_memory(self._device)))
        if kind is MemoryFaultKind.NONE:
            with self._changes:
                self._restart(rebuild=False)
            return None
        return MemoryFault(kind=kind, why=str(error).partition("\n")[0])

    def stop(self) -> None:
        """End what it does; a waiting thread gets an error. Any thread; nothing once it was left."""
        with self._changes:
            self._stop()

    def start(self, tensors: Iterable[Any], *, rebuild: bool) -> None:
        """Leave the group: what it left behind ends here, and the device works again. Once a group.

        ``rebuild``: ``tensors`` were in memory that is new now.
        """
        with self._changes:
            if self._left:
                return
            self._stop()
            self._left = True  # a stop that comes late is for a group that is left
            self._restart(rebuild=rebuild)
        if rebuild:
            for tensor in tensors:
                self._npu._recovery.update_npu_tensor_to_safe(tensor)

    def resume_group(self) -> None:
        """All ranks' communicators work again, between the same processes as before."""
        reinit: Any = vars(torch.distributed)["reinit_process_group"]  # torch_npu puts it there
        reinit(None, rebuild_link=False)

    def enters(self) -> None:
        """There is a group again that may be stopped."""
        with self._changes:
            self._left = False

    def _stop(self) -> None:
        if not self._left and not self._stopped:
            self._npu.stop_device(self._device)
            self._stopped = True

    def _restart(self, *, rebuild: bool) -> None:
        self._npu.restart_device(self._device, rebuild_all_resources=rebuild)
        self._stopped = False

    @property
    def _device(self) -> int:
        device: int = self._npu.current_device()
        return device


_known: Npu | None = None


def npu() -> Npu | None:
    """The device, where the script uses torch_npu."""
    global _known  # noqa: PLW0603 - a process has one
    if _known is None and "torch_npu" in sys.modules:
        _known = Npu(sys.modules["torch_npu"])
    return _known
