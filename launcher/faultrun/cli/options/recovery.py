"""The options that say what happens when a worker fails, where to resume, and where output goes."""

from faultrun.cli.options.option import Option, Section, Takes

FAILURES = Section(
    title="When a worker fails",
    options=(
        Option(
            name="max_restarts",
            metavar="N",
            help="Restarts for faults in any restart_window; given back as training moves on.",
            default="3",
            torch=True,
            example="--max_restarts=3",
        ),
        Option(
            name="restart_window",
            metavar="TIME",
            help="The window in which restarts are counted.",
            default="1h",
            example="--restart_window=1h",
        ),
        Option(
            name="backoff",
            metavar="MIN..MAX",
            help="Wait before a restart, growing from MIN; none for the first one after progress.",
            default="1s..60s",
            example="--backoff=1s..60s",
        ),
        Option(
            name="signatures",
            metavar="FILE",
            help="Your own rows for the table of known failures (YAML), asked before the built-in ones.",
            example="--signatures=signatures.yaml",
        ),
        Option(
            name="standby",
            metavar="none|auto|N",
            help="Spare processes that have imported the framework and take a worker's place at once; auto: "
            "one for each worker where memory allows and nothing speaks against it.",
            default="auto",
            example="--standby=none",
        ),
        Option(
            name="grace",
            metavar="TIME",
            help="Time to save after a peer died: SIGTERM to SIGKILL.",
            default="30s",
            example="--grace=30s",
        ),
        Option(
            name="stop_grace",
            metavar="TIME",
            help="The same when faultrun itself is told to stop.",
            default="what the platform allows, else 30s",
            example="--stop_grace=2m",
        ),
        Option(
            name="hang_timeout",
            metavar="TIME|auto|off",
            help="A rank without a step for this long is replaced; auto: after 5m and 10 times the longest "
            "pause so far. Long before, a warning. Needs faultrun.sdk in the script, or hang_signal=log.",
            default="auto",
            example="--hang_timeout=10m",
        ),
        Option(
            name="hang_factor",
            metavar="N",
            help="A silence of so many usual steps is warned of.",
            default="20",
            example="--hang_factor=20",
        ),
        Option(
            name="hang_limits",
            metavar="WHAT=TIME,...",
            help="A rank silent for so long in startup, compile, step, checkpoint or evaluation is replaced; "
            "MIN..MAX are the bounds of a limit that is learnt.",
            default="none; warned of after: startup and compile 30m, step 1s..30m, checkpoint 1m..30m, "
            "evaluation 1m..1h",
            example="--hang_limits=compile=1h,checkpoint=10m",
        ),
        Option(
            name="hang_signal",
            metavar="sdk|log",
            help="log: without the SDK, a silent log together with no processor time and no I/O (10m).",
            default="sdk",
            example="--hang_signal=log",
        ),
        Option(
            name="signals",
            metavar="NAME=ANSWER,...",
            help="What TERM, INT, HUP, USR1 or USR2 to faultrun means: stop, save (and go on) or ignore.",
            default="stop for each",
            example="--signals=USR1=save",
        ),
        Option(
            name="shutdown_timeout",
            metavar="SECONDS",
            help="Sets grace and stop_grace together, as torchrun says it.",
            dashes=True,
            torch=True,
            example="--shutdown-timeout=60",
        ),
        Option(
            name="monitor_interval",
            metavar="SECONDS",
            help="Accepted for torchrun's sake; the kernel reports a death at once, nothing is polled.",
            dashes=True,
            torch=True,
            example="--monitor-interval=1",
        ),
        Option(
            name="reset_config",
            metavar="FILE",
            help="Ascend's reset.json: the platform's word to save and stop, wait for a device, or leave.",
            default="the platform's, if it is mounted",
            example="--reset_config=/user/restore/reset/config/reset.json",
        ),
        Option(
            name="fault_config",
            metavar="FILE",
            help="Ascend's fault-npus: ranks whose own checkpoints are the last to resume from.",
            default="the platform's, if it is mounted",
            example="--fault_config=/user/restore/fault/config/fault-npus",
        ),
    ),
)

RESUMING = Section(
    title="Where to resume",
    options=(
        Option(
            name="recipe",
            metavar="NAME|FILE",
            help="The following three, and more, as a known training code needs them; `faultrun recipes` "
            "lists them. What is given here or elsewhere wins over the recipe.",
            default="none",
            example="--recipe=mindspore-resnet",
        ),
        Option(
            name="checkpoint_dir",
            metavar="DIR",
            help="Where checkpoints are looked for.",
            takes=Takes.LIST,
            example="--checkpoint_dir=checkpoints",
        ),
        Option(
            name="rewrite",
            metavar="FILE:KEY[=TEMPLATE]",
            help="Configuration value to set to the checkpoint.",
            takes=Takes.LIST,
            default="={checkpoint}",
            example="--rewrite train.yaml:pre_trained",
        ),
        Option(
            name="resume_arg",
            metavar="TEMPLATE",
            help="Script argument to replace or append on a restart.",
            takes=Takes.LIST,
            example="--resume_arg=--pre_trained={checkpoint}",
        ),
        Option(
            name="resume",
            metavar="WHEN",
            help="What the first start does with checkpoints it finds: auto continues an unfinished run of "
            "this log_dir or run_id, always uses whatever is whole, never starts anew.",
            default="auto",
            example="--resume=always",
        ),
        Option(
            name="trust",
            metavar="",
            help="Use checkpoints that cannot be verified, e.g. encrypted ones, where a step has no other.",
            takes=Takes.NOTHING,
            example="--trust",
        ),
        Option(
            name="restore_configs",
            metavar="WHEN",
            help="Give rewritten files their first bytes back: end, however the run ends; never leaves it to "
            "`faultrun config restore`.",
            default="never",
            example="--restore_configs=end",
        ),
        Option(
            name="run_id",
            metavar="ID",
            help="Name of the run.",
            default="the job's id in MindX, Volcano, Kubernetes or Slurm, else a new one",
            example="--run_id=resnet-7",
        ),
    ),
)

LOGS = Section(
    title="Logs and console",
    options=(
        Option(
            name="log_dir",
            metavar="DIR",
            help="Logs, journal and incident cards.",
            default="faultrun_log",
            torch=True,
            example="--log_dir=faultrun_log",
        ),
        Option(
            name="worker_log_name",
            metavar="NAME",
            help="Log files are NAME_<rank>.log; {ip} and {hostname} are replaced.",
            default="worker",
            example="--worker_log_name=worker_{hostname}",
        ),
        Option(
            name="log_max_size",
            metavar="SIZE",
            help="A longer worker log is cut: its first and its newest part are kept. 0: never.",
            default="1g",
            example="--log_max_size=200m",
        ),
        Option(
            name="tail_worker_log",
            metavar="RANKS",
            help="Copy these ranks' output to the console: 0,3 or -1 for all.",
            default="none",
            example="--tail_worker_log=0",
        ),
        Option(
            name="tee",
            metavar="STREAMS",
            help="Copy to the console: 1 stdout, 2 stderr, 3 both, or per local rank 0:3,1:2.",
            short="t",
            dashes=True,
            torch=True,
            default="0",
            example="--tee=3",
        ),
        Option(
            name="redirects",
            metavar="STREAMS",
            help="Keep these streams off the console and show the others; written as for tee.",
            short="r",
            dashes=True,
            torch=True,
            default="3",
            example="--redirects=3",
        ),
        Option(
            name="termination_log",
            metavar="FILE",
            help="Gets one line with the reason of the end, if it exists.",
            default="/dev/termination-log",
            example="--termination_log=/dev/termination-log",
        ),
    ),
)
