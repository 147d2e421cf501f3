"""Who tells of a run beside its supervisor: the narrator, and the sidecars that the options ask for.

And what our standard error is: a terminal to share with them, with colours or not.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from faultrun import __version__
from faultrun.cli import console
from faultrun.core.redact import HIDDEN, without_secret_values, without_secret_words
from faultrun.journal.append import FILE_NAME, JournalWriter
from faultrun.model.events import Event, IncarnationStarted
from faultrun.model.line_tone import Tone
from faultrun.model.run import Step
from faultrun.model.spec.output import LogFormat, Stream
from faultrun.model.spec.run_spec import RunSpec
from faultrun.observe.console.json_reporter import JsonReporter, note
from faultrun.observe.console.reporters import ConsoleReporter
from faultrun.platforms.this_machine import hostname
from faultrun.terminal import BottomRow, has_colours, is_terminal, obeys_escapes
from faultrun.workers.logs.streams import prefix_of

if TYPE_CHECKING:
    from faultrun.observe.console.live_line import UnfinishedLine, VerificationMeter
    from faultrun.observe.outlets.sidecar import Sidecar, Work

_TERMINAL = 2
_STDOUT = 1
_LAST_PAINT_S, _LAST_SCRAPE_S = 1.0, 3.0
_LAST_ANNOUNCEMENTS_S = 9.0
"""What is under way, then the rest. How long the end of a run waits for each of them, at most."""


def narrator_for(spec: RunSpec, log_dir: Path, say: Callable[[str], None]) -> ConsoleReporter | JsonReporter:
    """Words for people, or objects for a log collector."""
    if spec.view.log_format is LogFormat.JSON:
        return JsonReporter(spec, log_dir, console.write)
    return ConsoleReporter(spec, log_dir, say)


def speak(spec: RunSpec, environ: Mapping[str, str]) -> BottomRow | None:
    """Have the console say everything in the form that was asked for.

    The last row of the terminal where a live line shall stand in it, else None. To be called before any fork.
    """
    if spec.view.log_format is LogFormat.JSON:
        console.speak(lambda text: note(spec, text))
        return None
    a_person_reads = is_terminal(_TERMINAL) and spec.supervision.join
    colours = has_colours(environ, is_terminal=a_person_reads)
    console.stamp_lines(hostname().partition(".")[0])
    if colours:
        console.use_colours()
    if not (a_person_reads and spec.view.live_line and obeys_escapes(environ)):
        return None
    row = BottomRow(_TERMINAL, Tone.QUIET if colours else Tone.PLAIN)
    console.share_terminal(row)
    return row


def _unfinished(spec: RunSpec, log_dir: Path) -> "tuple[UnfinishedLine, ...]":
    """The workers whose output goes to the terminal of the live line."""
    from faultrun.observe.console.live_line import UnfinishedLine

    logs = spec.logs
    ranks = sorted(spec.topology.all_ranks) if is_terminal(_STDOUT) else ()
    return tuple(
        UnfinishedLine(log_dir / f"{logs.worker_log_name}_{rank}.log", prefix_of(rank))
        for rank in ranks
        if logs.console(rank, rank % spec.slots) in (Stream.OUT, Stream.ALL)
    )


def sidecars(spec: RunSpec, log_dir: Path, next_seq: int, row: BottomRow | None) -> "list[Sidecar]":
    """Start those that are wanted; before any thread. ``next_seq`` is the first line that we shall write.

    ``row`` is where the live line stands, if there is one.
    """
    journal, view, policy = log_dir / FILE_NAME, spec.view, spec.supervision.policy
    about = {"run_id": spec.run_id, "framework": spec.framework.value, "version": __version__}

    def live_line(_lifeline: int) -> "Work":
        from faultrun.observe.console.live_line import LiveLine

        assert row is not None
        logs, unfinished = spec.logs, _unfinished(spec, log_dir)
        return LiveLine(row, log_dir, spec.slots, logs, unfinished)

    def event_hooks(lifeline: int) -> "Work":
        from faultrun.observe.outlets.hooks import EventHooks
        from faultrun.observe.outlets.messages import Announcer

        announcer = Announcer(spec.run_id, str(log_dir))
        return EventHooks(lifeline, announcer, log_dir, (view.on_event, view.webhook), next_seq)

    def exporter(_lifeline: int) -> "Work":
        from faultrun.observe.outlets.prometheus import Exporter

        endpoint = (view.metrics_addr, view.metrics_port) if view.metrics_port is not None else None
        return Exporter(log_dir, about, policy, endpoint, view.metrics_file)

    wanted = (
        (row is not None, live_line, (_STDOUT, _TERMINAL), _LAST_PAINT_S),
        (bool(view.on_event or view.webhook), event_hooks, (), _LAST_ANNOUNCEMENTS_S),
        (view.metrics_port is not None or bool(view.metrics_file), exporter, (), _LAST_SCRAPE_S),
    )
    if not any(asked for asked, *_ in wanted):
        return []
    from faultrun.observe.outlets.sidecar import Sidecar

    return [Sidecar(make, journal, keep=keep, patience_s=s) for asked, make, keep, s in wanted if asked]


def meter_for(row: BottomRow | None, log_dir: Path) -> "VerificationMeter | None":
    """Only where a live line shows it."""
    if row is None:
        return None
    from faultrun.observe.console.live_line import METER, VerificationMeter

    return VerificationMeter(log_dir / METER)


def without_secrets(spec: RunSpec) -> RunSpec:
    """Return ``spec`` as ``run.json`` may show it to others: a command or an address often holds a token."""
    view = spec.view
    command, webhook = (HIDDEN if given else "" for given in (view.on_event, view.webhook))
    args = without_secret_values(spec.command.script_args)
    return replace(
        spec,
        command=replace(spec.command, script_args=args, shown=without_secret_words(spec.command.shown)),
        view=replace(view, on_event=command, webhook=webhook),
    )


class ReadyNotifier:
    """Tells that workers run: ``--join=False`` returns then.

    And that the journal cannot be written: training goes on, but a person should know.
    """

    def __init__(self, ready: Callable[[], None], journal: JournalWriter, say: Callable[[str], None]) -> None:
        self._ready, self._journal, self._say = ready, journal, say
        self._trouble = ""

    def tell(self, event: Event, step: Step) -> None:  # noqa: ARG002  the port's
        """Say that the journal cannot be written, or can again, and call ``ready`` as workers start."""
        if self._journal.trouble != self._trouble:
            self._trouble = self._journal.trouble
            self._say(self._trouble or "the journal can be written again; no line of it was lost")
        if isinstance(event, IncarnationStarted):
            self._ready()
