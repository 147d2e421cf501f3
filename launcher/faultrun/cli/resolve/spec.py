"""Settings and machine become one ``RunSpec``: every check of the user's wishes happens here, once.

Nothing is written, started or imported from the user's code. Every refusal is a UsageError, or a ConfigError
for a value of the config file.
"""

import os
import re
from dataclasses import dataclass, replace
from pathlib import Path
from zlib import crc32

from faultrun.cli.options.choices import DryRun
from faultrun.cli.options.settings import INSIDE_WORKER, Settings
from faultrun.cli.resolve.context import ProcessContext, ResolveContext
from faultrun.cli.resolve.elastic import fewest_that_train, resolve_elastic
from faultrun.cli.resolve.launchers import other_launcher
from faultrun.cli.resolve.nodes_etcd import NodeIdentity, resolve_node
from faultrun.cli.resolve.outputs import resolve_logs, resolve_view
from faultrun.cli.resolve.platform import fault_files, handed_on
from faultrun.cli.resolve.program import misplaced, resolve_framework, resolve_program
from faultrun.cli.resolve.recovery import read_chosen_recipe, resolve_environment, resolve_recovery
from faultrun.cli.resolve.rendezvous import resolve_compile_cache, resolve_meeting, resolve_scheduler
from faultrun.cli.resolve.standard_input import UNREAD, is_given
from faultrun.cli.resolve.supervision import resolve_standby, resolve_supervision
from faultrun.cli.resolve.worker_dir import resolve_worker_dir, spread_folders, worker_path, worker_places
from faultrun.cli.resolve.workers import Workers, resolve_workers
from faultrun.model.spec.run_spec import Binding, Framework, RunSpec
from faultrun.model.spec.worker_identity import RankEnv, WorkerIdentity
from faultrun.model.topology import NodeId, NodeSlots, RunId, Topology, node_folder
from faultrun.platforms import this_machine

_FIRST = (
    "amber brave calm clear dawn eager fair fleet gentle glad keen kind light lively lucid mellow merry "
    "noble quiet rapid ready silver steady sunny swift tidal vivid warm wise young zesty bold"
)
_SECOND = (
    "alder ash aspen birch cedar elm fir hazel juniper larch linden maple avocet crane curlew falcon finch "
    "heron ibis jay kestrel lark martin osprey owl plover raven robin swan tern wren kite"
)
_JOB_VARIABLES = ("MINDX_TASK_ID", "mindx-dls-test")
"""MindX gives the task's id, and older manifests the job's name in the second."""

_JOB_LONGEST = 100
_THREADS = "OMP_NUM_THREADS"


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolved:
    """What to run. ``notes`` are lines for stderr, said once; ``dry_run`` asks to show and not to start."""

    spec: RunSpec
    notes: tuple[str, ...]
    dry_run: DryRun


def resolve(settings: Settings, process: ProcessContext) -> Resolved:
    """Check everything the user said against itself and the machine.

    Raises UsageError (exit 64), or ConfigError (exit 78) when the config file is to blame.
    """
    ctx = ResolveContext(settings, process, list(settings.notes))
    program = resolve_program(settings, process)
    behind = other_launcher(settings.words, module=settings.module) or misplaced(settings, program)
    if behind:
        ctx.note(behind)
    if is_given():
        ctx.note(UNREAD)
    recipe = read_chosen_recipe(settings)
    framework = resolve_framework(ctx, program, recipe)
    workers = resolve_workers(ctx, framework)
    folder, program = resolve_worker_dir(ctx, program, workers.local)
    one_of_several = resolve_node(ctx, framework, workers)
    agreement = one_of_several.agreement if one_of_several else None
    meeting = resolve_meeting(ctx, framework, one_of_several)
    supervision = resolve_supervision(ctx)
    windows = replace(supervision.windows, trains_from=fewest_that_train(ctx, workers))
    supervision = replace(supervision, windows=windows)
    node = one_of_several.name if one_of_several else NodeId(this_machine.hostname())
    places = worker_places(folder, workers.world, workers.local)
    recovery = resolve_recovery(ctx, recipe, program, workers.world, places)
    logs = resolve_logs(ctx, join=supervision.join, workers=workers, master_addr=meeting.master_addr)
    if one_of_several:
        logs = replace(logs, log_dir=str(Path(logs.log_dir) / node_folder(node)))
    scheduler = resolve_scheduler(ctx, framework, program.command, meeting.master_addr, workers)
    table = handed_on(ctx, workers.devices if workers.nodes == 1 else ())
    spec = RunSpec(
        run_id=_run_id(ctx, one_of_several, logs.log_dir),
        node=node,
        topology=_topology(node, workers),
        command=program.command,
        framework=framework,
        rendezvous=replace(meeting, rank_table_file=table, ms_scheduler=scheduler),
        supervision=supervision,
        recovery=spread_folders(recovery, folder, workers.world),
        logs=logs,
        binding=_binding(ctx, workers),
        identity=resolve_identity(ctx, framework, workers.local, workers.world, folder),
        simulation=workers.simulation,
        environment=(
            *resolve_threads(ctx, framework, workers.local),
            *worker_path(ctx, folder, program),
            *resolve_environment(ctx, recipe, framework),
        ),
        devices=workers.devices,
        fault_files=fault_files(settings, process),
        view=resolve_view(ctx),
        compile_cache=resolve_compile_cache(ctx, framework, program, workers.world, logs.log_dir),
        standby=resolve_standby(ctx, program, framework, workers.local, workers.simulation),
        agreement=agreement,
        elastic=resolve_elastic(ctx, workers, table, agreement.node_rank if agreement else None),
    )
    return Resolved(spec=spec, notes=tuple(ctx.notes), dry_run=settings.dry_run)


def _topology(node: NodeId, workers: Workers) -> Topology:
    """The nodes with their slots; one of several has no name here, for seats are given by the first plan."""
    name = node if workers.nodes == 1 else NodeId("")
    return Topology(nodes=(NodeSlots(node=name, slots=workers.local),) * workers.nodes)


def _binding(ctx: ResolveContext, workers: Workers) -> Binding:
    settings = ctx.settings
    if not (settings.gave(Settings.bind_core) or settings.gave(Settings.bind_numa)):
        return Binding()
    from faultrun.platforms.binding import (
        NotOurs,
        plan_binding,
        read_bind_core,
        read_bind_numa,
        usable_processors,
    )

    core = settings.read(Settings.bind_core, read_bind_core) or False
    numa = settings.read(Settings.bind_numa, read_bind_numa) or False
    devices = workers.devices or this_machine.physical_devices(ctx.environ, workers.local)
    try:
        bound = plan_binding(core, numa, devices, usable_processors())
    except NotOurs as error:
        named = Settings.bind_core if error.option == Settings.bind_core.name else Settings.bind_numa
        raise settings.refuse(named, str(error)) from None
    for line in bound.notes:
        ctx.note(line)
    return bound.binding


def _run_id(ctx: ResolveContext, one_of_several: NodeIdentity | None, log_dir: str) -> RunId:
    """``--run_id``, else ``--rdzv-id``, else the platform's job, else a new name.

    Several nodes must all find the same: where they meet at the first of them, its address serves.
    A job may have several runs on one node each, so theirs have what tells their log_dirs apart, too.
    """
    given, foreign = ctx.settings.run_id, ctx.settings.rdzv_id
    if given is not None:
        ctx.no_effect("--run_id names the run", Settings.rdzv_id)
        return RunId(given)
    name = _job(ctx, alone=one_of_several is None) if foreign in ("", "none") else foreign
    if name and name is not foreign and one_of_several is None:
        name = f"{name[:_JOB_LONGEST]}-{crc32(os.fsencode(Path(log_dir).absolute())):08x}"
    if not name and one_of_several is None:
        return _new_run_id()
    name = name or (one_of_several.meeting if one_of_several else "")
    if not name:
        because = "the nodes of a run find each other by its name, and nothing names this one"
        raise ctx.settings.refuse(Settings.rdzv_id, because, "--rdzv-id=NAME, the same on every node")
    return named_run(name)


def named_run(name: str) -> RunId:
    """The run's id where another launcher, or a platform, calls it ``name``."""
    return RunId(re.sub(r"[^A-Za-z0-9._-]+", "-", name).lstrip(".-")[:128] or "run")


def _job(ctx: ResolveContext, *, alone: bool) -> str:
    """The job's id as its platform says it, the most specific first; empty outside of any.

    In Volcano and indexed Kubernetes jobs the pod's name survives rescheduling; it serves a run of one pod.
    Inside one of our own workers nothing of this is ours.
    """
    environ = ctx.environ
    if INSIDE_WORKER in environ:
        return ""
    slurm, torch = environ.get("SLURM_JOB_ID", ""), environ.get("TORCHELASTIC_RUN_ID", "none")
    said = (
        *(environ.get(variable, "") for variable in _JOB_VARIABLES),
        f"slurm-{slurm}" if slurm else "",
        environ.get("HOSTNAME", "") if alone and ctx.process.in_pod else "",
        "" if torch == "none" else torch,
    )
    return next(filter(None, said), "")


def _new_run_id() -> RunId:
    """A name such as ``calm-heron-3f7a``: 67 million of them."""
    adjective, noun, *rest = os.urandom(4)
    first, second = _FIRST.split(), _SECOND.split()
    return RunId(f"{first[adjective % len(first)]}-{second[noun % len(second)]}-{bytes(rest).hex()}")


def resolve_identity(
    ctx: ResolveContext, framework: Framework, workers: int, world: int, folder: str
) -> WorkerIdentity:
    """Role, devices and ``folder``; what torchrun alone would make use of is said to have no effect."""
    settings = ctx.settings
    _say_without_effect(ctx)
    own_device = settings.virtual_local_rank
    if own_device and framework not in (Framework.TORCH, Framework.PLAIN):
        because = f"it chooses CUDA's devices, and this is {framework.value}"
        ctx.no_effect(because, Settings.virtual_local_rank)
        own_device = False
    seen = ctx.environ.get("CUDA_VISIBLE_DEVICES")
    if own_device and seen is not None and workers > len(seen.split(",")):
        because = f"each of {workers} workers needs a GPU of its own, and CUDA_VISIBLE_DEVICES={seen}"
        raise settings.refuse(Settings.virtual_local_rank, because, "fewer workers, or leave it out")
    alone = settings.rank_env is RankEnv.NONE
    if alone and (world > 1 or framework is Framework.MINDSPORE):
        because = f"{world} workers have to find each other" if world > 1 else "MindSpore meets by them"
        raise settings.refuse(Settings.rank_env, because, "leave it out, or --worker_num=1")
    return WorkerIdentity(
        role=settings.role, own_device=own_device, folder=folder, rank_env=settings.rank_env
    )


def resolve_threads(ctx: ResolveContext, framework: Framework, workers: int) -> tuple[tuple[str, str], ...]:
    """OMP_NUM_THREADS=1 for torch's workers where torchrun sets it: there are several, and the user did not.

    Others are left alone: MindSpore's kernels have a pool of their own that is sized by it.
    """
    if framework is not Framework.TORCH or workers < 2 or _THREADS in ctx.environ:
        return ()
    ctx.note(f"{_THREADS}=1 for each of {workers} workers, as torchrun sets it; set it for more threads")
    return ((_THREADS, "1"),)


def _say_without_effect(ctx: ResolveContext) -> None:
    settings = ctx.settings
    for read in (settings.rdzv_conf, settings.start_method, settings.numa_binding):
        _ = read  # it means nothing here, and must still be right
    ctx.no_effect("workers are programs, not functions of the launcher", Settings.start_method)
    ctx.no_effect("events are in journal.jsonl of the log_dir", Settings.event_log_handler)
    ctx.no_effect("torchrun's plugins are not loaded", Settings.logs_specs)
    ctx.no_effect("--bind_numa and --bind_core tie workers to processors", Settings.numa_binding)
    ctx.no_effect(
        "TERM, INT, HUP, USR1 and USR2 are always handled; --signals says how", Settings.signals_to_handle
    )
