"""Settings and machine become one ``RunSpec``: every check of the user's wishes happens here, once.

Nothing is written, started or imported from the user's code. Every refusal is a UsageError, or a ConfigError
for a value of the config file.
"""

from dataclasses import dataclass, replace

from faultrun.cli.options.settings import Settings
from faultrun.cli.resolve.context import ProcessContext, ResolveContext
from faultrun.cli.resolve.outputs import resolve_logs, resolve_view
from faultrun.cli.resolve.platform import fault_files, handed_on
from faultrun.cli.resolve.program import misplaced, resolve_framework, resolve_program
from faultrun.cli.resolve.recovery import read_chosen_recipe, resolve_environment, resolve_recovery
from faultrun.cli.resolve.rendezvous import resolve_compile_cache, resolve_meeting, resolve_scheduler
from faultrun.cli.resolve.run_ids import resolve_run_id
from faultrun.cli.resolve.supervision import resolve_standby, resolve_supervision
from faultrun.cli.resolve.workers import Workers, resolve_workers
from faultrun.model.spec import Binding, RunSpec
from faultrun.model.topology import NodeId, NodeSlots, Topology
from faultrun.platforms import local


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolved:
    """What to run. ``notes`` are lines for stderr, said once; ``dry_run`` asks to show and not to start."""

    spec: RunSpec
    notes: tuple[str, ...]
    dry_run: bool


def resolve(settings: Settings, process: ProcessContext) -> Resolved:
    """Check everything the user said against itself and the machine.

    Raises UsageError (exit 64), or ConfigError (exit 78) when the config file is to blame.
    """
    ctx = ResolveContext(settings, process, list(settings.notes))
    program = resolve_program(settings, process)
    behind = misplaced(settings)
    if behind:
        ctx.note(behind)
    recipe = read_chosen_recipe(settings)
    framework = resolve_framework(ctx, program, recipe)
    workers = resolve_workers(ctx, framework)
    meeting = resolve_meeting(ctx, framework)
    supervision = resolve_supervision(ctx)
    node = NodeId(local.hostname())
    logs = resolve_logs(ctx, join=supervision.join, workers=workers.local, master_addr=meeting.master_addr)
    scheduler = resolve_scheduler(ctx, framework, program.command, meeting.master_addr, workers.simulation)
    spec = RunSpec(
        run_id=resolve_run_id(ctx),
        node=node,
        topology=Topology(nodes=(NodeSlots(node=node, slots=workers.local),)),
        command=program.command,
        framework=framework,
        rendezvous=replace(meeting, rank_table_file=handed_on(ctx, workers.devices), ms_scheduler=scheduler),
        supervision=supervision,
        recovery=resolve_recovery(ctx, recipe, program, workers.world),
        logs=logs,
        binding=_binding(ctx, workers),
        simulation=workers.simulation,
        environment=resolve_environment(ctx, recipe, framework),
        devices=workers.devices,
        fault_files=fault_files(settings, process),
        view=resolve_view(ctx),
        compile_cache=resolve_compile_cache(ctx, framework, program, workers.world, logs.log_dir),
        standby=resolve_standby(ctx, program, framework, workers.local, workers.simulation),
    )
    return Resolved(spec=spec, notes=tuple(ctx.notes), dry_run=settings.dry_run)


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
    devices = workers.devices or local.physical_devices(ctx.environ, workers.local)
    try:
        bound = plan_binding(core, numa, devices, usable_processors())
    except NotOurs as error:
        named = Settings.bind_core if error.option == Settings.bind_core.name else Settings.bind_numa
        raise settings.refuse(named, str(error)) from None
    for line in bound.notes:
        ctx.note(line)
    return bound.binding
