"""The rendezvous of MindSpore's workers as a state machine: requests in, answers out. No socket, no clock.

The scheduler process of MindSpore answers at once, and its workers then sleep for seconds between questions
whose answer was "not yet" (3-5 s between heartbeats, 3 s for the address of a peer). Here an answer that
would say "not yet" is held until it can be given:

* a registration, until every rank has registered: every rank's first heartbeat then says "complete";
* the reading of a peer's address (``MCCL_COLLECTIVE_RANK_...``), until that peer has written it;
* a departure, until every rank departs or has ended: no rank takes the last acknowledgement of a
  collective with it.

Workers bound each of these waits themselves and ask again. What is not
understood raises NotUnderstood, and the cluster is of no more use.
"""

import json
from dataclasses import dataclass

from faultrun.frameworks.mindspore_wire import Name, NotUnderstood, SchedulerRequest, write_fields

_WORKER = "MS_WORKER"
_ADDRESS = b"MCCL_COLLECTIVE_RANK_"
_COMPLETE = 1
_MAX_KEYS, _MAX_BYTES = 100_000, 1 << 24
_ADDRESSES_A_RANK = 16
_LONGEST_HOST, _LONGEST_NODE = 256, 6


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerAnswer:
    """What to send to the connection called ``link``."""

    link: int
    name: Name
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class _Member:
    link: int
    host: str


class MindSporeCluster:
    """One life of a group of ``size`` workers on one node. ``link`` is whatever number a connection has.

    A group in which every rank departed may register anew.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._begin()

    def _begin(self) -> None:
        self._members: dict[int, _Member] = {}
        self._rank_of: dict[int, int] = {}
        self._leaving: dict[int, int] = {}
        self._gone: set[int] = set()
        self._data: dict[bytes, bytes] = {}
        self._data_bytes = 0
        self._readers: dict[bytes, dict[int, None]] = {}
        self._addresses_told = 0

    @property
    def complete(self) -> bool:
        """Whether every rank has registered."""
        return len(self._members) == self._size

    @property
    def formed(self) -> bool:
        """Whether every rank was told every rank's address: what is left of ``init()`` needs us no more."""
        return self.complete and self._addresses_told >= self._size * self._size

    @property
    def ranks(self) -> frozenset[int]:
        """Who has registered."""
        return frozenset(self._members)

    def receive(self, link: int, request: SchedulerRequest) -> list[SchedulerAnswer]:
        """What can be answered now. NotUnderstood for what no worker of ours asks."""
        key = request.key
        match request.name:
            case Name.REGISTER:
                return self._register(link, request)
            case Name.HEARTBEAT:
                return [self._alive(link, self._rank(request.node))]
            case Name.UNREGISTER:
                return self._leave(link, self._rank(request.node))
            case Name.WRITE:
                return self._write(link, key, request.value)
            case Name.READ:
                return self._read(link, key)
            case Name.DELETE:
                name = Name.FOUND if self._forget(key) else Name.MISSING
                return [SchedulerAnswer(link=link, name=name, body=write_fields({1: key}))]
            case Name.HOST_NAMES:
                return [self._host_names(link)]
            case _:
                raise NotUnderstood(f"a worker says {request.name.name}")

    def lose(self, link: int) -> list[SchedulerAnswer]:
        """A connection broke. A rank of which none is left has ended, or will register again."""
        for links in self._readers.values():
            links.pop(link, None)
        if (rank := self._rank_of.pop(link, None)) is None:
            return []
        if not self.complete and self._members[rank].link == link:
            del self._members[rank]
            self._rank_of = {other: one for other, one in self._rank_of.items() if one != rank}
        if not self.complete:
            return []
        if self._leaving.get(rank) == link:
            del self._leaving[rank]
        if rank not in self._rank_of.values():
            self._gone.add(rank)
        return self._let_go()

    def _register(self, link: int, request: SchedulerRequest) -> list[SchedulerAnswer]:
        rank = self._rank(request.node)
        if request.role != _WORKER:
            raise NotUnderstood(f"node {rank} registers as {request.role[:20]!r}")
        if len(request.host) > _LONGEST_HOST:
            raise NotUnderstood(f"node {rank} has a host name of {len(request.host)} characters")
        if len(self._gone) == self._size:
            self._begin()
        welcomed = self.complete
        self._members[rank] = _Member(link=link, host=request.host)
        self._belongs(link, rank)
        if welcomed:
            return [self._welcome(rank)]
        return [self._welcome(one) for one in sorted(self._members)] if self.complete else []

    def _welcome(self, rank: int) -> SchedulerAnswer:
        body = write_fields({1: 1, 2: rank, 3: self._size})
        return SchedulerAnswer(link=self._members[rank].link, name=Name.SUCCESS, body=body)

    def _alive(self, link: int, rank: int) -> SchedulerAnswer:
        self._belongs(link, rank)
        body = write_fields({1: 1, 2: _COMPLETE if self.complete else 0, 3: self._size})
        return SchedulerAnswer(link=link, name=Name.SUCCESS, body=body)

    def _leave(self, link: int, rank: int) -> list[SchedulerAnswer]:
        if not self.complete:
            return [SchedulerAnswer(link=link, name=Name.INCOMPLETE, body=Name.INCOMPLETE.value)]
        self._belongs(link, rank)
        self._leaving[rank] = link
        return self._let_go()

    def _belongs(self, link: int, rank: int) -> None:
        """A worker has one connection for what it must do in time, and one for the rest; either may go."""
        if rank in self._members:
            self._rank_of[link] = rank
            self._gone.discard(rank)

    def _let_go(self) -> list[SchedulerAnswer]:
        """Answer all who leave, once every rank does or is gone."""
        if len(self._leaving.keys() | self._gone) < self._size:
            return []
        leaving, self._leaving = self._leaving, {}
        self._gone.update(leaving)
        success = Name.SUCCESS
        links = (link for _, link in sorted(leaving.items()))
        return [SchedulerAnswer(link=link, name=success, body=success.value) for link in links]

    def _write(self, link: int, key: bytes, value: bytes) -> list[SchedulerAnswer]:
        writer = key.removeprefix(_ADDRESS).rpartition(b"_")[2]
        if key.startswith(_ADDRESS) and writer.isdigit() and len(writer) <= _LONGEST_NODE:
            self._belongs(link, int(writer))
        self._forget(key)
        size = self._data_bytes + len(key) + len(value)
        if size > _MAX_BYTES or len(self._data) >= _MAX_KEYS:
            raise NotUnderstood(f"more than {len(self._data)} keys or {self._data_bytes} bytes to keep")
        self._data[key] = value
        self._data_bytes = size
        return [answer for link in self._readers.pop(key, {}) for answer in self._read(link, key)]

    def _forget(self, key: bytes) -> bool:
        if (value := self._data.pop(key, None)) is None:
            return False
        self._data_bytes -= len(key) + len(value)
        return True

    def _read(self, link: int, key: bytes) -> list[SchedulerAnswer]:
        if (value := self._data.get(key)) is not None:
            self._addresses_told += key.startswith(_ADDRESS)
            return [SchedulerAnswer(link=link, name=Name.FOUND, body=write_fields({1: key, 2: value}))]
        if key.startswith(_ADDRESS):
            self._hold(link, key)
            return []
        return [SchedulerAnswer(link=link, name=Name.MISSING, body=write_fields({1: key}))]

    def _hold(self, link: int, key: bytes) -> None:
        """A worker that lost its patience asks for the same again; it waits for one answer and gets one."""
        if key not in self._readers and len(self._readers) >= _ADDRESSES_A_RANK * self._size:
            raise NotUnderstood(f"more than {len(self._readers)} addresses are asked for")
        self._readers.setdefault(key, {})[link] = None

    def _host_names(self, link: int) -> SchedulerAnswer:
        names = [self._members[rank].host for rank in sorted(self._members)] if self.complete else []
        body = json.dumps({"hostnames": names}, separators=(",", ":")).encode()
        return SchedulerAnswer(link=link, name=Name.FOUND if self.complete else Name.MISSING, body=body)

    def _rank(self, node: str) -> int:
        """The rank of a node: we gave out the numbers, so another one is not one of ours."""
        if not (node.isascii() and node.isdigit() and len(node) <= _LONGEST_NODE and int(node) < self._size):
            raise NotUnderstood(f"a node called {node[:20]!r} among {self._size}")
        return int(node)
