"""How many workers, on how many nodes: the options, the platform and the machine give one answer."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from faultrun.cli.options.choices import none_of
from faultrun.cli.options.option import Option
from faultrun.cli.options.settings import Settings
from faultrun.cli.options.values import MOST_WORKERS, whole
from faultrun.cli.resolve.context import ResolveContext
from faultrun.cli.resolve.nodes_job import Job, job_of_platform
from faultrun.cli.resolve.platform import FinishedTable, own_server, read_rank_table
from faultrun.model.spec.run_spec import Framework, Simulation
from faultrun.platforms import this_machine
from faultrun.platforms.rank_table.rank_table import seen_devices

_MSRUN_PER_NODE = 8
_MSRUN_MOST_SIMULATED = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class Workers:
    """``local`` workers on each of ``nodes``, a world of ``world`` (MindSpore's dry run starts fewer).

    ``devices`` are the device numbers of those here, where a rank table gives them. ``job`` is what the
    platform says of the nodes.
    """

    world: int
    local: int
    simulation: Simulation | None
    nodes: int = 1
    devices: tuple[int, ...] = ()
    job: Job | None = None


def resolve_workers(ctx: ResolveContext, framework: Framework) -> Workers:
    """Settle nodes, world size and local size; UsageError (ConfigError) when they contradict each other."""
    settings = ctx.settings
    table = read_rank_table(ctx)
    here = _local_count(ctx)
    job = job_of_platform(ctx, framework, table)
    nodes, local_size = _sizes(ctx, job, table, here)
    world = nodes * local_size if nodes > 1 else settings.worker_num or local_size
    if (simulation := _simulation(ctx, framework, world)) is not None:
        ctx.no_effect("a dry run needs no other node", Settings.nnodes)
        return _simulated(ctx, simulation, here or simulation.world_size)
    _check_place(ctx, nodes, here)
    if nodes == 1 and here is None and settings.gave(Settings.worker_num) and world > _MSRUN_PER_NODE:
        ctx.note(f"all {world} workers run on this node (msrun would start {_MSRUN_PER_NODE} per node)")
    devices = _devices(ctx, table, local_size)
    return Workers(world=world, local=local_size, simulation=None, nodes=nodes, devices=devices, job=job)


def _devices(ctx: ResolveContext, table: FinishedTable | None, count: int) -> tuple[int, ...]:
    """What the table gives to this node, if that is what is started here."""
    server = own_server(table.content, ctx.process) if table is not None else None
    if server is None or len(server.places) != count:
        return ()
    return seen_devices(server.devices, ctx.environ, ctx.process.root / "dev")


def _sizes(
    ctx: ResolveContext, job: Job | None, table: FinishedTable | None, here: int | None
) -> tuple[int, int]:
    """How many nodes, and workers on each."""
    settings, world = ctx.settings, ctx.settings.worker_num
    if settings.nnodes > 1:
        return _asked_nodes(ctx, job, here)
    if world is None:
        if job is not None:
            return _as_the_job_says(ctx, job, here)
        return 1, _visible(ctx) if here is None else here
    if table is not None and table.content.world_size != world:
        ctx.note(f"{table.where} names {table.content.world_size} devices, --worker_num={world} wins")
    if here is not None:
        return _shared_out(ctx, world, here), here
    if table is None or job is None or job.nodes == 1:
        return 1, world
    if world != job.world:
        because = f"{job.source} names {job.nodes} servers with {job.local} devices each"
        hint = f"--local_worker_num={world} for this node alone, or no --worker_num"
        raise settings.refuse(Settings.worker_num, because, hint)
    return _several(ctx, job.nodes), world // job.nodes


def _asked_nodes(ctx: ResolveContext, job: Job | None, here: int | None) -> tuple[int, int]:
    """``--nnodes`` says how many; the rest says how many workers each of them has."""
    settings, nodes, world = ctx.settings, ctx.settings.nnodes, ctx.settings.worker_num
    if settings.standalone:
        because = f"--nnodes={nodes} asks for {nodes} nodes, and --standalone for one"
        raise settings.refuse(Settings.standalone, because, "leave one of the two out")
    if here is None and world is not None:
        if world % nodes:
            because = f"{world} workers cannot be shared out evenly to {nodes} nodes"
            raise settings.refuse(Settings.worker_num, because, f"--worker_num={world - world % nodes}")
        here = world // nodes
    if here is None:
        here = job.local if job is not None and job.local else _visible(ctx, " on each node")
    if world is not None and world != nodes * here:
        because = f"{nodes} nodes with {here} workers each have {nodes * here}"
        raise settings.refuse(Settings.worker_num, because, f"--worker_num={nodes * here}")
    return nodes, here


def _as_the_job_says(ctx: ResolveContext, job: Job, here: int | None) -> tuple[int, int]:
    if job.local is not None and here is not None and here != job.local:
        because = f"{job.source} {job.verb} {job.local} for this node"
        raise ctx.settings.refuse(_own_count(ctx), because, f"--worker_num={here} too, for this node alone")
    each = here or job.local
    if each is None:
        return _several(ctx, job.nodes), _visible(ctx, " on each node")
    ctx.note(f"{job.nodes * each} workers, as {job.source} {job.verb}")
    return _several(ctx, job.nodes), each


def _shared_out(ctx: ResolveContext, world: int, here: int) -> int:
    """How many nodes it takes."""
    settings = ctx.settings
    if here > world:
        because = f"it asks for {here} workers on this node, and the whole run has {world}"
        raise settings.refuse(_own_count(ctx), because, f"--worker_num={here}, or --local_worker_num={world}")
    if world % here:
        because = f"{world} workers cannot be shared out to nodes with {here} each"
        raise settings.refuse(_own_count(ctx), because, f"--worker_num={world - world % here}")
    return _several(ctx, world // here)


def _several(ctx: ResolveContext, nodes: int) -> int:
    """Return ``nodes``, or refuse several where one node was asked for."""
    settings = ctx.settings
    for option, hint in ((Settings.nnodes, f"--nnodes={nodes}"), (Settings.standalone, "leave it out")):
        if nodes > 1 and settings.gave(option):
            raise settings.refuse(option, f"the workers are those of {nodes} nodes", hint)
    return nodes


def _own_count(ctx: ResolveContext) -> Option[Any]:
    own = ctx.settings.gave(Settings.local_worker_num)
    return Settings.local_worker_num if own else Settings.nproc_per_node


def _check_place(ctx: ResolveContext, nodes: int, here: int | None) -> None:
    settings = ctx.settings
    rank = settings.node_rank
    if nodes > 1 or rank is None:
        return
    if here is None and rank > 0:
        because = f"node {rank} is one of several, and all workers would run on this one"
        raise settings.refuse(Settings.node_rank, because, "--nnodes=N, or msrun's --local_worker_num=N")
    if rank > 0:
        ctx.no_effect("all workers run on this node", Settings.node_rank)


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
            return this_machine.processor_count()
        case "gpu" | "npu" as kind:
            if (found := this_machine.accelerators_of(kind, environ)) is None:
                raise ValueError(f"no {kind} is visible on this machine")
            return found.count
        case "auto":
            kinds = (this_machine.accelerators_of(kind, environ) for kind in ("npu", "gpu"))
            return next((found.count for found in kinds if found), this_machine.processor_count())
        case "xpu":
            raise ValueError("xpu devices can only be counted by torch, which the launcher does not import")
        case word if word.isalpha():
            raise ValueError(none_of(word, ("auto", "cpu", "gpu", "npu")))
        case number:
            return whole(1, MOST_WORKERS)(number)


def _visible(ctx: ResolveContext, where: str = "") -> int:
    """One worker for each accelerator that this process sees."""
    visible = this_machine.visible_accelerators(ctx.environ)
    if visible is not None and visible.count:
        ctx.note(f"{visible.count} workers{where}, as {visible.source} says")
        return visible.count
    ctx.note(f"1 worker{where}: no --worker_num given, no rank table and no visible accelerator found")
    return 1


def _simulation(ctx: ResolveContext, framework: Framework, world: int) -> Simulation | None:
    """MindSpore's dry run, from ``--sim_level`` or from MS_SIMULATION_LEVEL as msrun takes it."""
    level, rank = ctx.settings.sim_level, ctx.settings.sim_rank_id
    told = (ctx.environ.get(name, "") for name in ("MS_SIMULATION_LEVEL", "RANK_SIZE", "RANK_ID"))
    inherited, size, own = (int(text) if text.isdigit() else None for text in told)
    if level == -1 and inherited is not None:
        level, world = inherited, size or world
    if level == -1:
        ctx.no_effect("--sim_level asks for no dry run", Settings.sim_rank_id)
        return None
    if framework is not Framework.MINDSPORE:
        ctx.no_effect(f"only MindSpore has dry runs, and this is {framework.value}", Settings.sim_level)
        return None
    single = own if rank == -1 else rank
    if single is not None and single >= world:
        hint = f"--sim_rank_id={world - 1}"
        raise ctx.settings.refuse(Settings.sim_rank_id, f"the run has ranks 0 to {world - 1}", hint)
    return Simulation(level=level, rank=single, world_size=world)


def _simulated(ctx: ResolveContext, simulation: Simulation, here: int) -> Workers:
    world = simulation.world_size
    if here > world:
        because = f"it asks for {here} workers on this node, and the whole run has {world}"
        raise ctx.settings.refuse(Settings.local_worker_num, because, f"--local_worker_num={world}")
    if simulation.rank is None and here > _MSRUN_MOST_SIMULATED:
        ctx.note(f"MindSpore's dry run starts rank 0 only: {here} processes are too many for one machine")
        simulation = replace(simulation, rank=0)
    return Workers(world=world, local=here if simulation.rank is None else 1, simulation=simulation)
