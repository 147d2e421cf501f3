"""What the options of other launchers mean here: an option, a variable of the workers, or why nothing.

Sources: accelerate/commands/launch.py and utils/launch.py of accelerate 1.15, deepspeed/launcher/runner.py of
DeepSpeed 0.19, lightning/fabric/cli.py of Lightning 2.6, mpirun(1) of Open MPI 5 and MPICH 4, srun(1) of
Slurm 24.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

_ONE_NODE = "all workers run on this node"
_PLACED = "workers are processes of this node: they are not placed"


def _count_of(value: str) -> str:
    """A number of workers; "" where a launcher counts the devices, as faultrun does."""
    return value if value.isdecimal() else ""


def _devices(value: str) -> str:
    """How many devices ``localhost:0,2`` or ``0,2`` names; "" where it names hosts."""
    numbers = value.rpartition(":")[2].split(",")
    return str(len(numbers)) if all(one.strip().isdecimal() for one in numbers) else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turns:
    """What an option becomes. ``width`` words follow it.

    ``variable`` "VALUE": the value is NAME=VALUE itself. ``always`` is what it gets where none follows.
    """

    width: int = 1
    option: str = ""
    reads: Callable[[str], str] = str
    variable: str = ""
    always: str = ""
    why: str = ""
    nodes: bool = False
    module: bool = False


LauncherOptions = Mapping[str, Turns]
"""The options of one launcher, without their dashes and with underscores."""

_WORKERS = Turns(option="worker_num", reads=_count_of)
_NODES = Turns(nodes=True)
_MODULE = Turns(width=0, module=True)
_HERE = Turns(why=_ONE_NODE)
_NOWHERE = Turns(why=_PLACED)


def _sets(variable: str) -> Turns:
    return Turns(variable=variable)


def _switches(variable: str, value: str = "true") -> Turns:
    return Turns(width=0, variable=variable, always=value)


def _named_alike(prefix: str, *names: str) -> LauncherOptions:
    """Options whose value is that of a variable of their name."""
    return {name: _sets(f"{prefix}{name.upper()}") for name in names}


def _nothing(why: str, width: int = 1) -> Turns:
    return Turns(width=width, why=why)


_ONE_LINE = "faultrun says one line for one thing"
_QUIET = _nothing(_ONE_LINE, 0)
_NO_PYTHON = _nothing("an executable needs no option", 0)
_IN_FOLDER = _nothing("start faultrun in that folder")


_ACCELERATE: LauncherOptions = {
    "num_processes": _WORKERS,
    "num_machines": _NODES,
    **dict.fromkeys(("machine_rank", "main_process_ip"), _HERE),
    "main_process_port": Turns(option="master_port"),
    "gpu_ids": _sets("CUDA_VISIBLE_DEVICES"),
    "num_cpu_threads_per_process": _sets("OMP_NUM_THREADS"),
    **_named_alike(
        "ACCELERATE_",
        *("mixed_precision", "gradient_accumulation_steps", "gradient_clipping", "dynamo_backend"),
        *("dynamo_mode", "deepspeed_config_file"),
    ),
    **_named_alike(
        "ACCELERATE_DEEPSPEED_",
        *("zero_stage", "offload_optimizer_device", "offload_param_device", "zero3_save_16bit_model"),
    ),
    "zero3_init_flag": _sets("ACCELERATE_DEEPSPEED_ZERO3_INIT"),
    **_named_alike(
        "",
        *("fsdp_version", "fsdp_sharding_strategy", "fsdp_reshard_after_forward", "fsdp_offload_params"),
        *("fsdp_min_num_params", "fsdp_auto_wrap_policy", "fsdp_backward_prefetch", "fsdp_forward_prefetch"),
        *("fsdp_state_dict_type", "fsdp_use_orig_params", "fsdp_cpu_ram_efficient_loading"),
        *("fsdp_sync_module_states", "fsdp_activation_checkpointing"),
    ),
    "fsdp_transformer_layer_cls_to_wrap": _sets("FSDP_TRANSFORMER_CLS_TO_WRAP"),
    **{
        name: _switches(f"ACCELERATE_{name.upper()}")
        for name in ("use_fsdp", "use_deepspeed", "use_megatron_lm")
    },
    "cpu": _switches("ACCELERATE_USE_CPU"),
    "debug": _switches("ACCELERATE_DEBUG_MODE"),
    "enable_cpu_affinity": _switches("ACCELERATE_CPU_AFFINITY", "1"),
    "dynamo_use_fullgraph": _switches("ACCELERATE_DYNAMO_USE_FULLGRAPH", "True"),
    "dynamo_use_dynamic": _switches("ACCELERATE_DYNAMO_USE_DYNAMIC", "True"),
    "multi_gpu": _nothing("several workers are what faultrun starts", 0),
    "quiet": _QUIET,
    "same_network": _nothing(_ONE_NODE, 0),
    **dict.fromkeys(("rdzv_backend", "rdzv_conf"), _nothing("one node needs no rendezvous")),
    "monitor_interval": _nothing("the kernel reports a death at once"),
    **{name: Turns(option=name) for name in ("max_restarts", "role", "tee", "log_dir")},
    **dict.fromkeys(("module", "m"), _MODULE),
    "no_python": _NO_PYTHON,
    "config_file": _nothing("its values are read here"),
    "main_training_function": _nothing("only TPUs are started by it"),
}

_DEEPSPEED: LauncherOptions = {
    **dict.fromkeys(("num_gpus", "num_accelerators"), _WORKERS),
    "num_nodes": _NODES,
    **dict.fromkeys(("include", "i"), Turns(option="worker_num", reads=_devices)),
    **dict.fromkeys(("exclude", "e"), _nothing("set CUDA_VISIBLE_DEVICES to the devices that are left")),
    **dict.fromkeys(("hostfile", "H", "node_rank", "launcher", "launcher_args", "ssh_port"), _HERE),
    **{name: Turns(option=name) for name in ("master_addr", "master_port")},
    **dict.fromkeys(("no_ssh", "no_ssh_check", "force_multi"), _nothing(_ONE_NODE, 0)),
    "module": _MODULE,
    "no_python": _NO_PYTHON,
    "no_local_rank": _nothing(
        "faultrun adds no --local_rank to the script's arguments: LOCAL_RANK has it", 0
    ),
    "save_pid": _nothing("run.json in the log_dir has it", 0),
    "enable_each_rank_log": Turns(option="log_dir"),
    "bind_cores_to_rank": Turns(width=0, option="bind_core", reads=lambda _: "True"),
    "bind_core_list": _nothing("--bind_core=JSON says which cores"),
    "autotuning": _nothing("tune with deepspeed itself, then train with faultrun"),
    "log_level": _nothing(_ONE_LINE),
    **dict.fromkeys(("q", "quiet"), _QUIET),
    "venv_script": _nothing("start faultrun in that environment"),
}

_MPI: LauncherOptions = {
    **dict.fromkeys(("np", "n", "c"), _WORKERS),
    **dict.fromkeys(("host", "H", "hosts", "hostfile", "machinefile", "f", "default_hostfile"), _HERE),
    **dict.fromkeys(("ppn", "npernode", "N", "bind_to", "map_by", "rank_by", "cpus_per_proc"), _NOWHERE),
    **dict.fromkeys(("mca", "gmca", "omca", "prtemca"), _nothing("no MPI starts the workers", 2)),
    "x": Turns(variable="VALUE"),
    **dict.fromkeys(("genv", "env"), Turns(width=2, variable="VALUE")),
    "allow_run_as_root": _nothing("faultrun does not ask who starts it", 0),
    **dict.fromkeys(("oversubscribe", "use_hwthread_cpus", "report_bindings"), _nothing(_PLACED, 0)),
    "tag_output": _nothing("lines on the console begin with the rank", 0),
    "merge_stderr_to_stdout": _nothing("log files hold both", 0),
    "wdir": _IN_FOLDER,
    "output_filename": _nothing("logs are in the log_dir"),
    **dict.fromkeys(("v", "q"), _QUIET),
}

_SRUN: LauncherOptions = {
    **dict.fromkeys(("ntasks", "n", "ntasks_per_node"), _WORKERS),
    "gpus_per_task": _NOWHERE,
    **dict.fromkeys(("nodes", "N"), _NODES),
    **dict.fromkeys(
        ("cpus_per_task", "c", "gres", "gpus", "G", "gpus_per_node", "mem", "time", "t", "partition", "p"),
        _nothing("a resource of the job: leave it to sbatch, or keep `srun --ntasks=1` before faultrun"),
    ),
    **dict.fromkeys(
        ("account", "A", "qos", "q", "job_name", "J", "constraint", "C"), _nothing("the job's own")
    ),
    **dict.fromkeys(("output", "o", "error", "e", "input", "i"), _nothing("logs are in the log_dir")),
    **dict.fromkeys(("cpu_bind", "gpu_bind", "mem_bind", "distribution", "m", "hint", "mpi"), _NOWHERE),
    **dict.fromkeys(("unbuffered", "u", "label", "l", "exclusive", "overlap", "K"), _nothing(_PLACED, 0)),
    "kill_on_bad_exit": _nothing("faultrun decides what a failure ends", 0),
    "export": _nothing("workers inherit the environment"),
    **dict.fromkeys(("chdir", "D"), _IN_FOLDER),
    **dict.fromkeys(("nodelist", "w"), _HERE),
}

_FABRIC: LauncherOptions = {
    "devices": Turns(option="worker_num", reads=_count_of, variable="LT_DEVICES"),
    **_named_alike("LT_", "accelerator", "strategy", "precision"),
    "num_nodes": _NODES,
    **dict.fromkeys(("node_rank", "main_address"), _HERE),
    "main_port": Turns(option="master_port"),
}

LAUNCHERS: Mapping[str, LauncherOptions] = {
    "accelerate launch": _ACCELERATE,
    "deepspeed": _DEEPSPEED,
    **dict.fromkeys(("mpirun", "mpiexec"), _MPI),
    "srun": _SRUN,
    "fabric run": _FABRIC,
}
"""The launchers whose options are not ours."""

ALWAYS_SETS: Mapping[str, tuple[tuple[str, str], ...]] = {"fabric run": (("LT_CLI_USED", "1"),)}
"""Variables that a launcher sets whatever its options are."""
