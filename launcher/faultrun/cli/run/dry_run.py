"""``--dry-run``: what a run would start, rewrite and resume from. Nothing is written or started."""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from faultrun.checkpoints.catalog import Catalog
from faultrun.checkpoints.find import scan_and_choose
from faultrun.checkpoints.formats.unrecognised import unknown_files
from faultrun.checkpoints.registry import registry_for
from faultrun.cli.console import answer
from faultrun.cli.options.choices import DryRun
from faultrun.cli.resolve.context import ProcessContext
from faultrun.cli.run.start_and_end import absolute
from faultrun.configs.apply import check
from faultrun.configs.argv import resume_args
from faultrun.core.humanize import several
from faultrun.core.recovery.choose import Chosen, NoneUsable, NothingFound
from faultrun.core.recovery.need import Doubt, Need, World
from faultrun.frameworks.environment import WorkerLaunchSpec, WorkerPlacement, worker_environment
from faultrun.frameworks.mindspore import needs_scheduler, scheduler_argv
from faultrun.model.checkpoint import RecoveryPoint
from faultrun.model.plan import Ledger, Plan, Reason
from faultrun.model.spec.run_spec import MsScheduler, Resume, RunSpec
from faultrun.model.topology import BootId, Topology
from faultrun.platforms.this_machine import accelerators_of
from faultrun.supervisor.checkpoints.replicas import known_replicas
from faultrun.supervisor.launch.prepare import device_of, filled, values

_FIRST_NODE = "<the first node>"
_WHOLE, _BRIEFLY = 1, 3
"""How many workers are shown with all their variables, and how many of the others by what differs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Worker:
    """What would be started for one rank: ``changed`` are the variables that are not the environment's."""

    rank: int
    argv: tuple[str, ...]
    folder: str | None
    changed: Mapping[str, str]


def show(spec: RunSpec, around: ProcessContext, how: DryRun) -> int:
    """Print the plan on stdout; return 0, or 65 when a recovery now would find nothing whole."""
    workers = several(spec.topology.world_size, "worker")
    answer(f"run {spec.run_id}: {workers}, framework {spec.framework.value}")
    point, words, code = _recovery_point(spec)
    begins = point if spec.recovery.resume is Resume.ALWAYS else None
    if needs_scheduler(spec):
        ours = spec.rendezvous.ms_scheduler is MsScheduler.BUILTIN
        native = shlex.join(scheduler_argv(spec.command, around.python))
        answer(f"scheduler  {'builtin, in the supervisor' if ours else native}")
    _show_workers(spec, _plan(spec, begins), around.environ, how)
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
        topology=_seated(spec),
        reason=Reason.FIRST,
        point=point,
        start_at_s=0.0,
        ledger=Ledger(),
    )


def _seated(spec: RunSpec) -> Topology:
    """Who sits where; one of several nodes sits where it asks to, or first: the others are not asked."""
    nodes = spec.topology.nodes
    place = 0 if spec.agreement is None else (spec.agreement.node_rank or 0) % len(nodes)
    return Topology(
        nodes=tuple(
            replace(seat, node=spec.node if at == place else seat.node) for at, seat in enumerate(nodes)
        )
    )


def _argv(spec: RunSpec, plan: Plan, rank: int) -> tuple[str, ...]:
    args = spec.command.script_args
    if plan.point is not None:
        told = filled(spec.recovery, values(plan, spec.run_id, rank))
        args = resume_args(args, told, spec.recovery.resume_at)
    return (*spec.command.prefix, *args)


def _recovery_point(spec: RunSpec) -> tuple[RecoveryPoint | None, str, int]:
    if not (roots := spec.recovery.checkpoint_dirs):
        return None, "no --checkpoint_dir is given, workers start from the beginning", 0
    catalog = Catalog(absolute(roots), registry=registry_for(spec.recovery))
    size = spec.topology.world_size
    need = Need(
        world=World(size=size, groups=known_replicas(spec, size).groups, resharded=spec.recovery.resharded),
        doubt=Doubt(trust=spec.recovery.trust),
    )
    match scan_and_choose(catalog, need).choice:
        case Chosen(point=point, refused=refused):
            note = f" ({len(refused)} newer refused)" if refused else ""
            if spec.recovery.resume is not Resume.ALWAYS:
                note += ", if it is of this run: a new run leaves alone what was there before"
            return point, f"resume from {point.path}, {point.position}{note}", 0
        case NoneUsable(refused=refused):
            newest = f": {refused[0].path} {refused[0].why}" if refused else ""
            return None, f"checkpoints exist and none is whole{newest}", 65
        case NothingFound():
            there = unknown_files(catalog.roots, catalog.registry.formats)
            note = f"; {there}" if there else ""
            return (
                None,
                f"no checkpoint yet in {' '.join(roots)}, workers start from the beginning{note}",
                0,
            )


def _show_workers(spec: RunSpec, plan: Plan, environ: Mapping[str, str], how: DryRun) -> None:
    workers = [_worker(spec, plan, rank, environ) for rank in plan.topology.ranks_of(spec.node)]
    first, *others = workers
    whole = workers if how is DryRun.FULL else workers[:_WHOLE]
    for one in whole:
        _show_worker(one)
    for one in others[len(whole) - 1 : _BRIEFLY]:
        _show_worker(_besides(one, first), f"   (what differs from rank {first.rank}:)")
    if left := workers[max(len(whole), _WHOLE + _BRIEFLY) :]:
        named = {name for one in others for name, _ in one.changed.items() ^ first.changed.items()}
        words = "" if all(one.argv == first.argv for one in others) else ", and arguments"
        answer(
            f"ranks {left[0].rank} to {left[-1].rank}: as rank {first.rank}, each with its own "
            f"{' '.join(sorted(named))}{words} (--dry-run=full shows all)"
        )


def _besides(worker: _Worker, first: _Worker) -> _Worker:
    """Return ``worker`` without the changed variables that ``first`` has with the same value."""
    differing = {name: value for name, value in worker.changed.items() if first.changed.get(name) != value}
    return replace(worker, changed=differing)


def _show_worker(worker: _Worker, note: str = "") -> None:
    answer(f"rank {worker.rank}     {shlex.join(worker.argv)}{note}")
    if worker.folder is not None:
        answer(f"    in {worker.folder}")
    for name, value in worker.changed.items():
        shown = "<fresh>" if value == "0" and name in ("MASTER_PORT", "MS_SCHED_PORT") else shlex.quote(value)
        answer(f"    {name}={shown}")


def _worker(spec: RunSpec, plan: Plan, rank: int, environ: Mapping[str, str]) -> _Worker:
    ranks = plan.topology.ranks_of(spec.node)
    seat = WorkerPlacement(
        rank=rank,
        local_rank=ranks.index(rank),
        node_rank=plan.topology.node_rank(spec.node),
        local_world_size=len(ranks),
        device=device_of(spec.devices, ranks.index(rank)),
    )
    log_dir = Path(spec.logs.log_dir).absolute()
    shared = WorkerLaunchSpec(
        boot=BootId("<random>"),
        plan=plan,
        master_addr=spec.rendezvous.master_addr if seat.node_rank == 0 else _FIRST_NODE,
        master_port=spec.rendezvous.port or 0,
        socket=str(log_dir / "control.sock"),
        progress_page=str(log_dir / "incarnation_0" / "progress"),
        error_dir=str(log_dir / "incarnation_0"),
        group_info_dir=str(log_dir),
        ascend=accelerators_of("npu", environ) is not None,
        builtin_scheduler=spec.rendezvous.ms_scheduler is MsScheduler.BUILTIN,
    )
    ours = sorted(worker_environment(environ, spec, seat, shared).items())
    changed = {name: value for name, value in ours if environ.get(name) != value}
    folder = spec.identity.folder_of(rank, seat.local_rank, seat.node_rank)
    return _Worker(rank=rank, argv=_argv(spec, plan, rank), folder=folder, changed=changed)
