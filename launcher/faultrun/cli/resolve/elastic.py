"""How far the run may shrink: ``--min_worker_num``, ``--nnodes=MIN:MAX`` beside the rest of the command."""

from faultrun.cli.options.node_addresses import fewest_nodes
from faultrun.cli.options.settings import Settings
from faultrun.cli.resolve.context import ResolveContext
from faultrun.cli.resolve.platform import fault_files, rank_table_named
from faultrun.cli.resolve.workers import Workers
from faultrun.model.exits import WorkerExitCodes
from faultrun.model.observed.elastic import Elastic, Grow
from faultrun.model.spec.run_spec import OnFault, WhileMissing


def resolve_elastic(
    ctx: ResolveContext, workers: Workers, table: str, node_rank: int | None
) -> Elastic | None:
    """None where the run keeps its size. UsageError (ConfigError) for what cannot shrink.

    ``table`` is the rank table that workers are given; empty: none. ``node_rank`` is what is known of it
    where there are several nodes.
    """
    settings = ctx.settings
    fewest = settings.min_worker_num
    if workers.nodes > 1:
        return _fewer_nodes(ctx, workers, table, node_rank)
    if fewest is None:
        for option in (Settings.grow, Settings.health_check):
            ctx.no_effect("the run keeps its size without --min_worker_num", option)
        return None
    world = workers.world
    if fewest > world:
        because = f"the run has {world} workers"
        raise settings.refuse(Settings.min_worker_num, because, f"--min_worker_num={max(1, world - 1)}")
    if table and not workers.devices:
        because = "the workers get the rank table unread, so no device can be left out of it"
        raise settings.refuse(Settings.min_worker_num, because, "leave one of the two out")
    if settings.worker_exit_codes is WorkerExitCodes.TORCHFT:
        because = "a training that recovers by itself (--worker_exit_codes=torchft) sees to its own size"
        raise settings.refuse(Settings.min_worker_num, because, "leave one of the two out")
    if workers.simulation is not None:
        ctx.no_effect("a dry run keeps its size", Settings.min_worker_num)
        return None
    check = settings.health_check or ""
    files = fault_files(settings, ctx.process)
    if settings.grow is Grow.AT_SAVE and not (check or files.fault_config or files.reset_config):
        ctx.note("workers that are left out do not come back by themselves: no --health_check is given")
    return Elastic(min_workers=fewest, grow=settings.grow, health_check=check)


def fewest_that_train(ctx: ResolveContext, workers: Workers) -> int:
    """How many ranks that live train on while others are missing, no fewer; 0: all wait."""
    settings, world = ctx.settings, workers.world
    wanted = settings.while_missing
    if wanted is None and settings.min_worker_num is not None:
        wanted = WhileMissing.TRAIN
    against = ""
    if settings.on_fault is OnFault.RESTART:
        against = "all ranks start again after a fault (--on_fault=restart)"
    elif settings.worker_exit_codes is WorkerExitCodes.TORCHFT:
        against = "a training that recovers by itself (--worker_exit_codes=torchft) sees to its own ranks"
    elif workers.nodes > 1:
        against = "on several nodes survivors wait for the newcomer"
    elif world == 1:
        against = "there is one worker"
    if against:
        ctx.no_effect(against, Settings.while_missing)
    if against or wanted is not WhileMissing.TRAIN:
        ctx.no_effect(against or "survivors wait (--while_missing=wait)", Settings.heal_timeout)
        return 0
    return settings.min_worker_num or -(-world // 2)


def _fewer_nodes(ctx: ResolveContext, workers: Workers, table: str, node_rank: int | None) -> Elastic | None:
    """Whole nodes may be missing, down to MIN of ``--nnodes=MIN:MAX``."""
    settings, nodes = ctx.settings, workers.nodes
    if settings.min_worker_num is not None:
        because = f"the workers are those of {nodes} nodes, which leave and come back as a whole"
        raise settings.refuse(Settings.min_worker_num, because, f"--nnodes={max(1, nodes - 1)}:{nodes}")
    fewest = (settings.read(Settings.nnodes, fewest_nodes) if settings.nnodes > 1 else None) or nodes
    against = _against_table(ctx, workers) if table else ""
    if settings.worker_exit_codes is WorkerExitCodes.TORCHFT:
        against = "a training that recovers by itself (--worker_exit_codes=torchft) sees to its own size"
    if fewest < nodes and against:
        ctx.note(f"--nnodes: the run needs all {nodes} nodes: {against}")
    if fewest == nodes or against:
        ctx.no_effect("the run keeps its size", Settings.grow)
        return _bad_nodes_replaced(ctx, workers, table)
    if table:
        _check_seat(ctx, workers, node_rank)
    return Elastic(
        min_workers=fewest * workers.local,
        grow=settings.grow,
        health_check=settings.health_check or "",
        min_nodes=fewest,
        fixed_seats=bool(table),
    )


def _bad_nodes_replaced(ctx: ResolveContext, workers: Workers, table: str) -> Elastic | None:
    """All nodes are needed, and a spare takes the place of one that fails again and again."""
    settings, why = ctx.settings, ""
    if settings.worker_exit_codes is WorkerExitCodes.TORCHFT:
        why = "a training that recovers by itself sees to its own nodes"
    elif table:
        why = "with a rank table each node has its own place, and without --nnodes=MIN:MAX all are needed"
    if why:
        ctx.no_effect(why, Settings.health_check)
        return None
    return Elastic(
        min_workers=workers.world, health_check=settings.health_check or "", min_nodes=workers.nodes
    )


def _against_table(ctx: ResolveContext, workers: Workers) -> str:
    """Why no node can be left out of the rank table; the same on every node, because all read the same."""
    named, job = rank_table_named(ctx.settings, ctx.process), workers.job
    if named is None or job is None or job.source != named.where:
        return "the workers get the rank table unread, so no node can be left out of it"
    if (job.nodes, job.local) == (workers.nodes, workers.local):
        return ""
    return (
        f"{job.source} names {job.nodes} servers with {job.local} devices each, and the run has "
        f"{workers.nodes} nodes with {workers.local}"
    )


def _check_seat(ctx: ResolveContext, workers: Workers, node_rank: int | None) -> None:
    """Each has to know which rows are its own: when it comes back it has them again."""
    settings, job = ctx.settings, workers.job
    assert job is not None, "the rank table was read"
    if node_rank is None:
        because = f"nothing says which server of {job.source} this node is"
        hint = f"XDL_IP or POD_IP as {job.source} has it, --node_rank=N, or --nnodes={workers.nodes}"
        raise settings.refuse(Settings.nnodes, because, hint)
    if job.node_rank is not None and node_rank != job.node_rank:
        because = f"{job.source} makes this node number {job.node_rank}"
        raise settings.refuse(Settings.node_rank, because, "leave it out: the rank table says it")
    if node_rank >= workers.nodes:
        because = f"{job.source} has servers 0 to {workers.nodes - 1}"
        raise settings.refuse(Settings.node_rank, because, f"--node_rank={workers.nodes - 1}")
