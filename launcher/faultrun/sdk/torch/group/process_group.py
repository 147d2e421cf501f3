"""The process group of all ranks: made so that it can be left, and made again with the same living processes.

gloo has no abort: ``shutdown(2)`` on the group's own connections frees a rank that waits in a collective
within milliseconds, dead or stopped peer alike. Never on a listening socket: gloo's thread ends the process
when ``accept`` fails. A newcomer begins with torch's "fake" group, whose collectives do nothing: a script
builds its model and comes to its first step without peers.
"""

import contextlib
import os
import sys
import weakref
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.modules.module import register_module_module_registration_hook
from torch.nn.parallel import DistributedDataParallel

from faultrun.errors import CannotNow
from faultrun.sdk.stay.next_group import Join
from faultrun.sdk.stay.rank_places import RankPlaces
from faultrun.sdk.torch.group.empty_places import ScriptMeetings, why_no_places, with_places
from faultrun.sdk.torch.group.group_store import open_store
from faultrun.sdk.torch.group.tcp_connections import connections, shut
from faultrun.sdk.torch.repair.torch_npu import npu
from faultrun.sdk.worker.worker import worker

_MEET_S = 10.0
"""To connect all to all, once every rank has come: a death in these milliseconds is waited for so long."""
_GLOO_WAITS = 5
"""So many times its timeout gloo waits for a first connection."""
_ABORTABLE = frozenset({"gloo", "nccl"})
_HCCL = "hccl"
_FAKE = "fake"
_RENDEZVOUS = frozenset({"init_method", "store", "rank", "world_size"})


def meetings() -> int:
    """A number that grows with each collective that this rank begins, in any group of torch's."""
    if not dist.is_initialized():
        return 0
    with contextlib.suppress(RuntimeError):  # of a backend that does not count
        return sum(one._get_sequence_number_for_group() for one in dist.distributed_c10d._world.pg_map)
    return 0


class TrainingGroup:
    """torch's default group of one process, in all its incarnations. ``how``: as the script made it."""

    def __init__(self, backend: str, how: dict[str, Any]) -> None:
        self.backend, self._how = backend, how
        self._store: Any = None
        self._before: set[tuple[int, int]] | None = connections()
        self._own: frozenset[tuple[int, int]] = frozenset()
        self._forms_within: timedelta | None = None
        self.failed: Exception | None = None
        """What a collective has raised last, whether the script has caught it or not."""
        self._level: Any = dist.get_debug_level()
        """How much torch itself checks, which a group that does nothing cannot have."""
        self._over_it: weakref.WeakKeyDictionary[Any, None] = weakref.WeakKeyDictionary()
        self.places = RankPlaces(0)
        """The places of its ranks, some of which may be empty."""
        self.meetings: ScriptMeetings | None = None
        """What the script's ranks do in it; None where it is not watched, for no place may be empty."""

    @property
    def ddps(self) -> list[Any]:
        """Each DistributedDataParallel that lives, in the order in which they were made: on all ranks alike.

        Also those that the script has not given to ``protect``, or has put into a module of its own.
        """
        return [*self._over_it]

    def sees_ddp(self) -> None:
        """From here on it is seen when a script puts a model into a DistributedDataParallel."""

        def seen(module: Any, name: str, _inner: object) -> None:
            if isinstance(module, DistributedDataParallel) and name == "module":
                self._over_it[module] = None

        register_module_module_registration_hook(seen)

    def init(self, backend: str | None, **how: Any) -> None:
        """Have torch make it. RuntimeError."""
        if self.meetings is None:
            dist.init_process_group(backend, **how)
        else:
            with with_places():
                dist.init_process_group(backend, **how)
            made: Any = dist.group.WORLD
            self.places = RankPlaces(made.size(), self.places.missing)
            made.places, made.meetings = self.places, self.meetings
        self.settled()

    def numbered(self, rank: int, size: int) -> tuple[int, int]:
        """What a backend is told of a group of so many: in that of the world only the members count."""
        places = self.places
        if not places.missing or size != places.world:
            return rank, size
        return places.number(rank), len(places.members)

    def settled(self) -> None:
        """All is connected: what was opened meanwhile belongs to the group."""
        self._own |= connections() - (self._before or set())
        self._before = self._forms_within = None

    @contextlib.contextmanager
    def connecting(self, store: Any, rank: int, world: int, timeout: timedelta) -> Iterator[timedelta]:
        """A group of gloo is formed in it: the timeout that it connects with, which is then ``timeout``.

        Of some ranks beside that of all: what it opens goes with that one. RuntimeError: one does not come.
        """
        if self._before is not None or _connects_later():
            yield timeout if self._forms_within is None else min(timeout, self._forms_within)
            return
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
        if "gloo" in self.backend and _connects_later():
            return "gloo connects as it is used (TORCH_GLOO_LAZY_INIT), and its connections are unknown"
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
        """Free the thread that waits in a collective of it, or forms it. Any thread."""
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
        self.failed = None
        resumes = self._resumes and join.all_stayed and dist.is_initialized()
        if not resumes:
            self._drop()  # a newcomer's does nothing
        session = worker().session  # type: ignore[union-attr]
        self._before = connections()
        self.places = RankPlaces(session.world_size, join.missing)
        self._store = open_store(join, _MEET_S, is_over)
        self._store.meet(session.rank, self.places.members)
        if (device := npu()) is not None:
            device.enters()
        if resumes and device is not None:
            device.resume_group()
            self.settled()
            return
        # a failed start leaves it at 1, it is part of the keys, and ranks that differ never meet
        dist.distributed_c10d._world.group_count = 0
        dist.set_debug_level(self._level)
        self._forms_within = timedelta(seconds=min(_MEET_S, join.timeout_s) / _GLOO_WAITS)
        place = {"store": self._store, "rank": session.rank, "world_size": session.world_size}
        self.init(self.backend, **place, **self._how)


_group: TrainingGroup | None = None


def training_group() -> TrainingGroup | None:
    """The one that ``init_process_group`` here has made."""
    return _group


def init_process_group(backend: str | None = None, **how: Any) -> None:
    """``torch.distributed.init_process_group``, for a script that can outlive the death of a rank.

    The same without faultrun. FaultrunError for a newcomer under a torch that has no "fake" backend.
    """
    global _group  # noqa: PLW0603 - a process has one default group
    if (this := worker()) is None or not this.session.socket:  # it would not be told of a peer
        dist.init_process_group(backend, **how)
        return
    _know_groups_of_gloo()
    c10d: Any = dist.distributed_c10d
    named = backend or str(c10d.BackendConfig(c10d.Backend("undefined")))
    _group = TrainingGroup(named, {key: one for key, one in how.items() if key not in _RENDEZVOUS})
    _hear_of_errors(_group)
    _group.sees_ddp()
    if this.session.trains_on and not why_no_places():
        _group.meetings = ScriptMeetings()
        _know_groups_of_nccl()
    if this.session.is_newcomer:
        _fake(this.session.rank, this.session.world_size)
        return
    _group.init(backend, **how)


def _hear_of_errors(group: TrainingGroup) -> None:
    """Each error of a collective is described for torch's log, where it is raised."""
    logger: Any = sys.modules.get("torch.distributed.c10d_logger")
    if (describe := getattr(logger, "_get_msg_dict", None)) is None:
        return

    def heard(*call: Any, **named: Any) -> Any:
        if isinstance(error := sys.exc_info()[1], RuntimeError):
            group.failed = RuntimeError(str(error))
        return describe(*call, **named)

    logger._get_msg_dict = heard


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
    can_be_told = hasattr(options, "_threads") and hasattr(gloo, "_set_default_timeout")

    class KnownGloo(gloo, metaclass=_also(gloo)):  # type: ignore[misc, metaclass]  # unknown to torch's stubs
        is_known = True

        def __init__(self, store: Any, rank: int, size: int, *how: Any, timeout: Any = None) -> None:
            if _group is None or how or timeout is None:  # or made by hand, and not by torch
                super().__init__(store, rank, size, *how, **({} if timeout is None else {"timeout": timeout}))
                return
            rank, size = _group.numbered(rank, size)
            told = options() if can_be_told else None
            if told is not None:  # before all meet: to look up this machine's name may take its time
                told._devices, told._threads = _devices(gloo), 1
            with _group.connecting(store, rank, size, timeout) as limit:
                if told is not None:
                    told._timeout = limit
                super().__init__(store, rank, size, timeout if told is None else told)
            if told is not None:
                self._set_default_timeout(timeout)

    c10d.ProcessGroupGloo = KnownGloo


def _know_groups_of_nccl() -> None:
    """A group of nccl has the members of the world from here on, if places are empty."""
    c10d: Any = dist.distributed_c10d
    nccl: Any = getattr(c10d, "ProcessGroupNCCL", None)
    if nccl is None or getattr(nccl, "is_known", False):
        return

    class KnownNccl(nccl, metaclass=_also(nccl)):  # type: ignore[misc, metaclass]
        is_known = True

        def __init__(self, store: Any, rank: int, size: int, *how: Any, **named: Any) -> None:
            place = (rank, size) if _group is None else _group.numbered(rank, size)
            super().__init__(store, *place, *how, **named)

    c10d.ProcessGroupNCCL = KnownNccl


def _also(kind: Any) -> Any:
    """For a class made from ``kind``: torch gives out its own class for a group that it holds."""

    class Also(type(kind)):  # type: ignore[misc]
        def __instancecheck__(cls, one: object) -> bool:
            return isinstance(one, kind)

    return Also


def _connects_later() -> bool:
    """Whether the environment has gloo connect two ranks when they first talk, and not as a group is made."""
    return os.environ.get("TORCH_GLOO_LAZY_INIT", "").lower() in {"1", "y", "yes", "t", "true", "on"}


def _devices(gloo: Any) -> list[Any]:
    """Where a group that torch makes itself would listen: at the interfaces that the environment names."""
    names = [name for name in os.environ.get("GLOO_SOCKET_IFNAME", "").split(",") if name]
    return [gloo.create_device(interface=name) for name in names] or [gloo.create_default_device()]


def _fake(rank: int, world: int) -> None:
    try:
        from torch.testing._internal.distributed.fake_pg import FakeStore  # which registers the backend

        dist.set_debug_level(dist.DebugLevel.OFF)  # until the group is formed
        dist.init_process_group(_FAKE, store=FakeStore(), rank=rank, world_size=world)
    except (ImportError, ValueError, RuntimeError) as error:
        because = f"torch {torch.__version__} has no process group that does nothing: {error}"
        hint = "train with torch 2.13 or newer, or with --on_fault=restart"
        raise CannotNow("this rank cannot take a dead one's place", because=because, hint=hint) from error


def idle_group(rank: int, world: int) -> Any:
    """A group that does nothing: a place holder where torch's objects want to hold one."""
    from torch._C._distributed_c10d import FakeProcessGroup

    group = dist.ProcessGroup(rank, world)
    made: Any = FakeProcessGroup  # torch's stubs know another one
    backend = made._create_internal(rank, world, made.Options())
    group._register_backend(torch.device("cpu"), dist.ProcessGroup.BackendType.CUSTOM, backend)
    group._set_default_backend(dist.ProcessGroup.BackendType.CUSTOM)
    return group
