"""How many workers, where: ``--worker_num``, ``--nproc-per-node``, rank table and machine give one answer.

One node is supervised for now; everything that means several says "not yet" here.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from faultrun.cli.options.option import Option
from faultrun.cli.options.settings import Settings
from faultrun.cli.options.values import MOST_WORKERS, whole
from faultrun.cli.resolve.context import ResolveContext
from faultrun.cli.resolve.platform import FinishedTable, allotted, own_server, read_rank_table, servers
from faultrun.errors import FaultrunError
from faultrun.model.spec import Framework, Simulation
from faultrun.platforms import local
from faultrun.platforms.rank_table import node_names, seen_devices

_MSRUN_PER_NODE = 8
_MSRUN_MOST_SIMULATED = 128

_ONE_NODE = "one faultrun supervises one node for now"
_INSTEAD = "one node with --nnodes=1; for several keep torchrun or msrun, restarted by the job's own policy"


@dataclass(frozen=True, slots=True, kw_only=True)
class Workers:
    """``local`` workers are started here, of a world of ``world`` (more only in MindSpore's dry run).

    ``devices`` are their device numbers where a rank table gives them.
    """

    world: int
    local: int
    simulation: Simulation | None
    devices: tuple[int, ...] = ()


def resolve_workers(ctx: ResolveContext, framework: Framework) -> Workers:
    """Settle world size and local size; raises UsageError (ConfigError) when they contradict each other."""
    settings = ctx.settings
    if settings.nnodes > 1:
        raise _not_yet(settings, Settings.nnodes, f"this asks for {settings.nnodes}")
    table = read_rank_table(ctx)
    here = _local_count(ctx)
    world = settings.worker_num
    if world is None:
        world = _world_of_platform(ctx, framework, table) or _default_world(ctx, here)
    elif table is not None and table.content.world_size != world:
        ctx.note(f"{table.where} names {table.content.world_size} devices, --worker_num={world} wins")
    simulation = _simulation(ctx, framework, world)
    if simulation is not None:
        return _simulated(ctx, simulation, here or simulation.world_size)
    _check_one_node(ctx, table, world, here)
    if here is None and settings.gave(Settings.worker_num) and world > _MSRUN_PER_NODE:
        ctx.note(f"all {world} workers run on this node (msrun takes {_MSRUN_PER_NODE} per node unless told)")
    count = world if here is None else here
    return Workers(world=world, local=count, simulation=None, devices=_devices(ctx, table, count))


def _devices(ctx: ResolveContext, table: FinishedTable | None, count: int) -> tuple[int, ...]:
    """What the table gives to this node, if that is what is started here."""
    server = own_server(table.content, ctx.process) if table is not None else None
    if server is None or len(server.places) != count:
        return ()
    return seen_devices(server.devices, ctx.environ, ctx.process.root / "dev")


def _check_one_node(ctx: ResolveContext, table: FinishedTable | None, world: int, here: int | None) -> None:
    settings = ctx.settings
    if here is None:
        if table is not None and len(table.content.servers) > 1:
            asked = f"{table.where} names {len(table.content.servers)} servers"
            raise _not_yet(settings, Settings.rank_table_file, asked)
        if settings.node_rank > 0:
            raise _not_yet(settings, Settings.node_rank, f"node {settings.node_rank} is not the only one")
        return
    own = settings.gave(Settings.local_worker_num)
    option: Option[Any] = Settings.local_worker_num if own else Settings.nproc_per_node
    if here > world:
        because = f"it asks for {here} workers on this node, and the whole run has {world}"
        raise settings.refuse(option, because, f"--worker_num={here}, or --local_worker_num={world}")
    if here < world:
        raise _not_yet(settings, option, f"{here} of {world} workers here means several")
    if settings.node_rank > 0:
        ctx.no_effect("all workers run on this node", Settings.node_rank)


def _not_yet(settings: Settings, option: Option[Any], asked: str) -> FaultrunError:
    return settings.refuse(option, f"not yet: {_ONE_NODE}, and {asked}", _INSTEAD)


def _local_count(ctx: ResolveContext) -> int | None:
    given = ctx.settings.local_worker_num
    per_node = ctx.settings.read(Settings.nproc_per_node, lambda text: _per_node(text, ctx.environ))
    if given is not None and per_node is not None and given != per_node:
        because = f"--nproc-per-node says {per_node}"
        raise ctx.settings.refuse(Settings.local_worker_num, because, "one of the two")
    return per_node if given is None else given


def _per_node(text: str, environ: Mapping[str, str]) -> int:
    """A number, or torchrun's words for what the machine has."""
    match text.strip():
        case "cpu":
            return local.processor_count()
        case "gpu" | "npu" as kind:
            found = local.accelerators_of(kind, environ)
            if found is None:
                raise ValueError(f"no {kind} is visible on this machine")
            return found.count
        case "auto":
            kinds = (local.accelerators_of(kind, environ) for kind in ("npu", "gpu"))
            return next((found.count for found in kinds if found), local.processor_count())
        case "xpu":
            raise ValueError("xpu devices can only be counted by torch, which the launcher does not import")
        case number:
            return whole(1, MOST_WORKERS)(number)


def _world_of_platform(ctx: ResolveContext, framework: Framework, table: FinishedTable | None) -> int | None:
    """What the rank table, else the Ascend Operator, says; several nodes are refused, with our place."""
    if table is not None:
        ctx.note(f"{table.content.world_size} workers, as {table.where} says")
        return table.content.world_size
    nodes = servers(ctx)
    several = ""
    if len(nodes) > 1:
        names = node_names(ctx.environ)
        mine = next((f", of which this is number {at}" for at, ip in enumerate(nodes) if ip in names), "")
        several = f"the platform's serverList names {len(nodes)} nodes{mine}"
    asked = None if several else allotted(ctx, framework)
    if asked is not None and asked.local == 0:
        several = f"{asked.source} makes this the pod of a scheduler for workers elsewhere"
    elif asked is not None and asked.local < asked.world:
        several = f"{asked.source} mean several, of which this is number {asked.node_rank}"
    if several:
        raise _not_yet(ctx.settings, Settings.nnodes, several)
    if asked is None:
        return None
    ctx.note(f"{asked.world} workers, as {asked.source} say")
    return asked.world


def _default_world(ctx: ResolveContext, here: int | None) -> int:
    if here is not None:
        return here
    visible = local.visible_accelerators(ctx.environ)
    if visible is not None and visible.count:
        ctx.note(f"{visible.count} workers, as {visible.source} says")
        return visible.count
    ctx.note("1 worker: no --worker_num, rank table or visible accelerator says more")
    return 1


def _simulation(ctx: ResolveContext, framework: Framework, world: int) -> Simulation | None:
    """MindSpore's dry run, from ``--sim_level`` or from MS_SIMULATION_LEVEL as msrun takes it."""
    level, rank = ctx.settings.sim_level, ctx.settings.sim_rank_id
    inherited, size, own = (
        _digits(ctx.environ.get(name, "")) for name in ("MS_SIMULATION_LEVEL", "RANK_SIZE", "RANK_ID")
    )
    if level == -1 and inherited is not None:
        level, world = inherited, size or world
    if level == -1:
        ctx.no_effect("--sim_level asks for no dry run", Settings.sim_rank_id)
        return None
    if framework is not Framework.MINDSPORE:
        because = f"only MindSpore has dry runs, and this is {framework.value}"
        ctx.no_effect(because, Settings.sim_level)
        return None
    single = own if rank == -1 else rank
    if single is not None and single >= world:
        hint = f"--sim_rank_id={world - 1}"
        raise ctx.settings.refuse(Settings.sim_rank_id, f"the run has ranks 0 to {world - 1}", hint)
    return Simulation(level=level, rank=single, world_size=world)


def _digits(text: str) -> int | None:
    return int(text) if text.isdigit() else None


def _simulated(ctx: ResolveContext, simulation: Simulation, here: int) -> Workers:
    world = simulation.world_size
    if here > world:
        because = f"it asks for {here} workers on this node, and the whole run has {world}"
        raise ctx.settings.refuse(Settings.local_worker_num, because, f"--local_worker_num={world}")
    if simulation.rank is None and here > _MSRUN_MOST_SIMULATED:
        ctx.note(f"the dry run starts rank 0 only: {here} processes are more than this machine should bear")
        simulation = replace(simulation, rank=0)
    return Workers(world=world, local=here if simulation.rank is None else 1, simulation=simulation)
