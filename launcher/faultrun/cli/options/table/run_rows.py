"""The options of ``faultrun run``, a row each; what it does is the text below its row.

Defaults are those of ``model/spec/run_spec.py``. Sources: msrun's options from
mindspore/parallel/cluster/run.py of MindSpore 2.10, torchrun's from torch/distributed/run.py of PyTorch 2.13.
"""

from faultrun.cli.options import node_addresses, values
from faultrun.cli.options.choices import DryRun, one_of, one_of_or_auto
from faultrun.cli.options.option import Flag, Option, Options, OrNone, Repeatable, Switch, Takes
from faultrun.cli.options.signature_file import signature_rows
from faultrun.model.exits import WorkerExitCodes
from faultrun.model.observed.elastic import Grow
from faultrun.model.observed.hang import HangPolicy, HangSignal
from faultrun.model.spec.nodes_spec import AgreementSpec, EtcdAccess, OnAgreementLoss
from faultrun.model.spec.run_spec import (
    Framework,
    MsScheduler,
    OnFault,
    Recovery,
    Rendezvous,
    RestartPolicy,
    RestoreConfigs,
    Resume,
    WhileMissing,
)
from faultrun.model.spec.windows import Windows
from faultrun.model.spec.worker_identity import RankEnv, folder_template

_AGREEMENT = AgreementSpec(etcd=EtcdAccess(endpoints=()))
_HANG = HangPolicy()
_POLICY = RestartPolicy()
_RECOVERY = Recovery()
_RENDEZVOUS = Rendezvous()
_WINDOWS = Windows()


class WorkerOptions(Options):
    """How many workers, of what, where."""

    worker_num = Option(
        "N",
        values.whole(1, values.MOST_WORKERS),
        default=None,
        shown="the rank table's count, else the visible accelerators, else 1",
        example="4",
    )
    """Workers of the whole run."""
    local_worker_num = Option(
        "N", values.whole(1, values.MOST_WORKERS), default=None, shown="worker_num", example="4"
    )
    """Workers on this node."""
    nproc_per_node = Option("N|auto|gpu|npu|cpu", str, default="", example="4", dashes=True, torch=True)
    """torchrun's name for local_worker_num."""
    framework = Option("NAME", one_of_or_auto(Framework), default=None, shown="auto", example="torch")
    """mindspore, torch, tensorflow or plain; auto reads the script's imports without running it."""
    module = Flag(short="m", dashes=True, torch=True, example="-m mypackage.train")
    """SCRIPT is a module, run as `python -m SCRIPT`."""
    no_python = Flag(dashes=True, torch=True, example="--no-python ./train")
    """Run SCRIPT itself, even if it ends in .py."""
    worker_dir = OrNone("DIR", folder_template, example="rank_{rank}")
    """Working directory of each worker, made if missing: {rank}, {local_rank} and {node_rank} are replaced.
    Relative paths in SCRIPT and its arguments are resolved where faultrun is started.
    """
    rank_env = Option("torchrun|none", one_of(RankEnv), default=RankEnv.TORCHRUN, example="none")
    """torchrun: RANK, WORLD_SIZE, MASTER_ADDR and what else launchers tell a worker; none: a single worker is
    told none of it, as by `python SCRIPT`: many scripts begin torch.distributed where RANK is there.
    """
    bind_core = Option("True|JSON", str, default="False", example="True")
    """Tie workers to cores: True shares them evenly, or {"device0":["0-3"],"scheduler":["4"]}."""
    bind_numa = Option("True|JSON|FILE", str, default="False", example="True")
    """Tie workers to NUMA nodes, processors and memory; a .json FILE is msrun's bind file."""
    rank_table_file = Option(
        "FILE",
        str,
        default="",
        shown="$RANK_TABLE_FILE, else the platform's, if it is mounted",
        example="hccl.json",
    )
    """Ascend's rank table (hccl.json): who runs on which device. Handed to the workers."""
    rank_table_wait = Option("TIME", values.seconds(), default=_RENDEZVOUS.rank_table_wait_s, example="10m")
    """How long to wait until the platform has finished the rank table."""


class MeetingOptions(Options):
    """Where the workers meet, and who brings them together."""

    master_addr = Option("HOST", str, default=_RENDEZVOUS.master_addr, torch=True)
    """Where the workers meet; of several nodes without an etcd of yours, where the first node serves one."""
    master_port = Option(
        "PORT", values.whole(0, 65_535), default=None, shown="a free port", example="10970", torch=True
    )
    """Port of the first start; restarts take a fresh one."""
    fixed_port = Flag()
    """Keep the same port for every restart."""
    master_port_range = Option("A-B", values.ports, default=None, shown="any", example="29500-29599")
    """Ports that nodes may use of one another, where firewalls leave only some open."""
    cluster_time_out = Option(
        "SECONDS", values.patience_s, default=_RENDEZVOUS.cluster_time_out_s, example="300"
    )
    """How long MindSpore waits until all its workers have met; negative waits for ever."""
    ms_scheduler = Option("WHO", one_of_or_auto(MsScheduler), default=None, shown="auto", example="native")
    """Who brings MindSpore's workers together: builtin (faultrun itself: init() in one second), native
    (MindSpore's scheduler process), or auto: builtin on CPU for proved versions.
    """
    compile_cache = OrNone("log_dir|DIR", str, example="log_dir")
    """Keep MindSpore's compiled graphs for the next start of this job. Only for scripts whose graphs hold no
    number that changes on a restart: MindSpore would not notice.
    """
    nnodes = Option("N|MIN:MAX", node_addresses.nodes, default=1, example="2:3", dashes=True, torch=True)
    """Nodes of the run; a node beyond them is a spare. With MIN:MAX the run begins, or goes on, without
    missing nodes once node_wait is over, with at least MIN; it goes on only from a checkpoint that serves
    another number of workers.
    """
    node_rank = Option(
        "N", node_addresses.node_rank, default=None, shown="by arrival", example="1", torch=True
    )
    """Index of this node among those that start together."""
    node_name = Option(
        "NAME", values.or_none(values.run_id, ""), default="", shown="the machine's or pod's", example="gpu07"
    )
    """Name of this node among several."""
    standalone = Flag(dashes=True, torch=True)
    """One node with a free port of its own, whatever else is said about meeting."""
    rdzv_backend = Option("NAME", str, default="", example="c10d", dashes=True, torch=True)
    """Where several nodes agree: etcd (also etcd-v2), or c10d or static: the first node serves etcd."""
    rdzv_endpoint = Option("HOST:PORT", str, default="", example="localhost:29500", dashes=True, torch=True)
    """The members of etcd, between commas; with another backend the same as master_addr and master_port."""
    rdzv_id = Option("ID", str, default="", example="job7", dashes=True, torch=True)
    """Used as run_id."""
    lease_ttl = Option(
        "TIME", node_addresses.lease_ttl, default=_AGREEMENT.lease_ttl_s, shown=f"{_AGREEMENT.lease_ttl_s}s"
    )
    """Of several nodes, one that is silent for this long is lost; whole seconds, 3 to 600."""
    node_wait = Option("TIME", values.seconds(30 * values.DAY_S), default=_AGREEMENT.node_wait_s)
    """How long several nodes wait for one that is missing; with nnodes=MIN:MAX they go on without it then."""
    on_agreement_loss = Option("hold|fence", one_of(OnAgreementLoss), default=_AGREEMENT.on_loss)
    """What several nodes do when etcd answers none of them: hold, training goes on; fence, it ends."""


class FailureOptions(Options):
    """What is done about a worker that fails, and how long it may take."""

    max_restarts = Option("N", values.whole(0, 1_000_000), default=_POLICY.max_restarts, torch=True)
    """Restarts for faults in any restart_window; given back as training moves on."""
    restart_window = Option("TIME", values.seconds(366 * values.DAY_S), default=_POLICY.window_s)
    """The window in which restarts are counted."""
    backoff = Option(
        "MIN..MAX",
        values.backoff,
        default=(_POLICY.backoff_min_s, _POLICY.backoff_max_s),
        shown=f"{_POLICY.backoff_min_s:g}s..{_POLICY.backoff_max_s:g}s",
    )
    """Wait before a restart, growing from MIN; none for the first one after progress."""
    signatures = Option("FILE", signature_rows, default=None, example="signatures.yaml")
    """Your own rows for the table of known failures (YAML), asked before the built-in ones."""
    standby = Option("none|auto|N", values.standbys, default=None, shown="auto", example="none")
    """Spare processes that have imported the framework and take a worker's place at once; auto: one for each
    worker where memory allows and nothing speaks against it.
    """
    on_fault = Option("auto|replace|restart", one_of(OnFault), default=OnFault.AUTO, example="restart")
    """auto: survivors keep their processes where the script can (guard.steps of sdk.torch), else all start
    again; replace: the same, and each incident in which none did says why; restart: all start again.
    """
    worker_exit_codes = Option(
        "usual|torchft", one_of(WorkerExitCodes), default=WorkerExitCodes.USUAL, example="torchft"
    )
    """torchft: the training recovers by itself (torchft.fsdp). A dead worker alone is started again, the
    others are left to themselves, and exit code 3 ends the run.
    """
    rejoin_timeout = Option("TIME", values.seconds(), default=30.0, example="10s")
    """How long survivors and the new process in a dead rank's place may need to be one group; then all start
    again.
    """
    while_missing = Option(
        "wait|train",
        one_of(WhileMissing),
        default=None,
        shown="wait; train with min_worker_num",
        example="train",
    )
    """Until a new process is in a dead rank's place, survivors wait, or train on with the same global batch
    and share its samples (guard.batches of sdk.torch); no fewer than min_worker_num, or half of the workers.
    """
    heal_timeout = Option("TIME", values.seconds(shortest_s=1), default=_WINDOWS.heal_s, example="30m")
    """How long they train on without it; then all begin again as fewer (min_worker_num), or wait."""
    min_worker_num = Option(
        "N", values.whole(1, values.MOST_WORKERS), default=None, shown="worker_num: never fewer", example="3"
    )
    """Go on with fewer workers, at least N, when a device is broken or its rank failed twice in a row; only
    from a checkpoint that serves another number of workers.
    """
    grow = Option("at_save|never", one_of(Grow), default=Grow.AT_SAVE, example="never")
    """When workers that min_worker_num left out come back: at a save, once health_check passes, or never;
    with nnodes=MIN:MAX, when a node may take an empty place.
    """
    health_check = OrNone("CMD", str, example="'check-device $FAULTRUN_SLOT'")
    """Shell command that ends with 0 if the device of a worker that was left out is well (faultrun doctor
    --device); on a node that was set aside it runs for each slot.
    """
    grace = Option("TIME", values.seconds(), default=_WINDOWS.grace_s)
    """Time to save after a peer died: SIGTERM to SIGKILL."""
    stop_grace = Option(
        "TIME",
        values.seconds(),
        default=None,
        shown=f"what the platform allows, else {_WINDOWS.stop_grace_s:g}s",
        example="2m",
    )
    """Time to save when faultrun itself is told to stop."""
    hang_timeout = Option("TIME|auto|off", values.hang_timeout, default=None, shown="auto", example="10m")
    """Replace a rank that has done no step for this long; auto: 5m or 10 times the longest pause so far,
    whichever is longer. A warning comes much earlier. Needs faultrun.sdk in the script, or hang_signal=log.
    """
    hang_factor = Option("N", values.hang_factor, default=_HANG.factor, shown=f"{_HANG.factor:g}")
    """Warn of a rank that is silent for this many times its usual step."""
    hang_limits = Option(
        "WHAT=TIME,...",
        values.hang_limits,
        default=values.hang_limits(""),
        shown="none; warned of after: startup and compile 30m, step 1s..30m, checkpoint 1m..30m, "
        "evaluation 1m..1h",
        example="compile=1h,checkpoint=10m",
    )
    """Replace a rank that is silent for this long in startup, compile, step, checkpoint or evaluation;
    MIN..MAX are the bounds of a limit that is learnt.
    """
    hang_signal = Option("sdk|log", one_of(HangSignal), default=_HANG.signal, example="log")
    """What shows that a rank is alive: sdk, the steps that it reports; log, for scripts without the SDK: its
    log, processor time and I/O (10m without any is a hang).
    """
    signals = Option(
        "NAME=ANSWER,...",
        values.signal_answers,
        default=values.signal_answers(""),
        shown="stop for each",
        example="USR1=save",
    )
    """What TERM, INT, HUP, USR1 or USR2 to faultrun means: stop, save (and go on) or ignore."""
    leave_running = Option(
        "TIME|forever|none",
        values.leave_running,
        default=None,
        shown="forever; as PID 1 the stop window",
        example="10m",
    )
    """How long what ranks left running that ended with 0 may go on (on one node); the end names it."""
    shutdown_timeout = Option(
        "SECONDS", values.seconds(), default=None, example="60", dashes=True, torch=True
    )
    """torchrun's name: sets grace and stop_grace together."""
    monitor_interval = Option("SECONDS", values.seconds(), default=None, example="1", dashes=True, torch=True)
    """Accepted for torchrun's sake; the kernel reports a death at once, nothing is polled."""
    reset_config = Option(
        "FILE",
        values.or_none(str, ""),
        default=None,
        shown="the platform's, if it is mounted",
        example="/user/restore/reset/config/reset.json",
    )
    """Ascend's reset.json: the platform's word to save and stop, wait for a device, or leave."""
    fault_config = Option(
        "FILE",
        values.or_none(str, ""),
        default=None,
        shown="the platform's, if it is mounted",
        example="/user/restore/fault/config/fault-npus",
    )
    """Ascend's fault-npus: ranks whose own checkpoints are the last to resume from, and with min_worker_num
    whose devices are left out.
    """


class ResumeOptions(Options):
    """Where checkpoints are, and how the script learns of them."""

    recipe = OrNone("NAME|FILE", str, example="mindspore-resnet")
    """A preset of the next options for a known training code; `faultrun recipes` lists the presets.
    What is given here or elsewhere wins over the recipe.
    """
    checkpoint_dir = Repeatable("DIR", values.folder, example="checkpoints")
    """Where checkpoints are looked for."""
    checkpoint_pattern = OrNone("REGEX", values.checkpoint_pattern, example=r"'state-(?P<step>\d+)\.bin'")
    """Names of checkpoints in a format that faultrun does not know, as Python's re; its groups rank, epoch,
    step and step_in_epoch are what a name tells.
    """
    rewrite = Repeatable(
        "FILE:KEY[=TEMPLATE]",
        values.rewrite,
        shown="={checkpoint}",
        example="--rewrite train.yaml:pre_trained",
    )
    """Configuration value to set to the checkpoint."""
    resume_arg = Repeatable("TEMPLATE", values.resume_arg, example="--resume_arg=--pre_trained={checkpoint}")
    """Script argument to replace or append on a restart."""
    resume = Option("WHEN", one_of(Resume), default=_RECOVERY.resume, example="always")
    """What a new run does with checkpoints it finds: auto uses those of its own run_id, until a run of that
    id has ended with 0; always whatever is whole, never none. An unfinished run of this log_dir goes on with
    its own in any case.
    """
    trust = Flag()
    """Use checkpoints that cannot be verified, e.g. encrypted ones, where a step has no other."""
    restore_configs = Option(
        "WHEN", one_of(RestoreConfigs), default=_RECOVERY.restore_configs, example="never"
    )
    """Restore the rewritten values: end, when the run ends with 0 or is given up, and not when it is
    stopped; never leaves it to `faultrun config restore`.
    """
    run_id = Option(
        "ID",
        values.run_id,
        default=None,
        shown="the job's id in MindX, Volcano, Kubernetes or Slurm, "
        "and on one node its log_dir; else a new one",
        example="resnet-7",
    )
    """Name of the run."""


class CommandOptions(Options):
    """How the command itself behaves."""

    join = Switch()
    """False returns once the workers run and supervises in the background."""
    exit_code_on_stop = Option(
        "CODE", values.whole(0, 255), default=None, shown="143 for SIGTERM, 130 for SIGINT", example="0"
    )
    """Exit code when told to stop."""
    sim_level = Option("0..3", values.whole(-1, 3), default=-1, example="1")
    """MindSpore's dry run (MS_SIMULATION_LEVEL); -1 is none."""
    sim_rank_id = Option("RANK", values.whole(-1, values.MOST_WORKERS), default=-1, example="0")
    """Dry run this one rank only; -1 runs all."""
    config = Option(
        "FILE|none", str, default="", shown="faultrun.yaml beside SCRIPT", example="faultrun.yaml"
    )
    """Options from a YAML file, by name; none: from no file."""
    dry_run = Option(
        "[=full]",
        values.dry_run,
        default=DryRun.NONE,
        shown="",
        takes=Takes.SWITCH,
        example="--dry-run",
        dashes=True,
    )
    """Print what would be started, changed and resumed from; start nothing. Of many workers the first are
    shown and how the others differ; =full shows all.
    """
