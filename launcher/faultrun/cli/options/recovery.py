"""The options that say what happens when a worker fails, and where to resume."""

from faultrun.cli.options import values
from faultrun.cli.options.option import Flag, Option, Options, OrNone, Repeatable
from faultrun.cli.options.signature_file import signature_rows
from faultrun.model.hang import HangPolicy, HangSignal
from faultrun.model.spec import Recovery, RestartPolicy, RestoreConfigs, Resume, Windows

_HANG = HangPolicy()
_POLICY = RestartPolicy()
_RECOVERY = Recovery()
_WINDOWS = Windows()


class FailureOptions(Options):
    """What is done about a worker that fails, and how long it may take."""

    max_restarts = Option(
        "N",
        values.whole(0, 1_000_000),
        "Restarts for faults in any restart_window; given back as training moves on.",
        default=_POLICY.max_restarts,
        torch=True,
    )
    restart_window = Option(
        "TIME",
        values.seconds(366 * values.DAY_S),
        "The window in which restarts are counted.",
        default=_POLICY.window_s,
    )
    backoff = Option(
        "MIN..MAX",
        values.backoff,
        "Wait before a restart, growing from MIN; none for the first one after progress.",
        default=(_POLICY.backoff_min_s, _POLICY.backoff_max_s),
        shown=f"{_POLICY.backoff_min_s:g}s..{_POLICY.backoff_max_s:g}s",
    )
    signatures = Option(
        "FILE",
        signature_rows,
        "Your own rows for the table of known failures (YAML), asked before the built-in ones.",
        default=None,
        example="signatures.yaml",
    )
    standby = Option(
        "none|auto|N",
        values.standbys,
        "Spare processes that have imported the framework and take a worker's place at once; auto: "
        "one for each worker where memory allows and nothing speaks against it.",
        default=None,
        shown="auto",
        example="none",
    )
    grace = Option(
        "TIME",
        values.seconds(),
        "Time to save after a peer died: SIGTERM to SIGKILL.",
        default=_WINDOWS.grace_s,
    )
    stop_grace = Option(
        "TIME",
        values.seconds(),
        "The same when faultrun itself is told to stop.",
        default=None,
        shown=f"what the platform allows, else {_WINDOWS.stop_grace_s:g}s",
        example="2m",
    )
    hang_timeout = Option(
        "TIME|auto|off",
        values.hang_timeout,
        "A rank without a step for this long is replaced; auto: after 5m and 10 times the longest "
        "pause so far. Long before, a warning. Needs faultrun.sdk in the script, or hang_signal=log.",
        default=None,
        shown="auto",
        example="10m",
    )
    hang_factor = Option(
        "N",
        values.hang_factor,
        "A silence of so many usual steps is warned of.",
        default=_HANG.factor,
        shown=f"{_HANG.factor:g}",
    )
    hang_limits = Option(
        "WHAT=TIME,...",
        values.hang_limits,
        "A rank silent for so long in startup, compile, step, checkpoint or evaluation is replaced; "
        "MIN..MAX are the bounds of a limit that is learnt.",
        default=values.hang_limits(""),
        shown="none; warned of after: startup and compile 30m, step 1s..30m, checkpoint 1m..30m, "
        "evaluation 1m..1h",
        example="compile=1h,checkpoint=10m",
    )
    hang_signal = Option(
        "sdk|log",
        values.one_of(HangSignal),
        "log: without the SDK, a silent log together with no processor time and no I/O (10m).",
        default=_HANG.signal,
        example="log",
    )
    signals = Option(
        "NAME=ANSWER,...",
        values.signal_answers,
        "What TERM, INT, HUP, USR1 or USR2 to faultrun means: stop, save (and go on) or ignore.",
        default=values.signal_answers(""),
        shown="stop for each",
        example="USR1=save",
    )
    shutdown_timeout = Option(
        "SECONDS",
        values.seconds(),
        "Sets grace and stop_grace together, as torchrun says it.",
        default=None,
        example="60",
        dashes=True,
        torch=True,
    )
    monitor_interval = Option(
        "SECONDS",
        values.seconds(),
        "Accepted for torchrun's sake; the kernel reports a death at once, nothing is polled.",
        default=None,
        example="1",
        dashes=True,
        torch=True,
    )
    reset_config = Option(
        "FILE",
        values.or_none(str, ""),
        "Ascend's reset.json: the platform's word to save and stop, wait for a device, or leave.",
        default=None,
        shown="the platform's, if it is mounted",
        example="/user/restore/reset/config/reset.json",
    )
    fault_config = Option(
        "FILE",
        values.or_none(str, ""),
        "Ascend's fault-npus: ranks whose own checkpoints are the last to resume from.",
        default=None,
        shown="the platform's, if it is mounted",
        example="/user/restore/fault/config/fault-npus",
    )


class ResumeOptions(Options):
    """Where checkpoints are, and how the script learns of them."""

    recipe = OrNone(
        "NAME|FILE",
        str,
        "The following three, and more, as a known training code needs them; `faultrun recipes` "
        "lists them. What is given here or elsewhere wins over the recipe.",
        example="mindspore-resnet",
    )
    checkpoint_dir = Repeatable(
        "DIR", values.folder, "Where checkpoints are looked for.", example="checkpoints"
    )
    rewrite = Repeatable(
        "FILE:KEY[=TEMPLATE]",
        values.rewrite,
        "Configuration value to set to the checkpoint.",
        shown="={checkpoint}",
        example="--rewrite train.yaml:pre_trained",
    )
    resume_arg = Repeatable(
        "TEMPLATE",
        values.template,
        "Script argument to replace or append on a restart.",
        example="--resume_arg=--pre_trained={checkpoint}",
    )
    resume = Option(
        "WHEN",
        values.one_of(Resume),
        "What the first start does with checkpoints it finds: auto continues an unfinished run of "
        "this log_dir or run_id, always uses whatever is whole, never starts anew.",
        default=_RECOVERY.resume,
        example="always",
    )
    trust = Flag("Use checkpoints that cannot be verified, e.g. encrypted ones, where a step has no other.")
    restore_configs = Option(
        "WHEN",
        values.one_of(RestoreConfigs),
        "Give rewritten files their first bytes back: end, however the run ends; never leaves it to "
        "`faultrun config restore`.",
        default=_RECOVERY.restore_configs,
        example="end",
    )
    run_id = Option(
        "ID",
        values.run_id,
        "Name of the run.",
        default=None,
        shown="the job's id in MindX, Volcano, Kubernetes or Slurm, else a new one",
        example="resnet-7",
    )
