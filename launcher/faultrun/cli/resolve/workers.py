"""How many workers, where: ``--worker_num``, ``--nproc-per-node``, rank table and machine give one answer.

One node is supervised for now; everything that means several says "not yet" here.
"""

import re
from dataclasses import dataclass

from faultrun.cli.options.settings import Settings
from faultrun.cli.options.values import whole
from faultrun.cli.resolve.platform import Table, allotted, own_server, rank_table, servers
from faultrun.cli.resolve.process_context import Notes, Surroundings
from faultrun.errors import FaultrunError
from faultrun.model.spec import Framework, Simulation
from faultrun.platforms import local
from faultrun.platforms.ascend_operator import Allotment
from faultrun.platforms.rank_table import node_names, seen_devices

_MOST = 1_000_000
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


def resolve_workers(settings: Settings, around: Surroundings, notes: Notes, framework: Framework) -> Workers:
    """Settle world size and local size; raises UsageError (ConfigError) when they contradict each other."""
    nodes = settings.read("nnodes", _nodes) or 1
    if nodes > 1:
        raise _not_yet(settings, "nnodes", f"this asks for {nodes}")
    table = rank_table(settings, around, notes)
    here = _local_count(settings, around)
    world = settings.read("worker_num", whole(1, _MOST))
    if world is None:
        world = _world_of_platform(settings, around, notes, framework, table) or _default_world(
            around, notes, here
        )
    elif table is not None and table.world_size != world:
        notes.add(f"{table.where} names {table.world_size} devices, --worker_num={world} wins")
    simulation = _simulation(settings, around, notes, framework, world)
    if simulation is not None:
        return _simulated(settings, notes, simulation, here or simulation.world_size)
    count = world if here is None else here
    _check_one_node(settings, notes, table, world, here)
    if here is None and "worker_num" in settings.given and world > _MSRUN_PER_NODE:
        notes.add(
            f"all {world} workers run on this node (msrun takes {_MSRUN_PER_NODE} per node unless told)"
        )
    return Workers(world=world, local=count, simulation=None, devices=_devices(table, around, count))


def _devices(table: Table | None, around: Surroundings, count: int) -> tuple[int, ...]:
    """What the table gives to this node, if that is what is started here."""
    server = own_server(table.content, around) if table is not None else None
    if server is None or len(server.places) != count:
        return ()
    return seen_devices(server.devices, around.environ, around.root / "dev")


def _check_one_node(
    settings: Settings, notes: Notes, table: Table | None, world: int, here: int | None
) -> None:
    name = "local_worker_num" if "local_worker_num" in settings.given else "nproc_per_node"
    if here is not None and here > world:
        because = f"it asks for {here} workers on this node, and the whole run has {world}"
        raise settings.refuse(name, because, f"--worker_num={here}, or --local_worker_num={world}")
    if here is not None and here < world:
        raise _not_yet(settings, name, f"{here} of {world} workers here means several")
    if here is None and table is not None and len(table.content.servers) > 1:
        raise _not_yet(
            settings, "rank_table_file", f"{table.where} names {len(table.content.servers)} servers"
        )
    node = settings.read("node_rank", whole(-1, _MOST)) or 0
    if node > 0 and here is None:
        raise _not_yet(settings, "node_rank", f"node {node} is not the only one")
    if node > 0:
        notes.no_effect("node_rank", "all workers run on this node")


def _not_yet(settings: Settings, name: str, asked: str) -> FaultrunError:
    return settings.refuse(name, f"not yet: {_ONE_NODE}, and {asked}", _INSTEAD)


def _nodes(text: str) -> int:
    """Read torchrun's ``N`` or ``MIN:MAX``, of which the larger counts."""
    match = re.fullmatch(r"(\d{1,6})(?::(\d{1,6}))?", text.strip())
    if match is None:
        raise ValueError(f"{text!r} is neither N nor MIN:MAX")
    fewest, most = int(match[1]), int(match[2] or match[1])
    if not 0 < fewest <= most:
        raise ValueError(f"{text} holds no number of nodes")
    return most


def _local_count(settings: Settings, around: Surroundings) -> int | None:
    given = settings.read("local_worker_num", whole(1, _MOST))
    per_node = settings.read("nproc_per_node", lambda text: _per_node(text, around))
    if given is not None and per_node is not None and given != per_node:
        raise settings.refuse("local_worker_num", f"--nproc-per-node says {per_node}", "one of the two")
    return given if given is not None else per_node


def _per_node(text: str, around: Surroundings) -> int:
    """A number, or torchrun's words for what the machine has."""
    match text.strip():
        case "cpu":
            return local.processor_count()
        case "gpu" | "npu" as kind:
            found = local.accelerators_of(kind, around.environ)
            if found is None:
                raise ValueError(f"no {kind} is visible on this machine")
            return found.count
        case "auto":
            kinds = (local.accelerators_of(kind, around.environ) for kind in ("npu", "gpu"))
            return next((found.count for found in kinds if found), local.processor_count())
        case "xpu":
            raise ValueError("xpu devices can only be counted by torch, which the launcher does not import")
        case number:
            return whole(1, _MOST)(number)


def _world_of_platform(
    settings: Settings, around: Surroundings, notes: Notes, framework: Framework, table: Table | None
) -> int | None:
    """What the rank table, else the Ascend Operator, says; several nodes are refused, with our place."""
    if table is not None:
        notes.add(f"{table.world_size} workers, as {table.where} says")
        return table.world_size
    nodes = servers(around, notes)
    if len(nodes) > 1:
        names = set(node_names(around.environ))
        mine = next((f", of which this is number {at}" for at, ip in enumerate(nodes) if ip in names), "")
        raise _not_yet(settings, "nnodes", f"the platform's serverList names {len(nodes)} nodes{mine}")
    asked = allotted(settings, around, framework)
    if asked is None:
        return None
    _check_allotment(settings, asked)
    notes.add(f"{asked.world} workers, as {asked.source} say")
    return asked.world


def _check_allotment(settings: Settings, asked: Allotment) -> None:
    if asked.local == 0:
        raise _not_yet(
            settings, "nnodes", f"{asked.source} makes this the pod of a scheduler for workers elsewhere"
        )
    if asked.local < asked.world:
        place = f"{asked.source} mean several, of which this is number {asked.node_rank}"
        raise _not_yet(settings, "nnodes", place)


def _default_world(around: Surroundings, notes: Notes, here: int | None) -> int:
    if here is not None:
        return here
    visible = local.visible_accelerators(around.environ)
    if visible is not None and visible.count:
        notes.add(f"{visible.count} workers, as {visible.source} says")
        return visible.count
    notes.add("1 worker: no --worker_num, rank table or visible accelerator says more")
    return 1


def _simulation(
    settings: Settings, around: Surroundings, notes: Notes, framework: Framework, world: int
) -> Simulation | None:
    """MindSpore's dry run, from ``--sim_level`` or from MS_SIMULATION_LEVEL as msrun takes it."""
    level = settings.read("sim_level", whole(-1, 3))
    rank = settings.read("sim_rank_id", whole(-1, _MOST))
    inherited = around.environ.get("MS_SIMULATION_LEVEL", "")
    if level in (None, -1) and inherited.isdigit():
        level, size = int(inherited), around.environ.get("RANK_SIZE", "")
        world = int(size) if size.isdigit() and int(size) else world
    if level is None or level == -1:
        notes.no_effect("sim_rank_id", "--sim_level asks for no dry run")
        return None
    if framework is not Framework.MINDSPORE:
        notes.no_effect("sim_level", f"only MindSpore has dry runs, and this is {framework.value}")
        return None
    own = around.environ.get("RANK_ID", "")
    if rank in (None, -1):
        rank = int(own) if own.isdigit() else None
    if rank is not None and rank >= world:
        raise settings.refuse(
            "sim_rank_id", f"the run has ranks 0 to {world - 1}", f"--sim_rank_id={world - 1}"
        )
    return Simulation(level=level, rank=rank, world_size=world)


def _simulated(settings: Settings, notes: Notes, simulation: Simulation, here: int) -> Workers:
    if here > simulation.world_size:
        because = f"it asks for {here} workers on this node, and the whole run has {simulation.world_size}"
        raise settings.refuse("local_worker_num", because, f"--local_worker_num={simulation.world_size}")
    if simulation.rank is not None:
        return Workers(world=simulation.world_size, local=1, simulation=simulation)
    if here > _MSRUN_MOST_SIMULATED:
        notes.add(f"the dry run starts rank 0 only: {here} processes are more than this machine should bear")
        alone = Simulation(level=simulation.level, rank=0, world_size=simulation.world_size)
        return Workers(world=simulation.world_size, local=1, simulation=alone)
    return Workers(world=simulation.world_size, local=here, simulation=simulation)
