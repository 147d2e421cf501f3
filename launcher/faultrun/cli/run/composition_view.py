"""Who tells of a run beside its supervisor: the narrator, and the sidecars that the options ask for."""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from faultrun import __version__
from faultrun.cli import console
from faultrun.core.secrets import HIDDEN, without_secret_values, without_secret_words
from faultrun.journal.append import FILE_NAME
from faultrun.model.spec import LogFormat, RunSpec
from faultrun.observe.console_reporter import ConsoleReporter
from faultrun.observe.json_reporter import JsonReporter, note
from faultrun.observe.sidecar import CLEAR, Sidecar
from faultrun.observe.survey_meter import METER, SurveyMeter

_TERMINAL = 2
_LAST_PAINT_S = 1.0
_LAST_SCRAPE_S = 3.0


def narrator_for(spec: RunSpec, log_dir: Path, say: Callable[[str], None]) -> ConsoleReporter | JsonReporter:
    """Words for people, or objects for a log collector."""
    if spec.view.log_format is LogFormat.JSON:
        return JsonReporter(spec, log_dir, console.write)
    return ConsoleReporter(spec, log_dir, say)


def speak(spec: RunSpec) -> None:
    """Have the console say everything in the form that was asked for."""
    if spec.view.log_format is LogFormat.JSON:
        console.speak(lambda text: note(spec.run_id, text))
    elif has_live_line(spec):
        console.begin_lines_with(CLEAR)


def line_start(spec: RunSpec) -> bytes:
    """What workers' lines begin with where they share a terminal with the live line."""
    return CLEAR if has_live_line(spec) else b""


def has_live_line(spec: RunSpec) -> bool:
    """Only a person at a terminal that understands it."""
    wanted = spec.view.live_line and spec.supervision.join and spec.view.log_format is LogFormat.TEXT
    return wanted and os.environ.get("TERM", "dumb") != "dumb" and os.isatty(_TERMINAL)


def sidecars(spec: RunSpec, log_dir: Path, next_seq: int) -> list[Sidecar]:
    """Start those that are wanted; before any thread. ``next_seq`` is the first line that we shall write."""
    journal, view = log_dir / FILE_NAME, spec.view
    started: list[Sidecar] = []
    if has_live_line(spec):
        from faultrun.observe.live_line import LiveLine

        line = LiveLine(_TERMINAL, log_dir, spec.topology.world_size)
        started.append(Sidecar(line, journal, _TERMINAL, patience_s=_LAST_PAINT_S))
    if view.on_event or view.webhook:
        from faultrun.observe.event_hooks import PATIENCE_S, EventHooks

        herald = EventHooks(spec.run_id, log_dir, view.on_event, view.webhook, next_seq)
        started.append(Sidecar(herald, journal, patience_s=PATIENCE_S))
    about = {"run_id": spec.run_id, "framework": spec.framework.value, "version": __version__}
    if view.metrics_port is not None or view.metrics_file:
        from faultrun.observe.exporter import Exporter

        exporter = Exporter(
            log_dir,
            about,
            spec.supervision.policy,
            (view.metrics_addr, view.metrics_port) if view.metrics_port is not None else None,
            view.metrics_file,
        )
        started.append(Sidecar(exporter, journal, patience_s=_LAST_SCRAPE_S))
    if view.tensorboard:
        from faultrun.observe.scalars import Scalars

        scalars = Scalars(log_dir, Path(view.tensorboard).absolute(), spec.supervision.policy, next_seq)
        started.append(Sidecar(scalars, journal, patience_s=_LAST_SCRAPE_S))
    if view.otlp_endpoint:
        from faultrun.observe import tracer

        resource = {f"faultrun.{name}": value for name, value in about.items()}
        traces = tracer.Tracer(log_dir, view.otlp_endpoint, resource, next_seq)
        started.append(Sidecar(traces, journal, patience_s=tracer.PATIENCE_S))
    return started


def meter_for(spec: RunSpec, log_dir: Path) -> SurveyMeter | None:
    """Only where a live line shows it."""
    return SurveyMeter(log_dir / METER) if has_live_line(spec) else None


def without_secrets(spec: RunSpec) -> RunSpec:
    """As ``run.json`` may show it to others: a command or an address often holds a token."""
    view = spec.view
    command, webhook, collector = (
        HIDDEN if given else "" for given in (view.on_event, view.webhook, view.otlp_endpoint)
    )
    args = without_secret_values(spec.command.script_args)
    shown = without_secret_words(spec.command.shown)
    return replace(
        spec,
        command=replace(spec.command, script_args=args, shown=shown),
        view=replace(view, on_event=command, webhook=webhook, otlp_endpoint=collector),
    )
