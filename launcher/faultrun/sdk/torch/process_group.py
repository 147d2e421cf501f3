"""The process group of all ranks: made so that it can be left, and made again with the same living processes.

gloo has no abort: ``shutdown(2)`` on the group's own connections frees a rank that waits in a collective
within milliseconds, dead or stopped peer alike. Never on a listening socket: gloo's thread ends the process
when ``accept`` fails. A newcomer begins with torch's "fake" group, whose collectives do nothing: a script
builds its model and comes to its first step without peers.
"""

import contextlib
import os
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from faultrun.errors import FaultrunError
from faultrun.model.meeting import TCP
from faultrun.sdk.meeting import MeetingStore
from faultrun.sdk.regroup import Join
from faultrun.sdk.torch.npu import npu
from faultrun.sdk.worker import worker

_LOOK_S = 0.001
_ASK_S = 0.2
"""How long a question waits at the store over nodes; in between it is seen whether the group is over."""
_MEET_S = 10.0
"""To connect all to all, once everybody has come: a death in these milliseconds is waited for so long."""
_ABORTABLE = frozenset({"gloo", "nccl"})
_HCCL = "hccl"
_FAKE = "fake"
_RENDEZVOUS = frozenset({"init_method", "store", "rank", "world_size"})


class GroupBroken(RuntimeError):
    """The group that is being formed has lost a rank already. Says "process group", as torch's errors do."""


class TrainingGroup:
    """torch's default group of one process, in all its incarnations. ``how``: as the script made it."""

    def __init__(self, backend: str, how: dict[str, Any]) -> None:
        self.backend = backend
        self._how = how
        self._store: Any = None
        self._before: set[tuple[int, int]] | None = connections()
        self._own: set[tuple[int, int]] = set()

    def settled(self) -> None:
        """All is connected: what was opened meanwhile belongs to the group."""
        self._own = connections() - (self._before or set())
        self._before = None

    @property
    def why_not(self) -> str:
        """Why this group cannot be left; "" when it can."""
        named = set(self.backend.replace(",", ":").split(":")) - {"cpu", "cuda", "npu"}
        if not named <= _ABORTABLE | ({_HCCL} if self._resumes else set()):
            return f"a group of {self.backend} cannot be left: gloo and nccl can"
        if len(dist.distributed_c10d._world.pg_map) > 1:
            return "it has process groups besides the one of all ranks"
        return ""

    def abort(self) -> None:
        """Free whoever waits in a collective of it, or forms it. Any thread."""
        if "nccl" in self.backend:
            with contextlib.suppress(AttributeError, RuntimeError, ValueError):
                dist.distributed_c10d._abort_process_group()
        device = npu() if self._resumes else None
        if device is not None:
            device.stop()
        before = self._before
        shut(self._own if before is None else connections() - before)

    @property
    def _resumes(self) -> bool:
        """Whether its communicators outlive a fault, and work again between the same processes."""
        return _HCCL in self.backend and npu() is not None

    def leave(self) -> None:
        """Nothing may hold it any more that would keep its connections open."""
        if not self._resumes:
            self._drop()

    def _drop(self) -> None:
        with contextlib.suppress(ValueError, AssertionError):  # it was never formed
            dist.destroy_process_group()
        self._store = None
        self._own = set()

    def form(self, join: Join, is_over: Callable[[], bool]) -> None:
        """Enter the group of ``join`` with all ranks. GroupBroken as soon as ``is_over``; RuntimeError."""
        resumes = self._resumes and join.all_stayed and dist.is_initialized()
        if not resumes:
            self._drop()  # a newcomer's does nothing
        session = worker().session  # type: ignore[union-attr]
        self._before = connections()
        world = session.world_size
        self._store = _Store(_opened(join, world), join.timeout_s, is_over)
        self._store.meet(session.rank, world)
        device = npu()
        if device is not None:
            device.enters()
        if resumes and device is not None:
            device.resume_group()
            self.settled()
            return
        # a failed start leaves it at 1, it is part of the keys, and ranks that differ never meet
        dist.distributed_c10d._world.group_count = 0
        limit = {"timeout": timedelta(seconds=min(_MEET_S, join.timeout_s))}
        with one_collective_at_a_time():
            dist.init_process_group(
                self.backend, store=self._store, rank=session.rank, world_size=world, **{**self._how, **limit}
            )
        timeout = self._how.get("timeout")
        wanted = dist.distributed_c10d.default_pg_timeout if timeout is None else timeout
        dist.distributed_c10d._set_pg_timeout(wanted, dist.group.WORLD)
        self.settled()


_group: TrainingGroup | None = None


def training_group() -> TrainingGroup | None:
    """The one that ``init_process_group`` here has made."""
    return _group


def init_process_group(backend: str | None = None, **how: Any) -> None:
    """``torch.distributed.init_process_group``, for a script that can outlive the death of a rank.

    The same without faultrun. FaultrunError for a newcomer under a torch that has no "fake" backend.
    """
    global _group  # noqa: PLW0603 - a process has one default group
    this = worker()
    kept = {key: one for key, one in how.items() if key not in _RENDEZVOUS}
    if this is not None and this.session.is_newcomer:
        named = backend or ("cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo")
        _group = TrainingGroup(named, kept)
        _fake(this.session.rank, this.session.world_size)
        return
    if this is not None:
        _group = TrainingGroup(backend or "", kept)
    with one_collective_at_a_time() if this is not None else contextlib.nullcontext():
        dist.init_process_group(backend, **how)
    if _group is not None:
        _group.backend = backend or dist.distributed_c10d._world.pg_map[dist.group.WORLD][0]
        _group.settled()


@contextlib.contextmanager
def one_collective_at_a_time() -> Iterator[None]:
    """Groups of gloo that are made meanwhile do one collective after the other, where torch can be told so.

    They do two. When one fails by the connection to one peer, the connection to another that was just
    receiving for it is never looked at again, and the second collective waits there until its timeout.
    """
    c10d: Any = dist.distributed_c10d
    gloo: Any = getattr(c10d, "ProcessGroupGloo", None)
    options: Any = getattr(gloo, "_Options", None)
    if not hasattr(options, "_threads"):
        yield
        return

    class OneThread(gloo):  # type: ignore[misc]  # torch's stubs do not know it
        def __init__(self, store: Any, rank: int, size: int, timeout: timedelta) -> None:
            how = options()
            how._devices, how._timeout, how._threads = _devices(gloo), timeout, 1
            super().__init__(store, rank, size, how)

    c10d.ProcessGroupGloo = OneThread
    try:
        yield
    finally:
        c10d.ProcessGroupGloo = gloo


def _devices(gloo: Any) -> list[Any]:
    """Where a group that torch makes itself would listen: at the interfaces that the environment names."""
    names = [name for name in os.environ.get("GLOO_SOCKET_IFNAME", "").split(",") if name]
    return [gloo.create_device(interface=name) for name in names] or [gloo.create_default_device()]


def _fake(rank: int, world: int) -> None:
    try:
        from torch.testing._internal.distributed import fake_pg  # noqa: F401 - registers the backend

        dist.init_process_group(_FAKE, rank=rank, world_size=world)
    except (ImportError, ValueError, RuntimeError) as error:
        raise FaultrunError(
            "this rank cannot take a dead one's place",
            because=f"torch {torch.__version__} has no process group that does nothing: {error}",
            hint="train with torch 2.13 or newer, or with --on_fault=restart",
        ) from error


def idle_group(rank: int, world: int) -> Any:
    """A group that does nothing: a place holder where torch's objects want to hold one."""
    from torch._C._distributed_c10d import FakeProcessGroup

    group = dist.ProcessGroup(rank, world)
    made: Any = FakeProcessGroup  # torch's stubs know another one
    backend = made._create_internal(rank, world, made.Options())
    group._register_backend(torch.device("cpu"), dist.ProcessGroup.BackendType.CUSTOM, backend)
    group._set_default_backend(dist.ProcessGroup.BackendType.CUSTOM)
    return group


class _OverAFile:
    """What ``MeetingStore`` is over nodes."""

    def __init__(self, path: str, world: int) -> None:
        self._file = dist.FileStore(path, world)

    def set(self, key: str, value: bytes) -> None:
        self._file.set(key, value)

    def get(self, keys: Sequence[str], within_s: float) -> list[bytes] | None:
        if self._file.check(list(keys)):
            return [self._file.get(key) for key in keys]
        time.sleep(min(_LOOK_S, within_s))
        return None

    def add(self, key: str, amount: int) -> int:
        return int(self._file.add(key, amount))

    def swap(self, key: str, expected: bytes, desired: bytes) -> bytes:
        return bytes(self._file.compare_set(key, expected, desired))

    def drop(self, key: str) -> bool:
        return bool(self._file.delete_key(key))


def _opened(join: Join, world: int) -> "_OverAFile | MeetingStore":
    """What all ranks of this incarnation can reach. RuntimeError: this one cannot."""
    if not join.store.startswith(TCP):
        return _OverAFile(join.store, world)
    try:
        return MeetingStore(join.store.removeprefix(TCP), join.secret, min(_MEET_S, join.timeout_s))
    except OSError as error:
        raise GroupBroken(f"the ranks' meeting place at {join.store} cannot be reached: {error}") from error


class _Store(dist.Store):  # type: ignore[misc]  # torch has no types here
    """``inner`` whose waits end at once when the group that is formed over it is over.

    torch waits for keys for as long as a collective may take; a rank that died will never write its own.
    """

    def __init__(self, inner: Any, timeout_s: float, is_over: Callable[[], bool]) -> None:
        super().__init__()
        self._inner = inner
        self._timeout_s = timeout_s
        self._is_over = is_over

    def meet(self, rank: int, world: int) -> None:
        """Return once all ranks are here, so that connecting takes milliseconds."""
        self.set(f"here/{rank}", b"1")
        self.wait([f"here/{one}" for one in range(world)])

    def set(self, key: str, value: Any) -> None:
        self._do(lambda: self._inner.set(key, _bytes(value)))

    def get(self, key: str) -> Any:
        return self._wait_for([key], self._timeout_s)[0]

    def add(self, key: str, amount: int) -> Any:
        return self._do(lambda: self._inner.add(key, amount))

    def check(self, keys: Sequence[str]) -> Any:
        return self._do(lambda: self._inner.get(keys, 0.0)) is not None

    def compare_set(self, key: str, expected: Any, desired: Any) -> Any:
        return self._do(lambda: self._inner.swap(key, _bytes(expected), _bytes(desired)))

    def delete_key(self, key: str) -> Any:
        return self._do(lambda: self._inner.drop(key))

    def wait(self, keys: Sequence[str], timeout: timedelta | None = None) -> None:
        """GroupBroken when it is over, or nobody has written them in time."""
        limit_s = self._timeout_s if timeout is None else min(self._timeout_s, timeout.total_seconds())
        self._wait_for(keys, limit_s)

    def _wait_for(self, keys: Sequence[str], limit_s: float) -> list[bytes]:
        until_s = time.monotonic() + limit_s
        while True:
            values = self._do(lambda: self._inner.get(keys, _ASK_S))
            if values is not None:
                return list(values)
            if self._is_over():
                raise GroupBroken("a rank of the process group is gone before it was formed")
            if time.monotonic() > until_s:
                raise GroupBroken(f"not all ranks have come to the process group in {limit_s:g} s")

    @staticmethod
    def _do(ask: Callable[[], Any]) -> Any:
        try:
            return ask()
        except OSError as error:
            raise GroupBroken(f"the ranks' meeting place is gone: {error}") from error


def _bytes(value: Any) -> bytes:
    return value.encode() if isinstance(value, str) else bytes(value)


def connections() -> set[tuple[int, int]]:
    """The TCP connections of this process: descriptor and inode. Listening ones are none."""
    found = set()
    for place in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError, ValueError):
            fd = int(place.name)
            if str(place.readlink()).startswith("socket:"):
                with socket.socket(fileno=os.dup(fd)) as one:
                    listens = one.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
                    if one.family in (socket.AF_INET, socket.AF_INET6) and not listens:
                        found.add((fd, os.fstat(one.fileno()).st_ino))
    return found


def shut(sockets: set[tuple[int, int]]) -> None:
    """End these connections for all who hold them, forked loaders too; closed ones are nobody's."""
    for fd, inode in sockets:
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(fd)) as one:
            if os.fstat(one.fileno()).st_ino == inode:
                one.shutdown(socket.SHUT_RDWR)
