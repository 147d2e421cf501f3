"""Who tells of a run beside its supervisor: the narrator, and the sidecars that the options ask for."""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from faultrun import __version__
from faultrun.cli import console
from faultrun.core.secrets import HIDDEN, without_secret_values, without_secret_words
from faultrun.journal.append import FILE_NAME, JournalWriter
from faultrun.model.events import Event, IncarnationStarted
from faultrun.model.run import Step
from faultrun.model.spec import LogFormat, RunSpec
from faultrun.observe.reporters import ConsoleReporter, JsonReporter, note
from faultrun.observe.sidecar import CLEAR, Sidecar, Work

if TYPE_CHECKING:
    from faultrun.observe.live_line import VerificationMeter

_TERMINAL = 2
_LAST_PAINT_S = 1.0
_LAST_SCRAPE_S = 3.0
_LAST_TRACES_S = 4.0
_LAST_ANNOUNCEMENTS_S = 9.0
"""What is under way, then the rest. How long the end of a run waits for each of them, at most."""


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
    journal, view, policy = log_dir / FILE_NAME, spec.view, spec.supervision.policy
    about = {"run_id": spec.run_id, "framework": spec.framework.value, "version": __version__}

    def live_line(_lifeline: int) -> Work:
        from faultrun.observe.live_line import LiveLine

        return LiveLine(_TERMINAL, log_dir, spec.topology.world_size)

    def event_hooks(lifeline: int) -> Work:
        from faultrun.observe.announce import Announcer
        from faultrun.observe.event_hooks import EventHooks

        announcer = Announcer(spec.run_id, str(log_dir))
        return EventHooks(lifeline, announcer, log_dir, (view.on_event, view.webhook), next_seq)

    def exporter(_lifeline: int) -> Work:
        from faultrun.observe.exporter import Exporter

        endpoint = (view.metrics_addr, view.metrics_port) if view.metrics_port is not None else None
        return Exporter(log_dir, about, policy, endpoint, view.metrics_file)

    def scalars(_lifeline: int) -> Work:
        from faultrun.observe.scalars import Scalars

        return Scalars(log_dir, Path(view.tensorboard).absolute(), policy, next_seq)

    def tracer(_lifeline: int) -> Work:
        from faultrun.observe.tracer import Tracer

        resource = {f"faultrun.{name}": value for name, value in about.items()}
        return Tracer(log_dir, view.otlp_endpoint, resource, next_seq)

    wanted = (
        (has_live_line(spec), live_line, (_TERMINAL,), _LAST_PAINT_S),
        (bool(view.on_event or view.webhook), event_hooks, (), _LAST_ANNOUNCEMENTS_S),
        (view.metrics_port is not None or bool(view.metrics_file), exporter, (), _LAST_SCRAPE_S),
        (bool(view.tensorboard), scalars, (), _LAST_SCRAPE_S),
        (bool(view.otlp_endpoint), tracer, (), _LAST_TRACES_S),
    )
    return [Sidecar(make, journal, keep=keep, patience_s=s) for asked, make, keep, s in wanted if asked]


def meter_for(spec: RunSpec, log_dir: Path) -> "VerificationMeter | None":
    """Only where a live line shows it."""
    if not has_live_line(spec):
        return None
    from faultrun.observe.live_line import METER, VerificationMeter

    return VerificationMeter(log_dir / METER)


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


class ReadyNotifier:
    """Tells that workers run: ``--join=False`` returns then.

    And that the journal cannot be written: training goes on, but a person should know.
    """

    def __init__(self, ready: Callable[[], None], journal: JournalWriter, say: Callable[[str], None]) -> None:
        self._ready = ready
        self._journal = journal
        self._say = say
        self._trouble = ""

    def tell(self, event: Event, step: Step) -> None:  # noqa: ARG002  the port's
        """See ``ports.EventListener``."""
        if self._journal.trouble != self._trouble:
            self._trouble = self._journal.trouble
            self._say(self._trouble or "the journal is written again, nothing of it is missing")
        if isinstance(event, IncarnationStarted):
            self._ready()
