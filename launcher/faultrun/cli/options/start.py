"""The options that say what is started and where the workers meet, and those of the command itself.

Sources: msrun's options from mindspore/parallel/cluster/run.py of MindSpore 2.10, torchrun's from
torch/distributed/run.py of PyTorch 2.13.
"""

from faultrun.cli.options import values
from faultrun.cli.options.option import Flag, Option, Options, OrNone, Switch
from faultrun.model.spec import Framework, MsScheduler, Rendezvous

_RENDEZVOUS = Rendezvous()


class WorkerOptions(Options):
    """How many workers, of what, where."""

    worker_num = Option(
        "N",
        values.whole(1, values.MOST_WORKERS),
        "Workers of the whole run.",
        default=None,
        shown="the rank table's count, else the visible accelerators, else 1",
        example="4",
    )
    local_worker_num = Option(
        "N",
        values.whole(1, values.MOST_WORKERS),
        "Workers on this node.",
        default=None,
        shown="worker_num",
        example="4",
    )
    nproc_per_node = Option(
        "N|auto|gpu|npu|cpu",
        str,
        "The same as local_worker_num, as torchrun says it.",
        default="",
        example="4",
        dashes=True,
        torch=True,
    )
    framework = Option(
        "NAME",
        values.one_of_or_auto(Framework),
        "mindspore, torch, tensorflow or plain; auto reads the script's imports without running it.",
        default=None,
        shown="auto",
        example="torch",
    )
    module = Flag(
        "SCRIPT is a module, run as `python -m SCRIPT`.",
        short="m",
        dashes=True,
        torch=True,
        example="-m mypackage.train",
    )
    no_python = Flag(
        "Run SCRIPT itself, even if it ends in .py.", dashes=True, torch=True, example="--no-python ./train"
    )
    bind_core = Option(
        "True|JSON",
        str,
        'Tie workers to cores: True shares them evenly, or {"device0":["0-3"],"scheduler":["4"]}.',
        default="False",
        example="True",
    )
    bind_numa = Option(
        "True|JSON|FILE",
        str,
        "Tie workers to NUMA nodes, processors and memory; a .json FILE is msrun's bind file.",
        default="False",
        example="True",
    )
    rank_table_file = Option(
        "FILE",
        str,
        "Ascend's rank table (hccl.json): who runs on which device. Handed to the workers.",
        default="",
        shown="$RANK_TABLE_FILE, else the platform's, if it is mounted",
        example="hccl.json",
    )
    rank_table_wait = Option(
        "TIME",
        values.seconds(),
        "How long to wait until the platform has finished the rank table.",
        default=_RENDEZVOUS.rank_table_wait_s,
        example="10m",
    )


class MeetingOptions(Options):
    """Where the workers meet, and who brings them together."""

    master_addr = Option("HOST", str, "Where the workers meet.", default=_RENDEZVOUS.master_addr, torch=True)
    master_port = Option(
        "PORT",
        values.whole(0, 65_535),
        "Port of the first start; restarts take a fresh one.",
        default=None,
        shown="a free port",
        example="10970",
        torch=True,
    )
    fixed_port = Flag("Keep the same port for every restart.")
    cluster_time_out = Option(
        "SECONDS",
        values.patience_s,
        "How long MindSpore waits until all its workers have met; negative waits for ever.",
        default=_RENDEZVOUS.cluster_time_out_s,
        example="300",
    )
    ms_scheduler = Option(
        "WHO",
        values.one_of_or_auto(MsScheduler),
        "Who brings MindSpore's workers together: builtin (faultrun itself: init() in one second), "
        "native (MindSpore's scheduler process), or auto: builtin on CPU for proved versions.",
        default=None,
        shown="auto",
        example="native",
    )
    compile_cache = OrNone(
        "log_dir|DIR",
        str,
        "Keep MindSpore's compiled graphs for the next start of this job. Only for scripts whose "
        "graphs hold no number that changes on a restart: MindSpore would not notice.",
        example="log_dir",
    )
    nnodes = Option(
        "N",
        values.nodes,
        "Nodes of the run; more than 1 is not built yet.",
        default=1,
        dashes=True,
        torch=True,
    )
    node_rank = Option(
        "N", values.whole(-1, values.MOST_WORKERS), "Index of this node.", default=0, torch=True
    )
    standalone = Flag(
        "One node with a free port of its own, whatever else is said about meeting.", dashes=True, torch=True
    )
    rdzv_backend = Option(
        "NAME",
        str,
        "torchrun's rendezvous; one node needs none.",
        default="",
        example="c10d",
        dashes=True,
        torch=True,
    )
    rdzv_endpoint = Option(
        "HOST:PORT",
        str,
        "Used as master_addr and master_port.",
        default="",
        example="localhost:29500",
        dashes=True,
        torch=True,
    )
    rdzv_id = Option("ID", str, "Used as run_id.", default="", example="job7", dashes=True, torch=True)


class CommandOptions(Options):
    """How the command itself behaves."""

    join = Switch("False returns once the workers run and supervises in the background.")
    exit_code_on_stop = Option(
        "CODE",
        values.whole(0, 255),
        "Exit code when told to stop.",
        default=None,
        shown="143 for SIGTERM, 130 for SIGINT",
        example="0",
    )
    sim_level = Option(
        "0..3",
        values.whole(-1, 3),
        "MindSpore's dry run (MS_SIMULATION_LEVEL); -1 is none.",
        default=-1,
        example="1",
    )
    sim_rank_id = Option(
        "RANK",
        values.whole(-1, values.MOST_WORKERS),
        "Dry run this one rank only; -1 runs all.",
        default=-1,
        example="0",
    )
    config = Option("FILE", str, "Options from a YAML file, by name.", default="", example="faultrun.yaml")
    dry_run = Flag("Print what would be started, changed and resumed from; start nothing.", dashes=True)
