"""Which device belongs to which local rank, and which rank table the workers get."""

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from faultrun.core.humanize import rank_names, several
from faultrun.errors import ConfigError, FaultrunError
from faultrun.files import replace_whole
from faultrun.model.plan import Plan
from faultrun.model.spec.run_spec import RunSpec
from faultrun.model.topology import Topology
from faultrun.platforms.rank_table.rank_table import (
    RankTable,
    Server,
    node_names,
    parse_rank_table,
    read_rank_table,
    seen_devices,
)
from faultrun.platforms.rank_table.subset import smaller_table
from faultrun.platforms.rank_table.wait import Awaited, NotFinished, Patience, await_file
from faultrun.platforms.untrusted_files import Unfinished

_T = TypeVar("_T")

_DEV = Path("/dev")


class Abandoned(FaultrunError):
    """The run ended while a start waited for something."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    """A table, this node's server of it, and its bytes."""

    table: RankTable
    server: Server
    content: bytes


class DeviceAssignment:
    """Which device belongs to which local rank: the rank table, looked at again before every start.

    A platform that resets a device or places a job anew writes the table again; what
    it said at the first start need not be so at the next. Of several nodes, HCCL finds the ranks of a node by
    the table and we by the plan, so both must say the same: a node that has got another's place waits
    until the platform has written it into the table. Where slots were set aside or nodes are missing, workers
    get a table without their devices, in ``folder``, unless the platform has written such a one itself.
    ``look`` runs in the helper thread and may wait; ``abandon`` ends that wait, and every ``pause``.
    """

    def __init__(
        self, spec: RunSpec, environ: Mapping[str, str], say: Callable[[str], None], folder: Path
    ) -> None:
        self.table = ""
        self._whole = b""
        self._folder, self._spec, self._environ = folder, spec, environ
        self._say = say
        self._abandoned = threading.Event()

    def look(self, plan: Plan) -> tuple[int, ...]:
        """The device of each local rank; empty when no rank table decides it.

        Raises NotFinished (69) when the table is not finished in time, or
        gives this node other devices or ranks than the run does, ConfigError when it is wrong.
        """
        self.table = ""
        path, elastic = self._spec.rendezvous.rank_table_file, self._spec.elastic
        if path and elastic is not None and elastic.fixed_seats:
            return self._by_seat(path, plan)
        return self._of_this_size(path, plan.topology)

    def _by_seat(self, path: str, plan: Plan) -> tuple[int, ...]:
        """Find this node's devices by its seat in the rank table of all nodes, of which fewer may run.

        A platform that places a pod anew has no table meanwhile. Rows of nodes that stayed are the same
        in the one before, so the rows are not waited for of nodes that have gone.
        """
        seats, names, every = plan.topology, node_names(self._environ), self._spec.topology.world_size
        each = seats.nodes[0].slots
        left = [number * each + local for number in plan.seat_numbers for local in range(each)]
        own = seats.ranks_of(self._spec.node)

        def parse(content: bytes) -> _Seen:
            table = parse_rank_table(content)
            if table.world_size not in (every, seats.world_size):
                raise Unfinished(f"it names {several(table.world_size, 'rank')}, and the run has {every}")
            smaller = table.world_size == seats.world_size
            server = _server_with(table, names, own if smaller else [left[rank] for rank in own])
            return _Seen(table=table, server=server, content=content)

        if len(left) < every and self._whole and _is_being_written(path):
            self._say(f"the rank table {path} is being written; its rows of who is left stand as they were")
            seen = parse(self._whole)
        else:
            seen = self._awaited(path, parse)
        if seen.table.world_size == every:
            self._whole = seen.content
        if seen.table.world_size != seats.world_size:
            self.table = self._without(seen.content, left, f"of_{len(seats.nodes)}_nodes")
        return seen_devices(seen.server.devices, self._environ, _DEV)

    def _awaited(self, path: str, parse: Callable[[bytes], _T]) -> _T:
        wait_s = self._spec.rendezvous.rank_table_wait_s
        patience = Patience(within_s=wait_s, pause=self.pause, say=self._say)
        try:
            return await_file(Awaited(what="rank table", parse=parse), path, patience)
        except ValueError as error:
            raise _unusable(path, error) from None

    def _of_this_size(self, path: str, seats: Topology) -> tuple[int, ...]:
        names = node_names(self._environ)
        several_nodes = len(seats.nodes) > 1 and bool(names)
        if not path or not (self._spec.devices or several_nodes):
            return self._spec.devices

        def parse(content: bytes) -> tuple[RankTable, bytes]:
            table = parse_rank_table(content)
            if several_nodes and table.world_size == seats.world_size:
                _server_with(table, names, seats.ranks_of(self._spec.node))
            return table, content

        patience = Patience(within_s=self._spec.rendezvous.rank_table_wait_s, pause=self.pause, say=self._say)
        try:
            table, content = await_file(Awaited(what="rank table", parse=parse), path, patience)
            if not self._spec.devices and table.world_size != seats.world_size:
                return ()
            server = table.server_of(names)
            devices = seen_devices(server.devices, self._environ, _DEV)
        except ValueError as error:
            if not self._spec.devices:
                return ()  # it is handed on unread, as was said at the start
            raise _unusable(path, error) from None
        seat = seats.nodes[seats.node_rank(self._spec.node)]
        if seat.places and len(devices) == seat.slots:
            return devices
        self._check_size(path, table, devices)
        if not seat.places:
            return devices
        left = [server.ranks[slot] for slot in seat.places]
        self.table = self._without(content, left, f"of_{'_'.join(map(str, left))}")
        return tuple(devices[slot] for slot in seat.places)

    def _without(self, content: bytes, left: Sequence[int], name: str) -> str:
        """The path of a table with the ranks ``left`` alone."""
        path = self._folder / f"rank_table_{name}.json"
        replace_whole(path, smaller_table(content, left))
        return str(path.absolute())

    def abandon(self) -> None:
        """Wait no longer: the answer is not needed any more."""
        self._abandoned.set()

    def _check_size(self, path: str, table: RankTable, devices: tuple[int, ...]) -> None:
        """In-place restarts keep the world; another one is for a new pod to begin with."""
        if len(devices) == len(self._spec.devices or devices):
            return
        raise NotFinished(
            f"the rank table {path} is another run's",
            because=f"it now gives this node {len(devices)} of {table.world_size} ranks, "
            f"and the run has {len(self._spec.devices)} workers here",
            hint="start the job anew: a run does not change its size",
        )

    def pause(self, seconds: float) -> None:
        """Wait, for whatever a start needs; Abandoned once the run has ended."""
        if self._abandoned.wait(seconds):
            raise Abandoned("abandoned", because="the run has ended", hint="")


def _server_with(table: RankTable, names: Collection[str], ranks: Sequence[int]) -> Server:
    """The server of these ``names``, once the table gives it exactly these ``ranks``: Unfinished until then.

    Where nothing is named, there (2.0) or here, it is the node that has them.
    """
    named = any(server.names for server in table.servers) and bool(names)
    given = next(
        (one for one in table.servers if (one.names & set(names) if named else one.ranks == tuple(ranks))),
        None,
    )
    if given is None:
        who = f"this node ({' '.join(names)}), which" if named else "one that"
        raise Unfinished(f"none of its servers is {who} has {rank_names(ranks)}")
    if given.ranks != tuple(ranks):
        raise Unfinished(f"it gives this node {rank_names(given.ranks)}, and the run {rank_names(ranks)}")
    return given


def _is_being_written(path: str) -> bool:
    """Whether the platform has no finished table now."""
    try:
        read_rank_table(path)
    except (OSError, Unfinished):
        return True
    except ValueError:
        return False
    return False


def _unusable(path: str, error: ValueError) -> ConfigError:
    hint = "it was right when the run began: the platform's controller logs say what changed"
    return ConfigError(f"the rank table {path} cannot be used", because=str(error), hint=hint)
