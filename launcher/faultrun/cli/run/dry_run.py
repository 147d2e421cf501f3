"""``--dry-run``: what a run would start, rewrite and resume from. Nothing is written or started."""

import shlex
from collections.abc import Mapping
from pathlib import Path

from faultrun.checkpoints.catalog import Catalog
from faultrun.checkpoints.find import scan_and_choose
from faultrun.checkpoints.registry import registry_for
from faultrun.checkpoints.unknown import unknown_files
from faultrun.cli.console import answer
from faultrun.cli.resolve.context import ProcessContext
from faultrun.cli.run.start_and_end import absolute
from faultrun.configs.apply import check
from faultrun.configs.argv import resume_args
from faultrun.core.recover import Chosen, Need, NoneUsable, NothingFound
from faultrun.frameworks.environment import WorkerLaunchSpec, WorkerPlacement, worker_environment
from faultrun.frameworks.mindspore import needs_scheduler, scheduler_argv
from faultrun.model.checkpoint import RecoveryPoint
from faultrun.model.plan import Ledger, Plan, Reason
from faultrun.model.spec import MsScheduler, Resume, RunSpec
from faultrun.model.topology import BootId
from faultrun.platforms.local import accelerators_of
from faultrun.supervisor.prepare import device_of, filled, values
from faultrun.supervisor.replicas import known_replicas


def show(spec: RunSpec, around: ProcessContext) -> int:
    """Print the plan on stdout; return 0, or 65 when a recovery now would find nothing whole."""
    answer(f"run {spec.run_id}: {spec.topology.world_size} workers, framework {spec.framework.value}")
    point, words, code = _recovery_point(spec)
    begins = point if spec.recovery.resume is Resume.ALWAYS else None
    if needs_scheduler(spec):
        ours = spec.rendezvous.ms_scheduler is MsScheduler.BUILTIN
        native = shlex.join(scheduler_argv(spec.command, around.python))
        answer(f"scheduler  {'builtin, in the supervisor' if ours else native}")
    for rank in spec.topology.ranks_of(spec.node):
        _show_worker(spec, _plan(spec, begins), rank, around.environ)
    answer(f"after a failure: {words}")
    for result in check(spec.recovery.rewrites, originals=Path(spec.logs.log_dir).absolute() / "original"):
        for change in result.changes:
            now = change.before or "absent"
            answer(f"    would rewrite {result.path}:{change.line}  {change.key}  (now {now})")
    if point is not None and spec.recovery.resume_args:
        answer(f"    rank 0 {shlex.join(_argv(spec, _plan(spec, point), 0))}")
    return code


def _plan(spec: RunSpec, point: RecoveryPoint | None) -> Plan:
    return Plan(
        incarnation=0,
        topology=spec.topology,
        reason=Reason.FIRST,
        point=point,
        start_at_s=0.0,
        ledger=Ledger(),
    )


def _argv(spec: RunSpec, plan: Plan, rank: int) -> tuple[str, ...]:
    args = spec.command.script_args
    if plan.point is not None:
        args = resume_args(args, filled(spec.recovery, values(plan, spec.run_id, rank)))
    return (*spec.command.prefix, *args)


def _recovery_point(spec: RunSpec) -> tuple[RecoveryPoint | None, str, int]:
    roots = spec.recovery.checkpoint_dirs
    if not roots:
        return None, "no --checkpoint_dir is given, workers begin as at first", 0
    catalog = Catalog(absolute(roots), registry=registry_for(spec.recovery))
    size = spec.topology.world_size
    need = Need(
        world_size=size,
        groups=known_replicas(spec, size).groups,
        trust=spec.recovery.trust,
        resharded=spec.recovery.resharded,
    )
    match scan_and_choose(catalog, need).choice:
        case Chosen(point=point, refused=refused):
            note = f" ({len(refused)} newer refused)" if refused else ""
            return point, f"resume from {point.path}, {point.position}{note}", 0
        case NoneUsable(refused=refused):
            newest = f": {refused[0].path} {refused[0].why}" if refused else ""
            return None, f"checkpoints exist and none is whole{newest}", 65
        case NothingFound():
            there = unknown_files(catalog.roots, catalog.registry.formats)
            note = f"; {there}" if there else ""
            return None, f"no checkpoint yet in {' '.join(roots)}, workers begin as at first{note}", 0


def _show_worker(spec: RunSpec, plan: Plan, rank: int, environ: Mapping[str, str]) -> None:
    ranks = plan.topology.ranks_of(spec.node)
    seat = WorkerPlacement(
        rank=rank,
        local_rank=ranks.index(rank),
        node_rank=plan.topology.node_rank(spec.node),
        local_world_size=len(ranks),
        device=device_of(spec.devices, ranks.index(rank)),
    )
    log_dir = Path(spec.logs.log_dir).absolute()
    life = WorkerLaunchSpec(
        boot=BootId("<random>"),
        plan=plan,
        master_addr=spec.rendezvous.master_addr,
        master_port=spec.rendezvous.port or 0,
        socket=str(log_dir / "control.sock"),
        progress_page=str(log_dir / "incarnation_0" / "progress"),
        error_dir=str(log_dir / "incarnation_0"),
        group_info_dir=str(log_dir),
        ascend=accelerators_of("npu", environ) is not None,
        builtin_scheduler=spec.rendezvous.ms_scheduler is MsScheduler.BUILTIN,
    )
    answer(f"rank {rank}     {shlex.join(_argv(spec, plan, rank))}")
    folder = spec.identity.folder_of(rank, seat.local_rank, seat.node_rank)
    if folder is not None:
        answer(f"    in {folder}")
    for name, value in sorted(worker_environment(environ, spec, seat, life).items()):
        if environ.get(name) != value:
            shown = "<fresh>" if value == "0" and name in ("MASTER_PORT", "MS_SCHED_PORT") else value
            answer(f"    {name}={shlex.quote(shown) if shown != '<fresh>' else shown}")
