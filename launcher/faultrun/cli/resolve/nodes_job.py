"""What the cluster's platform says of a job's nodes: how many, with how many workers, and which this one is.

A rank table comes before the list of servers, and that before the Ascend Operator's variables.
"""

from dataclasses import dataclass

from faultrun.cli.options.settings import Settings
from faultrun.cli.resolve.context import ResolveContext
from faultrun.cli.resolve.platform import FinishedTable, allotted, own_server, server_list_path, servers
from faultrun.model.spec.run_spec import Framework
from faultrun.platforms.rank_table.rank_table import node_names
from faultrun.platforms.this_machine import is_address


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """``nodes`` of ``local`` workers each (None: it does not count them), this being the ``node_rank``-th.

    ``leader`` is the host of the first one, with or without a port, if known. ``source`` is who says so.
    """

    nodes: int
    local: int | None
    node_rank: int | None = None
    leader: str = ""
    source: str
    verb: str = "says"

    @property
    def world(self) -> int | None:
        """Workers of the whole job."""
        return None if self.local is None else self.nodes * self.local


def job_of_platform(ctx: ResolveContext, framework: Framework, table: FinishedTable | None) -> Job | None:
    """What is known; None outside of any platform. UsageError where what it says cannot be."""
    if table is not None:
        return _of_table(ctx, table)
    nodes, asked = servers(ctx), allotted(ctx, framework)
    if asked is not None and asked.local == 0:
        because = (
            f"{asked.source} makes this the pod of a scheduler, and faultrun starts that with the workers"
        )
        raise ctx.settings.refuse(Settings.worker_num, because, "a job without a pod for the scheduler")
    if len(nodes) > 1:
        names = node_names(ctx.environ)
        return Job(
            nodes=len(nodes),
            local=None if asked is None else asked.local,
            node_rank=next((at for at, ip in enumerate(nodes) if ip in names), None),
            leader=nodes[0],
            source=server_list_path(ctx.process),
        )
    if asked is None:
        return None
    if asked.world % asked.local:
        because = f"{asked.source}: {asked.world} workers cannot be shared out to nodes with {asked.local}"
        raise ctx.settings.refuse(Settings.worker_num, because, f"--worker_num={asked.local}")
    return Job(
        nodes=asked.world // asked.local,
        local=asked.local,
        node_rank=asked.node_rank,
        leader=asked.leader,
        source=asked.source,
        verb="say",
    )


def _of_table(ctx: ResolveContext, table: FinishedTable) -> Job:
    known, own = table.content.servers, own_server(table.content, ctx.process)
    size = len(known[0].places)
    for at, server in enumerate(known):
        if server.ranks != tuple(range(at * size, (at + 1) * size)):
            because = f"{table.where} does not give the ranks of a server in a row"
            hint = "a table with ranks 0 1 2 ... by server"
            raise ctx.settings.refuse(Settings.rank_table_file, because, hint)
    leader = min(known[0].names, key=lambda name: (not is_address(name), name), default="")
    node_rank = None if own is None else known.index(own)
    return Job(nodes=len(known), local=size, node_rank=node_rank, leader=leader, source=table.where)
