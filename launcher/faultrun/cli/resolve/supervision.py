"""How failures are answered: restarts, windows to save in, what counts as a hang, spare workers."""

import math
from collections.abc import Mapping
from dataclasses import replace

from faultrun.cli.options.settings import Settings
from faultrun.cli.resolve.context import ResolveContext
from faultrun.cli.resolve.program import Program
from faultrun.frameworks import standby_eligibility
from faultrun.frameworks.top_imports import TopImports, top_imports
from faultrun.model.observed.hang import HangPolicy, Span
from faultrun.model.observed.standby import StandbyWish
from faultrun.model.spec.run_spec import Framework, OnFault, RestartPolicy, Simulation, Supervision
from faultrun.model.spec.windows import PLATFORM_MARGIN_S, TERMINATION_VARIABLE, Windows

_SLURM_END = "SLURM_JOB_END_TIME"
_INIT_PID = 1
_HIDDEN_FROM_STANDBYS = {
    Framework.MINDSPORE: (
        "MS_ROLE",
        "MS_SCHED_",
        "MS_NODE_ID",
        "MS_WORKER_NUM",
        "MS_COMPILER_CACHE_",
        "RANK_",
        "DEVICE_ID",
        "GROUP_INFO_FILE",
    )
}
"""MindSpore takes a process with these for a member of a cluster from its first operation on."""

_PRELOADED = (Framework.TORCH, Framework.PLAIN)
"""What is built on MindSpore may read what is hidden from its standbys."""


def resolve_supervision(ctx: ResolveContext) -> Supervision:
    """Settle the options of "When a worker fails"."""
    settings = ctx.settings
    shortest_s, longest_s = settings.backoff
    _ = settings.monitor_interval  # it means nothing here, and must still be a time
    ctx.no_effect("the kernel reports a death at once, nothing is polled", Settings.monitor_interval)
    in_container = ctx.process.pid == _INIT_PID
    if in_container and not settings.join:
        because = "PID 1 of a container stays in the foreground, or the container would end"
        ctx.no_effect(because, Settings.join)
    windows, leave_s = resolve_windows(settings, ctx.environ), settings.leave_running
    if leave_s is None:
        leave_s = windows.stop_grace_s if in_container else math.inf
    return Supervision(
        policy=RestartPolicy(
            max_restarts=settings.max_restarts,
            window_s=settings.restart_window,
            backoff_min_s=shortest_s,
            backoff_max_s=longest_s,
            exit_codes=settings.worker_exit_codes,
        ),
        windows=windows,
        exit_code_on_stop=settings.exit_code_on_stop,
        join=settings.join or in_container,
        signals=settings.signals,
        signatures=settings.signatures or (),
        hang=_hang(settings),
        leave_running_s=leave_s,
    )


def resolve_windows(settings: Settings, environ: Mapping[str, str]) -> Windows:
    """How long workers may save: as the user says, else the platform that will end us, else the default.

    torchrun's one shutdown time-out stands for both windows unless one is named.
    """
    both_s = settings.shutdown_timeout
    grace_s = settings.grace if both_s is None or settings.gave(Settings.grace) else both_s
    stays = settings.on_fault is not OnFault.RESTART
    windows = Windows(
        grace_s=grace_s,
        stop_by_utc_s=_slurm_end_utc_s(environ),
        rejoin_s=settings.rejoin_timeout if stays else 0.0,
        heal_s=settings.heal_timeout,
        stay_asked=settings.on_fault is OnFault.REPLACE,
    )
    for option, stop_s in ((Settings.stop_grace, settings.stop_grace), (Settings.shutdown_timeout, both_s)):
        if stop_s is not None:
            return replace(windows, stop_grace_s=stop_s, stop_grace_source=settings.where(option))
    if (total_s := _number(environ.get(TERMINATION_VARIABLE, ""))) is None or total_s <= 0:
        return windows
    source = f"terminationGracePeriodSeconds {total_s:g} less {PLATFORM_MARGIN_S:g} s"
    return replace(windows, stop_grace_s=max(1.0, total_s - PLATFORM_MARGIN_S), stop_grace_source=source)


def resolve_standby(
    ctx: ResolveContext, program: Program, framework: Framework, workers: int, simulation: Simulation | None
) -> StandbyWish:
    """The wish before the first worker is started; memory is looked at when the time has come."""
    if (wanted := ctx.settings.standby) == 0:
        return StandbyWish()
    argv = (*program.command.prefix, *program.command.script_args)
    begins = standby_eligibility.program_at(argv)
    against: list[str] = []
    if not begins:
        against.append(f"{argv[0]} is no Python command that a standby can wait in")
    if simulation is not None:
        against.append("a dry run is not restarted in a hurry")
    if wanted is None and not against:
        against += standby_eligibility.doubts(program.source, program.search, framework)
    if against:
        return StandbyWish(asked=wanted is not None, doubts=tuple(against))
    imports = top_imports(program.source, program.search) if framework in _PRELOADED else TopImports()
    return StandbyWish(
        count=workers if wanted is None else min(wanted, workers),
        asked=wanted is not None,
        framework=framework.value,
        program_at=begins,
        arguments_at=begins + (2 if argv[begins] in ("-m", "-c") else 1),
        hidden=_HIDDEN_FROM_STANDBYS.get(framework, ()),
        estimate_bytes=standby_eligibility.ESTIMATES_BYTES.get(framework, 0) + imports.estimate_bytes,
        imports=imports.statements,
        sets=imports.sets,
    )


def _slurm_end_utc_s(environ: Mapping[str, str]) -> float | None:
    """When workers must have saved because SLURM ends this job; None outside of SLURM."""
    end_utc_s = _number(environ.get(_SLURM_END, ""))
    return None if end_utc_s is None else end_utc_s - PLATFORM_MARGIN_S


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _hang(settings: Settings) -> HangPolicy:
    """A time-out that is given is the limit of a step, and of silence for ``log``.

    What the user gave is acted on; all else is only a measure of what is unusual.
    """
    timeout, limits, usual = settings.hang_timeout, settings.hang_limits, HangPolicy()
    if timeout == math.inf:
        return replace(usual, enabled=False)
    step, quiet_s, given = usual.step, usual.quiet_s, set(limits)
    if timeout is not None:
        step, quiet_s, given = Span(low_s=timeout, high_s=timeout), timeout, given | {"step", "quiet"}
    step = limits.get("step", step)
    startup_s, compile_s = (
        limits[phase].high_s if phase in limits else max(usual_s, step.low_s)
        for phase, usual_s in (("startup", usual.startup_s), ("compile", usual.compile_s))
    )
    return HangPolicy(
        signal=settings.hang_signal,
        factor=settings.hang_factor,
        startup_s=startup_s,
        speaks="startup" in limits,
        compile_s=compile_s,
        step=step,
        checkpoint=limits.get("checkpoint", usual.checkpoint),
        evaluation=limits.get("evaluation", usual.evaluation),
        quiet_s=quiet_s,
        given=frozenset(given),
    )
