"""The options that say where output goes, how a run is watched, and who is told of it."""

from faultrun.cli.options import values
from faultrun.cli.options.option import Option, Options, OrNone, Switch
from faultrun.model.spec import LogFormat, Logs, Stream, View

_LOGS = Logs()
_VIEW = View()


class LogOptions(Options):
    """Log files and the console."""

    log_dir = Option(
        "DIR",
        lambda text: text or ".",  # msrun's empty log_dir is the working directory
        "Logs, journal and incident cards.",
        default=_LOGS.log_dir,
        torch=True,
    )
    worker_log_name = Option(
        "NAME",
        str,
        "Log files are NAME_<rank>.log; {ip} and {hostname} are replaced.",
        default=_LOGS.worker_log_name,
        example="worker_{hostname}",
    )
    log_max_size = Option(
        "SIZE",
        values.size,
        "A longer worker log is cut: its first and its newest part are kept. 0: never.",
        default=_LOGS.max_bytes,
        shown=f"{_LOGS.max_bytes >> 30}g",
        example="200m",
    )
    tail_worker_log = Option(
        "RANKS",
        values.ranks,
        "Copy these ranks' output to the console: 0,3 or -1 for all.",
        default=None,
        shown="none",
        example="0",
    )
    tee = Option(
        "STREAMS",
        values.streams,
        "Copy to the console: 1 stdout, 2 stderr, 3 both, or per local rank 0:3,1:2.",
        default=dict[int | None, Stream](),
        shown="0",
        example="3",
        short="t",
        dashes=True,
        torch=True,
    )
    redirects = Option(
        "STREAMS",
        values.streams,
        "Keep these streams off the console and show the others; written as for tee.",
        default=dict[int | None, Stream](),
        shown="3",
        short="r",
        dashes=True,
        torch=True,
    )
    termination_log = Option(
        "FILE",
        lambda text: text or _LOGS.termination_log,
        "Gets one line with the reason of the end, if it exists.",
        default=_LOGS.termination_log,
    )


class WatchOptions(Options):
    """How the run is watched."""

    log_format = Option(
        "text|json",
        values.one_of(LogFormat),
        "What faultrun itself says on stderr: lines for people, or one JSON object an event.",
        default=_VIEW.log_format,
        example="json",
    )
    live_line = Switch("On a terminal keep a line with ranks, step and rate at the bottom.")
    report = Switch("Write report.html, .md and .json into the log_dir at the end.")
    metrics_port = Option(
        "PORT",
        values.or_none(values.whole(1, 65_535), None),
        "Serve metrics for Prometheus at this port (needs faultrun[metrics]).",
        default=_VIEW.metrics_port,
        shown="none",
        example="9464",
    )
    metrics_addr = Option(
        "ADDR",
        values.or_none(values.address, ""),
        "The address at which they are served; whoever reaches it reads the run's id and steps.",
        default="",
        shown=f"{_VIEW.metrics_addr}, in a pod every address",
        example="0.0.0.0",
    )
    metrics_file = OrNone(
        "FILE.prom",
        values.prom_file,
        "Write them to a file, every 10 s and at the end, for node_exporter's textfile collector.",
        example="/var/lib/node_exporter/faultrun.prom",
    )
    tensorboard = OrNone(
        "DIR",
        str,
        "Write pace, restarts and recoveries as TensorBoard scalars (needs faultrun[tensorboard]).",
        example="runs/faultrun",
    )
    otlp_endpoint = OrNone(
        "URL",
        values.collector,
        "Send each recovery as an OpenTelemetry trace, by OTLP over HTTP (needs faultrun[otel]).",
        example="http://collector:4318",
    )
    on_event = OrNone(
        "CMD",
        str,
        "Shell command that gets JSON on stdin at each warning, incident, restart, give-up and end.",
        example="'cat >> events.jsonl'",
    )
    webhook = OrNone(
        "URL",
        values.webhook,
        "The same JSON in a POST.",
        example="https://chat.example.org/hooks/training",
    )
