"""The options that say how a run is watched, and who is told of it."""

from faultrun.cli.options.option import Option, Section, Takes

WATCHING = Section(
    title="Watching the run",
    options=(
        Option(
            name="log_format",
            metavar="text|json",
            help="What faultrun itself says on stderr: lines for people, or one JSON object an event.",
            default="text",
            example="--log_format=json",
        ),
        Option(
            name="live_line",
            metavar="True|False",
            help="On a terminal keep a line with ranks, step and rate at the bottom.",
            takes=Takes.SWITCH,
            default="True",
            example="--live_line=False",
        ),
        Option(
            name="report",
            metavar="True|False",
            help="Write report.html, .md and .json into the log_dir at the end.",
            takes=Takes.SWITCH,
            default="True",
            example="--report=False",
        ),
        Option(
            name="metrics_port",
            metavar="PORT",
            help="Serve metrics for Prometheus at this port (needs faultrun[metrics]).",
            default="none",
            example="--metrics_port=9464",
        ),
        Option(
            name="metrics_addr",
            metavar="ADDR",
            help="The address at which they are served; whoever reaches it reads the run's id and steps.",
            default="127.0.0.1, in a pod every address",
            example="--metrics_addr=0.0.0.0",
        ),
        Option(
            name="metrics_file",
            metavar="FILE.prom",
            help="Write them to a file, every 10 s and at the end, for node_exporter's textfile collector.",
            default="none",
            example="--metrics_file=/var/lib/node_exporter/faultrun.prom",
        ),
        Option(
            name="tensorboard",
            metavar="DIR",
            help="Write pace, restarts and recoveries as TensorBoard scalars (needs faultrun[tensorboard]).",
            default="none",
            example="--tensorboard=runs/faultrun",
        ),
        Option(
            name="otlp_endpoint",
            metavar="URL",
            help="Send each recovery as an OpenTelemetry trace, by OTLP over HTTP (needs faultrun[otel]).",
            default="none",
            example="--otlp_endpoint=http://collector:4318",
        ),
        Option(
            name="on_event",
            metavar="CMD",
            help="Shell command that gets JSON on stdin at each warning, incident, restart, give-up and end.",
            default="none",
            example="--on_event='cat >> events.jsonl'",
        ),
        Option(
            name="webhook",
            metavar="URL",
            help="The same JSON in a POST.",
            default="none",
            example="--webhook=https://chat.example.org/hooks/training",
        ),
    ),
)
