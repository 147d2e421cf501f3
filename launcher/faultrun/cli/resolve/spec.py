"""Settings and machine become one ``RunSpec``: every check of the user's wishes happens here, once.

Nothing is written, started or imported from the user's code. Every refusal is a UsageError, or a ConfigError
for a value of the config file.
"""

import os
from dataclasses import dataclass, replace

from faultrun.cli.options.settings import Settings
from faultrun.cli.options.signature_file import signature_rows
from faultrun.cli.options.values import DAY_S, backoff, run_id, seconds, switch, whole
from faultrun.cli.resolve.compile_cache import resolve_compile_cache
from faultrun.cli.resolve.framework import one_of, resolve_framework
from faultrun.cli.resolve.hang import resolve_hang
from faultrun.cli.resolve.logs import resolve_logs
from faultrun.cli.resolve.platform import fault_files, handed_on, rank_table_wait_s
from faultrun.cli.resolve.process_context import Notes, Surroundings
from faultrun.cli.resolve.program import Program, misplaced, resolve_program
from faultrun.cli.resolve.recovery import Chosen, chosen_recipe, environment, recovery
from faultrun.cli.resolve.rendezvous import resolve_meeting
from faultrun.cli.resolve.run_ids import as_run_id, platform_run_id, readable_run_id
from faultrun.cli.resolve.scheduler import resolve_scheduler
from faultrun.cli.resolve.standby import resolve_standby
from faultrun.cli.resolve.view import resolve_view
from faultrun.cli.resolve.windows import resolve_windows, signal_answers
from faultrun.cli.resolve.workers import Workers, resolve_workers
from faultrun.model.spec import (
    Binding,
    Recovery,
    RestartPolicy,
    RestoreConfigs,
    Resume,
    RunSpec,
    Supervision,
)
from faultrun.model.topology import NodeId, NodeSlots, RunId, Topology
from faultrun.platforms import local

_INIT_PID = 1
_LONGEST_WINDOW_S = 366 * DAY_S


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolved:
    """What to run. ``notes`` are lines for stderr, said once; ``dry_run`` asks to show and not to start."""

    spec: RunSpec
    notes: tuple[str, ...]
    dry_run: bool


def resolve(settings: Settings, around: Surroundings) -> Resolved:
    """Check everything the user said against itself and the machine.

    Raises UsageError (exit 64), or ConfigError (exit 78) when the config file is to blame.
    """
    notes = Notes(settings=settings, lines=list(settings.notes))
    program = resolve_program(settings, around)
    behind = misplaced(settings)
    if behind:
        notes.add(behind)
    recipe = chosen_recipe(settings, program, around)
    framework = resolve_framework(settings, notes, program, recipe)
    workers = resolve_workers(settings, around, notes, framework)
    meeting = resolve_meeting(settings, notes, framework)
    supervision = _supervision(settings, around, notes)
    node = NodeId(local.hostname())
    logs = resolve_logs(settings, notes, supervision, workers=workers.local, master_addr=meeting.master_addr)
    spec = RunSpec(
        run_id=_run_id(settings, around, notes),
        node=node,
        topology=Topology(nodes=(NodeSlots(node=node, slots=workers.local),)),
        command=program.command,
        framework=framework,
        rendezvous=replace(
            meeting,
            rank_table_file=handed_on(settings, around, workers.devices),
            rank_table_wait_s=rank_table_wait_s(settings),
            ms_scheduler=resolve_scheduler(
                settings, around, notes, (framework, program.command, meeting, workers.simulation)
            ),
        ),
        supervision=supervision,
        recovery=_recovery(settings, notes, recipe, workers, program),
        logs=logs,
        binding=_binding(settings, around, notes, workers),
        simulation=workers.simulation,
        environment=environment(recipe, around, framework, notes),
        devices=workers.devices,
        fault_files=fault_files(settings, around),
        view=resolve_view(settings, around.environ),
        compile_cache=resolve_compile_cache(
            settings, around, notes, (framework, program, workers.world, logs.log_dir)
        ),
        standby=resolve_standby(settings, program, framework, workers.local, workers.simulation),
    )
    return Resolved(spec=spec, notes=tuple(notes.lines), dry_run=settings.flag("dry_run"))


def _supervision(settings: Settings, around: Surroundings, notes: Notes) -> Supervision:
    plain = RestartPolicy()
    restarts = settings.read("max_restarts", whole(0, 1_000_000))
    window_s = settings.read("restart_window", seconds(_LONGEST_WINDOW_S))
    waits = settings.read("backoff", backoff) or (plain.backoff_min_s, plain.backoff_max_s)
    settings.read("monitor_interval", seconds())
    notes.no_effect("monitor_interval", "the kernel reports a death at once, nothing is polled")
    join = settings.read("join", switch)
    if join is False and around.pid == _INIT_PID:
        notes.no_effect("join", "PID 1 of a container stays in the foreground, or the container would end")
        join = True
    return Supervision(
        policy=RestartPolicy(
            max_restarts=plain.max_restarts if restarts is None else restarts,
            window_s=plain.window_s if window_s is None else window_s,
            backoff_min_s=waits[0],
            backoff_max_s=waits[1],
        ),
        windows=resolve_windows(settings, around.environ),
        exit_code_on_stop=settings.read("exit_code_on_stop", whole(0, 255)),
        join=True if join is None else join,
        signals=settings.read("signals", signal_answers) or (),
        signatures=settings.read("signatures", signature_rows) or (),
        hang=resolve_hang(settings),
    )


def _recovery(
    settings: Settings, notes: Notes, recipe: Chosen | None, workers: Workers, program: Program
) -> Recovery:
    resume = settings.read("resume", one_of(Resume)) or Resume.AUTO
    when = settings.read("restore_configs", one_of(RestoreConfigs)) or RestoreConfigs.NEVER
    found = recovery(settings, notes, recipe, world_size=workers.world, resume=resume)
    from faultrun.frameworks.program_files import asks

    words = (*program.command.prefix, *program.command.script_args)
    return replace(
        found,
        restore_configs=when,
        trust=settings.flag("trust"),
        script_asks=asks(words, program.source, program.search),
    )


def _binding(settings: Settings, around: Surroundings, notes: Notes, workers: Workers) -> Binding:
    if "bind_core" not in settings.given and "bind_numa" not in settings.given:
        return Binding()
    from faultrun.platforms.binding import (
        NotOurs,
        plan_binding,
        read_bind_core,
        read_bind_numa,
        usable_processors,
    )

    core = settings.read("bind_core", read_bind_core) or False
    numa = settings.read("bind_numa", read_bind_numa) or False
    devices = workers.devices or local.physical_devices(around.environ, workers.local)
    try:
        bound = plan_binding(core, numa, devices, usable_processors())
    except NotOurs as error:
        raise settings.refuse(error.option, str(error)) from None
    for line in bound.notes:
        notes.add(line)
    return bound.binding


def _run_id(settings: Settings, around: Surroundings, notes: Notes) -> RunId:
    """``--run_id``, else ``--rdzv-id``, else the platform's job, else a new name."""
    given = settings.read("run_id", run_id)
    foreign = settings.read("rdzv_id", str)
    if given is not None:
        notes.no_effect("rdzv_id", "--run_id names the run")
        return RunId(given)
    if foreign not in (None, "", "none"):
        return RunId(as_run_id(str(foreign)))
    job = platform_run_id(around.environ)
    return RunId(job.name if job else readable_run_id(os.urandom(4)))
