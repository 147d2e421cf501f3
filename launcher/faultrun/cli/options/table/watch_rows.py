"""The options about logs and about how a run is watched, a row each, as in ``run_rows``."""

from faultrun.cli.options import values
from faultrun.cli.options.assume_values import assumptions, defaults_in_words
from faultrun.cli.options.choices import one_of
from faultrun.cli.options.option import Option, Options, OrNone, Switch
from faultrun.model.spec.assumptions import Assumptions
from faultrun.model.spec.output import LogFormat, Logs, Stream, View

_LOGS = Logs()
_VIEW = View()


class LogOptions(Options):
    """Log files and the console."""

    log_dir = Option("DIR", lambda text: text or ".", default=_LOGS.log_dir, torch=True)
    """Logs, journal and incident cards."""
    worker_log_name = Option("NAME", str, default=_LOGS.worker_log_name, example="worker_{hostname}")
    """Log files are NAME_<rank>.log; {ip} and {hostname} are replaced."""
    log_max_size = Option(
        "SIZE", values.size, default=_LOGS.max_bytes, shown=f"{_LOGS.max_bytes >> 30}g", example="200m"
    )
    """A longer worker log is cut: its first and its newest part are kept. 0: never."""
    step_pattern = Option(
        "REGEX",
        values.step_pattern,
        default=_LOGS.step_pattern,
        shown="learnt from the logs",
        example=r"'round (?P<step>\d+)'",
    )
    """The lines of a log that tell how far training is: (?P<step>...), and (?P<epoch>...) where steps count
    anew in each epoch.
    """
    tail_worker_log = Option(
        "RANKS",
        values.or_none(values.ranks, None),
        default=None,
        shown="0 on a terminal, else none",
        example="0,3",
    )
    """Copy the output of these ranks to the console, each line behind [rank]: 0,3, -1 for all, or none."""
    tee = Option(
        "STREAMS",
        values.streams,
        default=dict[int | None, Stream](),
        shown="0",
        example="3",
        short="t",
        dashes=True,
        torch=True,
    )
    """Copy to the console: 1 stdout, 2 stderr, 3 both, or per local rank 0:3,1:2."""
    redirects = Option(
        "STREAMS",
        values.streams,
        default=dict[int | None, Stream](),
        shown="3",
        short="r",
        dashes=True,
        torch=True,
    )
    """Keep these streams off the console and show the others; written as for tee."""
    termination_log = Option(
        "FILE", lambda text: text or _LOGS.termination_log, default=_LOGS.termination_log
    )
    """If this file exists, it gets one line with the reason of the end, for Kubernetes."""


class WatchOptions(Options):
    """How the run is watched."""

    log_format = Option("text|json", one_of(LogFormat), default=_VIEW.log_format, example="json")
    """What faultrun itself says on stderr: lines for people, or one JSON object an event."""
    live_line = Switch()
    """On a terminal keep a line with ranks, step and rate at the bottom."""
    report = Switch()
    """Write report.html, .md and .json into the log_dir at the end."""
    assume = Option(
        "NAME=VALUE,...",
        assumptions,
        default=Assumptions(),
        shown=defaults_in_words(),
        example="notice=30min,restart=1h",
    )
    """What is assumed of the same faults without faultrun, to say what they would have cost; each name is
    explained by `faultrun docs what-it-saved`.
    """
    metrics_port = Option(
        "PORT",
        values.or_none(values.whole(1, 65_535), None),
        default=_VIEW.metrics_port,
        shown="none",
        example="9464",
    )
    """Serve metrics for Prometheus at this port (needs faultrun[metrics])."""
    metrics_addr = Option(
        "ADDR",
        values.or_none(values.address, ""),
        default="",
        shown=f"{_VIEW.metrics_addr}, in a pod every address",
        example="0.0.0.0",
    )
    """Address for metrics_port. Anyone who can reach it can read the run's id and steps."""
    metrics_file = OrNone("FILE.prom", values.prom_file, example="/var/lib/node_exporter/faultrun.prom")
    """Write the metrics to a file, every 10 s and at the end, for node_exporter's textfile collector."""
    on_event = OrNone("CMD", str, example="'cat >> events.jsonl'")
    """Shell command that gets JSON on stdin at each warning, incident, restart, give-up and end."""
    webhook = OrNone("URL", values.webhook, example="https://chat.example.org/hooks/training")
    """Send the JSON of on_event to this address, in a POST."""
