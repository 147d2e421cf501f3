"""The process group of all ranks: made so that it can be left, and made again with the same living processes.

gloo has no abort: ``shutdown(2)`` on the group's own connections frees a rank that waits in a collective
within milliseconds, dead or stopped peer alike. Never on a listening socket: gloo's thread ends the process
when ``accept`` fails. A newcomer begins with torch's "fake" group, whose collectives do nothing: a script
builds its model and comes to its first step without peers.
"""

import contextlib
import os
import socket
from collections.abc import Callable, Iterator
from collections.abc import Set as AbstractSet
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from faultrun.errors import FaultrunError
from faultrun.sdk.regroup import Join
from faultrun.sdk.torch.group_store import open_store
from faultrun.sdk.torch.npu import npu
from faultrun.sdk.worker import worker

_MEET_S = 10.0
"""To connect all to all, once everybody has come: a death in these milliseconds is waited for so long."""
_GLOO_WAITS = 5
"""So many times its timeout gloo waits for a first connection."""
_ABORTABLE = frozenset({"gloo", "nccl"})
_HCCL = "hccl"
_FAKE = "fake"
_RENDEZVOUS = frozenset({"init_method", "store", "rank", "world_size"})


class TrainingGroup:
    """torch's default group of one process, in all its incarnations. ``how``: as the script made it."""

    def __init__(self, backend: str, how: dict[str, Any]) -> None:
        self.backend = backend
        self._how = how
        self._store: Any = None
        self._before: set[tuple[int, int]] | None = connections()
        self._own: frozenset[tuple[int, int]] = frozenset()

    @property
    def is_forming(self) -> bool:
        """Whether the group of all ranks is being formed at this moment."""
        return self._before is not None

    def settled(self) -> None:
        """All is connected: what was opened meanwhile belongs to the group."""
        self._own |= connections() - (self._before or set())
        self._before = None

    @contextlib.contextmanager
    def beside(self, store: Any, rank: int, world: int, timeout: timedelta) -> Iterator[timedelta]:
        """A group of some ranks is formed in it: how long it may connect, for all of it have come.

        What it opens goes with the group of all ranks. RuntimeError: one does not come.
        """
        store.set(f"here/{rank}", b"1")
        store.wait([f"here/{one}" for one in range(world)], timeout)
        self._before = connections()
        try:
            yield min(timeout, timedelta(seconds=_MEET_S / _GLOO_WAITS))
        finally:
            self.settled()

    @property
    def why_not(self) -> str:
        """Why this group cannot be left; "" when it can."""
        named = set(self.backend.replace(",", ":").split(":")) - {"cpu", "cuda", "npu"}
        if not named <= _ABORTABLE | ({_HCCL} if self._resumes else set()):
            return f"a group of {self.backend} cannot be left: gloo and nccl can"
        return ""

    def besides(self, known: frozenset[str]) -> str:
        """Why the groups that the script has made keep it; "" when there are none but the ``known``."""
        made = [group for group in dist.distributed_c10d._world.pg_names if group is not dist.group.WORLD]
        if any(dist.distributed_c10d._world.pg_names[group] not in known for group in made):
            return (
                "it has process groups besides the one of all ranks, "
                "which only a function for guard.run can make again"
            )
        return ""

    def device(self, model: Any) -> Any:
        """Where its collectives find their tensors."""
        if "gloo" in self.backend:
            return "cpu"
        return next(model.parameters()).device if _HCCL in self.backend else torch.device("cuda")

    def abort(self) -> None:
        """Free whoever waits in a collective of it, or forms it. Any thread."""
        if "nccl" in self.backend:
            with contextlib.suppress(AttributeError, RuntimeError, ValueError):
                dist.distributed_c10d._abort_process_group()
        device = npu() if self._resumes else None
        if device is not None:
            device.stop()
        before = self._before
        shut(self._own if before is None else self._own | (connections() - before))

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
        self._own = frozenset()

    def form(self, join: Join, is_over: Callable[[], bool]) -> None:
        """Enter the group of ``join`` with all ranks. GroupBroken as soon as ``is_over``; RuntimeError."""
        resumes = self._resumes and join.all_stayed and dist.is_initialized()
        if not resumes:
            self._drop()  # a newcomer's does nothing
        session = worker().session  # type: ignore[union-attr]
        self._before = connections()
        world = session.world_size
        self._store = open_store(join, _MEET_S, is_over)
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
        limit = {"timeout": timedelta(seconds=min(_MEET_S, join.timeout_s) / _GLOO_WAITS)}
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
    if this is not None:
        _know_groups_of_gloo()
    if this is not None and this.session.is_newcomer:
        named = backend or ("cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo")
        _group = TrainingGroup(named, kept)
        _fake(this.session.rank, this.session.world_size)
        return
    if this is not None:
        _group = TrainingGroup(backend or "", kept)
    dist.init_process_group(backend, **how)
    if _group is not None:
        _group.backend = backend or dist.distributed_c10d._world.pg_map[dist.group.WORLD][0]
        _group.settled()


def _know_groups_of_gloo() -> None:
    """Every group of gloo from here on: its connections are known, it does one collective after another.

    By itself it does two at once. When one fails by the connection to one peer, the connection to another
    that was just receiving for it is never looked at again, and the second collective waits for its timeout.
    """
    c10d: Any = dist.distributed_c10d
    gloo: Any = getattr(c10d, "ProcessGroupGloo", None)
    if gloo is None or getattr(gloo, "is_known", False):
        return
    options: Any = getattr(gloo, "_Options", None)
    can_be_told = hasattr(options, "_threads")

    class IsOfGloo(type(gloo)):  # type: ignore[misc]
        def __instancecheck__(cls, one: object) -> bool:
            return isinstance(one, gloo)  # torch gives out its own class for a group that it holds

    class KnownGloo(gloo, metaclass=IsOfGloo):  # type: ignore[misc]  # torch's stubs do not know it
        is_known = True

        def __init__(self, store: Any, rank: int, size: int, timeout: timedelta) -> None:
            if _group is None or _group.is_forming:
                self._connect(store, rank, size, timeout)
                return
            with _group.beside(store, rank, size, timeout) as limit:
                self._connect(store, rank, size, limit)
            self._set_default_timeout(timeout)

        def _connect(self, *where: Any) -> None:
            if can_be_told:
                how = options()
                how._devices, how._timeout, how._threads = _devices(gloo), where[-1], 1
                where = (*where[:-1], how)
            super().__init__(*where)

    c10d.ProcessGroupGloo = KnownGloo


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


def shut(sockets: AbstractSet[tuple[int, int]]) -> None:
    """End these connections for all who hold them, forked loaders too; closed ones are nobody's."""
    for fd, inode in sockets:
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(fd)) as one:
            if os.fstat(one.fileno()).st_ino == inode:
                one.shutdown(socket.SHUT_RDWR)
