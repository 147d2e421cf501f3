"""EMULATED: an accelerator's memory that all processes of a machine share, for ranks on the CPU.

It has torch.cuda's names for what is free and reserved. A process holds what it has reserved and a context
until it ends; there is nothing else about it that a device has.
"""

import os
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import torch

MIB = 1 << 20


class EmulatedMemory:
    """``total_bytes`` over all processes that come to ``folder``; each has a context there of its own."""

    def __init__(self, folder: Path, total_bytes: int, context_bytes: int) -> None:
        folder.mkdir(exist_ok=True)
        self._folder, self._total_bytes, self._context_bytes = folder, total_bytes, context_bytes
        self._reserved_bytes = self._peak_bytes = 0
        self.reserve(0)

    def reserve(self, size_bytes: int) -> None:
        """Hold so much from now on; OutOfMemoryError where that is not free."""
        if size_bytes - self._reserved_bytes > self.mem_get_info(0)[0]:
            raise torch.OutOfMemoryError("EMULATED: out of memory")
        self._reserved_bytes, self._peak_bytes = size_bytes, max(self._peak_bytes, size_bytes)
        whole = self._folder / f".{os.getpid()}"
        whole.write_text(str(size_bytes + self._context_bytes))
        whole.rename(self._folder / str(os.getpid()))

    def is_initialized(self) -> bool:
        """torch.cuda's."""
        return True

    def current_device(self) -> int:
        """torch.cuda's."""
        return 0

    def get_device_properties(self, _device: int) -> SimpleNamespace:
        """torch.cuda's: what tells one device from another."""
        return SimpleNamespace(uuid=self._folder.name)

    def get_rng_state(self) -> torch.Tensor:
        """torch.cuda's: nothing is drawn there."""
        return torch.zeros(16, dtype=torch.uint8)

    def mem_get_info(self, _device: int) -> tuple[int, int]:
        """torch.cuda's: free and total bytes, by the driver."""
        living = (one for one in self._folder.glob("[0-9]*") if Path("/proc", one.name).exists())
        return self._total_bytes - sum(int(one.read_text()) for one in living), self._total_bytes

    def memory_reserved(self, _device: int) -> int:
        """torch.cuda's: of this process."""
        return self._reserved_bytes

    def max_memory_reserved(self, _device: int) -> int:
        """torch.cuda's."""
        return self._peak_bytes


def install(folder: Path, total_bytes: int, context_bytes: int) -> EmulatedMemory:
    """Have torch take it for its CUDA device's memory; nothing is computed there."""
    memory = EmulatedMemory(folder, total_bytes, context_bytes)
    cuda: ModuleType = torch.cuda
    names = ("is_initialized", "current_device", "get_device_properties", "get_rng_state", "mem_get_info")
    figures = ("memory_reserved", "max_memory_reserved")
    own: dict[str, Any] = {name: getattr(memory, name) for name in (*names, *figures)}
    vars(cuda).update(own)
    return memory
