"""Where output goes and who watches: log files, the console, metrics, commands, as ``Logs`` and ``View``."""

import importlib.util
import socket
from collections.abc import Mapping
from typing import Any

from faultrun.cli.options.option import Option
from faultrun.cli.options.settings import Settings
from faultrun.cli.resolve.context import ResolveContext
from faultrun.cli.resolve.workers import Workers
from faultrun.errors import UsageError
from faultrun.model.spec.output import LogFormat, Logs, Stream, View
from faultrun.platforms import this_machine

_CONSOLE = (Settings.tail_worker_log, Settings.tee, Settings.redirects)
_NOWHERE_ELSE = View().metrics_addr
_CLIENT = "prometheus_client"
"""The module that an extra of faultrun installs for metrics."""


def resolve_logs(ctx: ResolveContext, *, join: bool, workers: Workers, master_addr: str) -> Logs:
    """Settle names and streams for this node's workers; raises UsageError (ConfigError)."""
    settings, world = ctx.settings, workers.local * workers.nodes
    name = settings.read(Settings.worker_log_name, lambda text: _log_name(text, master_addr))
    tail = settings.tail_worker_log
    asked = any(settings.gave(option) for option in _CONSOLE)
    if not asked and ctx.process.at_terminal and settings.log_format is LogFormat.TEXT:
        tail = settings.local_ranks_filter or (0,)
    tee = _per_rank(ctx, Settings.tee, settings.tee, workers.local)
    redirects = _per_rank(ctx, Settings.redirects, settings.redirects, workers.local)
    filtered = settings.local_ranks_filter
    if unknown := ", ".join(str(rank) for rank in tail or () if rank >= world):
        because = f"the run has ranks 0 to {world - 1}, not {unknown}"
        ctx.no_effect(because, Settings.tail_worker_log)
    if not join:
        because = "with --join=False nothing follows the console; read the log files"
        ctx.no_effect(because, *_CONSOLE)
        tail, tee, redirects = None, (), ()
    return Logs(
        log_dir=settings.log_dir,
        worker_log_name=name or Logs().worker_log_name,
        tail=None if tail is None else frozenset(tail or range(world)),
        tee=tee,
        redirects=redirects,
        termination_log=settings.termination_log,
        max_bytes=settings.log_max_size,
        shown=frozenset(filtered) if filtered else None,
        picked_out=settings.duplicate_stdout_filters,
        picked_err=settings.duplicate_stderr_filters,
        step_pattern=settings.step_pattern,
    )


def resolve_view(ctx: ResolveContext) -> View:
    """Settle the options of "Watching the run"; raises UsageError (ConfigError) for what cannot work."""
    settings = ctx.settings
    own_addr = this_machine.every_address() if ctx.process.in_pod else _NOWHERE_ELSE
    view = View(
        assume=settings.assume,
        log_format=settings.log_format,
        live_line=settings.live_line,
        report=settings.report,
        metrics_port=settings.metrics_port,
        metrics_addr=settings.metrics_addr or own_addr,
        metrics_file=settings.metrics_file,
        on_event=settings.on_event,
        webhook=settings.webhook,
    )
    if view.metrics_port is not None:
        _need(settings, Settings.metrics_port)
        _need_free(settings, view.metrics_addr, view.metrics_port)
    if view.metrics_file:
        _need(settings, Settings.metrics_file)
    return view


def _log_name(text: str, master_addr: str) -> str:
    """Fill in msrun's template: ``{ip}`` is the address that this machine shows to the master's."""
    if "{ip}" in text:
        text = text.replace("{ip}", this_machine.address_towards(master_addr))
    text = text.replace("{hostname}", this_machine.hostname())
    if "/" in text or "\0" in text:
        raise ValueError(f"{text!r} is a path, and the files lie in --log_dir")
    return text


def _per_rank(
    ctx: ResolveContext, option: Option[Any], chosen: Mapping[int | None, Stream], workers: int
) -> tuple[Stream, ...]:
    if not chosen:
        return ()
    unknown = [rank for rank in chosen if rank is not None and rank >= workers]
    if unknown:
        ctx.no_effect(f"this node has local ranks 0 to {workers - 1}, not {unknown[0]}", option)
    others = chosen.get(None, Stream.NONE)
    return tuple(chosen.get(rank, others) for rank in range(workers))


def _need(settings: Settings, option: Option[Any]) -> None:
    if importlib.util.find_spec(_CLIENT) is None:
        raise UsageError(
            f"{settings.where(option)} needs prometheus-client, which is not installed",
            because="metrics are an extra of faultrun",
            hint="pip install 'faultrun[metrics]'",
        )


def _need_free(settings: Settings, addr: str, port: int) -> None:
    """A user who asked for metrics shall not find out later that there are none."""
    with socket.socket(socket.AF_INET6 if ":" in addr else socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((addr, port))
        except OSError as error:
            raise UsageError(
                f"{settings.where(Settings.metrics_port)}: port {port} cannot be used",
                because=f"{addr}: {error.strerror}",
                hint="another port, or --metrics_file=FILE.prom",
            ) from error
