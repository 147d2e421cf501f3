"""What this process needs at most: of the machine's memory, and of its accelerator's."""

import sys
from pathlib import Path
from typing import Any

import torch

_NEWS = 100
"""A hundredth of the device more, or of what is free there less, is worth a word."""
_SAYS_NOTHING = (AssertionError, AttributeError, RuntimeError, TypeError, ValueError)
"""What a device's calls raise that this driver or this build of torch does not have. No rank ends of it."""


class MemoryUse:
    """Asked once a second, in the helper thread: torch's own figure, the driver's, the kernel's.

    What the driver counts besides is that of the first look, before a standby is parked there.
    """

    def __init__(self) -> None:
        self._beside_bytes = -1
        self._told: dict[str, Any] = {}

    def news(self) -> dict[str, Any] | None:
        """The fields of ``memory``, where they are news. None: they are not."""
        now, told = {"host_bytes": _host_peak_bytes(), **self._of_device()}, self._told
        if told:
            more = {name: size - told[name] for name, size in now.items() if name != "device"}
            grown = max(more["device_bytes"], -more["free_bytes"]) > now["total_bytes"] // _NEWS
            if not grown and more["host_bytes"] * _NEWS <= told["host_bytes"]:
                return None
        self._told = now
        return now

    def _of_device(self) -> dict[str, Any]:
        said = {"device": "", "device_bytes": 0, "beside_bytes": 0, "free_bytes": 0, "total_bytes": 0}
        npu = getattr(sys.modules.get("torch_npu"), "npu", None)
        known = {"npu": npu, "cuda": torch.cuda, "xpu": getattr(torch, "xpu", None)}
        for kind, device in known.items():
            if device is not None and getattr(device, "is_initialized", bool)():
                try:
                    return said | {"device": kind} | self._figures(kind, device)
                except _SAYS_NOTHING:
                    return said | {"device": kind}
        return said

    def _figures(self, kind: str, device: Any) -> dict[str, Any]:
        """By torch.cuda's names, which other accelerators' modules have, too."""
        index = device.current_device()
        free_bytes, total_bytes = device.mem_get_info(index)
        if self._beside_bytes < 0:
            self._beside_bytes = max(0, total_bytes - free_bytes - device.memory_reserved(index))
        peak_bytes = max(self._told.get("device_bytes", 0), device.max_memory_reserved(index))
        # The same number may mean another device in each process.
        name = getattr(device.get_device_properties(index), "uuid", index)
        sizes = {"device_bytes": peak_bytes, "beside_bytes": self._beside_bytes}
        return {"device": f"{kind} {name}", **sizes, "free_bytes": free_bytes, "total_bytes": total_bytes}


def _host_peak_bytes() -> int:
    """The peak of its resident set (VmHWM of proc_pid_status.rst), of this program alone."""
    with Path("/proc/self/status").open(encoding="ascii", errors="replace") as status:
        return next((int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM:")), 0)
