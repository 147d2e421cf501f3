"""EMULATED: torch_npu's names for a device with bad memory, on the CPU and over gloo.

    from faultrun.testing import emulated_npu

    emulated_npu.install()  # before torch_npu would be imported; then the backend "hccl"
    raise emulated_npu.uce(3)  # in a step: the error of an operation that met bad memory

They do what their sources say that they do, and refuse what a device would refuse: a collective of a stopped
device, a start of one that runs, a tensor declared safe before the device works again. It says nothing about
what an NPU takes for it. ``calls`` are the names in the order in which they came. For ranks on one machine.
"""

import os
import sys
import tempfile
import types
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from faultrun.sdk.torch.group.tcp_connections import connections, shut

EMULATED = "EMULATED NPU: torch_npu's names on the CPU, over gloo; no device was there"
"""What every process that uses it says of itself."""

calls: list[str] = []
_uce = 0
_stopped = False
_group: Any = None


def install() -> None:
    """Have ``torch_npu`` imported, and ``hccl`` a backend of torch; the log says that it is an emulation."""
    print(EMULATED, flush=True)  # noqa: T201 - no reader of the log shall take it for a device
    npu = types.ModuleType("torch_npu.npu")
    recovery = types.ModuleType("torch_npu.npu._recovery")
    for name in (_current_device, _stop_device, _restart_device, _check_uce_in_memory):
        setattr(npu, name.__name__[1:], name)
    recovery.__dict__["update_npu_tensor_to_safe"] = _update_npu_tensor_to_safe
    npu.__dict__["_recovery"] = recovery
    module = types.ModuleType("torch_npu")
    module.__dict__["npu"] = npu
    sys.modules["torch_npu"] = module
    dist.__dict__["reinit_process_group"] = _reinit_process_group
    dist.Backend.register_backend("hccl", _Hccl, devices=["cpu"])


def uce(kind: int) -> RuntimeError:
    """Memory is bad from here on, and this is the error of the operation that met it.

    ``kind`` is what ``check_uce_in_memory`` will say: 0 none, 1 not torch's, 2 of tensors that a step makes
    and drops, 3 of tensors that outlive it.
    """
    global _uce  # noqa: PLW0603 - a process has one device
    _uce = kind
    return RuntimeError("EMULATED: The Inner error is reported: UCE ERROR, error code is 507054\n[ERROR] ...")


def _current_device() -> int:
    return 0


def _stop_device(device: int) -> None:
    global _stopped  # noqa: PLW0603
    assert device == 0
    calls.append("stop")
    _stopped = True
    if _group is not None:
        shut(_group.connections)


def _check_uce_in_memory(device: int) -> int:
    assert (device, _stopped) == (0, True), "the memory of a device that runs cannot be looked at"
    calls.append("check")
    return _uce


def _restart_device(device: int, rebuild_all_resources: int = False) -> None:
    global _stopped, _uce  # noqa: PLW0603
    assert (device, _stopped) == (0, True), "it runs"
    calls.append("rebuild" if rebuild_all_resources else "restart")
    _stopped = False
    _uce = 0


def _update_npu_tensor_to_safe(tensor: Any) -> None:
    assert isinstance(tensor, torch.Tensor)
    assert not _stopped, "nothing can be written while it stands"
    if calls[-1] != "safe":
        calls.append("safe")


def _reinit_process_group(group: Any = None, rebuild_link: bool = True) -> None:
    assert (group, rebuild_link, _stopped) == (None, False, False)
    calls.append("resume")
    assert _group is not None, "no group was made"
    _group.connect()


class _Hccl(dist.ProcessGroup):  # type: ignore[misc]  # torch has no types here
    """Communicators that a stop of the device ends, and a resumption gives back to the same processes."""

    def __init__(self, store: Any, rank: int, size: int, timeout: timedelta) -> None:
        global _group  # noqa: PLW0603
        super().__init__(rank, size)
        self._rank, self._size, self._timeout = rank, size, timeout
        self._resumed = 0
        if rank == 0:  # rank 0 may serve the store that was given: a stop is not to end that
            beside = os.environ.get("TORCHELASTIC_ERROR_FILE")  # among the logs: it goes with them
            folder = Path(beside).parent if beside else None
            handle, path = tempfile.mkstemp(prefix="emulated-hccl-", dir=folder)
            os.close(handle)
            store.set("resumes", path)
        self._store = dist.FileStore(store.get("resumes").decode(), size)
        self._inner: Any = None
        self.connect()
        _group = self

    def connect(self) -> None:
        """Reach all others, over connections of our own."""
        self._inner = None
        before = connections()
        options = dist.ProcessGroupGloo._Options()
        options._devices, options._threads = [dist.ProcessGroupGloo.create_default_device()], 1
        options._timeout = self._timeout
        store = dist.PrefixStore(f"resumed{self._resumed}", self._store)
        self._inner = dist.ProcessGroupGloo(store, self._rank, self._size, options)
        self._resumed += 1
        self.connections = connections() - before

    def getBackendName(self) -> str:  # noqa: N802 - torch's name
        return "hccl"

    def _working(self) -> Any:
        if _stopped:
            raise RuntimeError("HCCL: the device is stopped")
        return self._inner

    def allreduce(self, *words: Any, **more: Any) -> Any:
        return self._working().allreduce(*words, **more)

    def allgather(self, *words: Any, **more: Any) -> Any:
        return self._working().allgather(*words, **more)

    def broadcast(self, *words: Any, **more: Any) -> Any:
        return self._working().broadcast(*words, **more)

    def barrier(self, *words: Any, **more: Any) -> Any:
        return self._working().barrier(*words, **more)

    def send(self, *words: Any, **more: Any) -> Any:
        return self._working().send(*words, **more)

    def recv(self, *words: Any, **more: Any) -> Any:
        return self._working().recv(*words, **more)
