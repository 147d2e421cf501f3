"""What the options of other launchers mean here: an option, a variable of the workers, or why nothing.

Sources: accelerate/commands/launch.py and utils/launch.py of accelerate 1.15, deepspeed/launcher/runner.py of
DeepSpeed 0.19, lightning/fabric/cli.py of Lightning 2.6, mpirun(1) of Open MPI 5 and MPICH 4, srun(1) of
Slurm 24.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

_ONE_NODE = "all workers run on this node"
_PLACED = "workers are processes of this node: nobody places them"


def _as_written(value: str) -> str:
    return value


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

    ``variable`` "VALUE": the value is NAME=VALUE itself. ``always`` is what the variable gets where no
    value follows.
    """

    width: int = 1
    option: str = ""
    reads: Callable[[str], str] = _as_written
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


def _nothing(why: str, width: int = 1) -> Turns:
    return Turns(width=width, why=why)


_ACCELERATE: LauncherOptions = {
    "num_processes": _WORKERS,
    "num_machines": _NODES,
    "machine_rank": _HERE,
    "main_process_ip": _HERE,
    "main_process_port": Turns(option="master_port"),
    "mixed_precision": _sets("ACCELERATE_MIXED_PRECISION"),
    "gpu_ids": _sets("CUDA_VISIBLE_DEVICES"),
    "gradient_accumulation_steps": _sets("ACCELERATE_GRADIENT_ACCUMULATION_STEPS"),
    "gradient_clipping": _sets("ACCELERATE_GRADIENT_CLIPPING"),
    "num_cpu_threads_per_process": _sets("OMP_NUM_THREADS"),
    "dynamo_backend": _sets("ACCELERATE_DYNAMO_BACKEND"),
    "dynamo_mode": _sets("ACCELERATE_DYNAMO_MODE"),
    "deepspeed_config_file": _sets("ACCELERATE_DEEPSPEED_CONFIG_FILE"),
    "zero_stage": _sets("ACCELERATE_DEEPSPEED_ZERO_STAGE"),
    "offload_optimizer_device": _sets("ACCELERATE_DEEPSPEED_OFFLOAD_OPTIMIZER_DEVICE"),
    "offload_param_device": _sets("ACCELERATE_DEEPSPEED_OFFLOAD_PARAM_DEVICE"),
    "zero3_init_flag": _sets("ACCELERATE_DEEPSPEED_ZERO3_INIT"),
    "zero3_save_16bit_model": _sets("ACCELERATE_DEEPSPEED_ZERO3_SAVE_16BIT_MODEL"),
    "fsdp_version": _sets("FSDP_VERSION"),
    "fsdp_sharding_strategy": _sets("FSDP_SHARDING_STRATEGY"),
    "fsdp_reshard_after_forward": _sets("FSDP_RESHARD_AFTER_FORWARD"),
    "fsdp_offload_params": _sets("FSDP_OFFLOAD_PARAMS"),
    "fsdp_min_num_params": _sets("FSDP_MIN_NUM_PARAMS"),
    "fsdp_auto_wrap_policy": _sets("FSDP_AUTO_WRAP_POLICY"),
    "fsdp_transformer_layer_cls_to_wrap": _sets("FSDP_TRANSFORMER_CLS_TO_WRAP"),
    "fsdp_backward_prefetch": _sets("FSDP_BACKWARD_PREFETCH"),
    "fsdp_forward_prefetch": _sets("FSDP_FORWARD_PREFETCH"),
    "fsdp_state_dict_type": _sets("FSDP_STATE_DICT_TYPE"),
    "fsdp_use_orig_params": _sets("FSDP_USE_ORIG_PARAMS"),
    "fsdp_cpu_ram_efficient_loading": _sets("FSDP_CPU_RAM_EFFICIENT_LOADING"),
    "fsdp_sync_module_states": _sets("FSDP_SYNC_MODULE_STATES"),
    "fsdp_activation_checkpointing": _sets("FSDP_ACTIVATION_CHECKPOINTING"),
    "cpu": _switches("ACCELERATE_USE_CPU"),
    "use_fsdp": _switches("ACCELERATE_USE_FSDP"),
    "use_deepspeed": _switches("ACCELERATE_USE_DEEPSPEED"),
    "use_megatron_lm": _switches("ACCELERATE_USE_MEGATRON_LM"),
    "debug": _switches("ACCELERATE_DEBUG_MODE"),
    "enable_cpu_affinity": _switches("ACCELERATE_CPU_AFFINITY", "1"),
    "dynamo_use_fullgraph": _switches("ACCELERATE_DYNAMO_USE_FULLGRAPH", "True"),
    "dynamo_use_dynamic": _switches("ACCELERATE_DYNAMO_USE_DYNAMIC", "True"),
    "multi_gpu": _nothing("several workers are what faultrun starts", 0),
    "quiet": _nothing("faultrun says one line for one thing", 0),
    "same_network": _nothing(_ONE_NODE, 0),
    "rdzv_backend": _nothing("one node needs no rendezvous"),
    "rdzv_conf": _nothing("one node needs no rendezvous"),
    "monitor_interval": _nothing("the kernel reports a death at once"),
    "max_restarts": Turns(option="max_restarts"),
    "role": Turns(option="role"),
    "tee": Turns(option="tee"),
    "log_dir": Turns(option="log_dir"),
    "module": _MODULE,
    "m": _MODULE,
    "no_python": _nothing("an executable needs no option", 0),
    "config_file": _nothing("its values are read here"),
    "main_training_function": _nothing("only TPUs are started by it"),
}

_DEEPSPEED: LauncherOptions = {
    "num_gpus": _WORKERS,
    "num_accelerators": _WORKERS,
    "num_nodes": _NODES,
    "include": Turns(option="worker_num", reads=_devices, variable="", why=""),
    "i": Turns(option="worker_num", reads=_devices),
    "exclude": _nothing("set CUDA_VISIBLE_DEVICES to the devices that are left"),
    "e": _nothing("set CUDA_VISIBLE_DEVICES to the devices that are left"),
    "hostfile": _HERE,
    "H": _HERE,
    "node_rank": _HERE,
    "master_addr": Turns(option="master_addr"),
    "master_port": Turns(option="master_port"),
    "launcher": _HERE,
    "launcher_args": _HERE,
    "ssh_port": _HERE,
    "no_ssh": _nothing(_ONE_NODE, 0),
    "no_ssh_check": _nothing(_ONE_NODE, 0),
    "force_multi": _nothing(_ONE_NODE, 0),
    "module": _MODULE,
    "no_python": _nothing("an executable needs no option", 0),
    "no_local_rank": _nothing(
        "faultrun adds no --local_rank to the script's arguments: LOCAL_RANK has it", 0
    ),
    "save_pid": _nothing("run.json in the log_dir has it", 0),
    "enable_each_rank_log": Turns(option="log_dir"),
    "bind_cores_to_rank": Turns(width=0, option="bind_core", reads=lambda _: "True"),
    "bind_core_list": _nothing("--bind_core=JSON says which cores"),
    "autotuning": _nothing("tune with deepspeed itself, then train with faultrun"),
    "log_level": _nothing("faultrun says one line for one thing"),
    "q": _nothing("faultrun says one line for one thing", 0),
    "quiet": _nothing("faultrun says one line for one thing", 0),
    "venv_script": _nothing("start faultrun in that environment"),
}

_MPI: LauncherOptions = {
    **dict.fromkeys(("np", "n", "c"), _WORKERS),
    **dict.fromkeys(("host", "H", "hosts", "hostfile", "machinefile", "f", "default_hostfile"), _HERE),
    **dict.fromkeys(("ppn", "npernode", "N", "bind_to", "map_by", "rank_by", "cpus_per_proc"), _NOWHERE),
    **dict.fromkeys(("mca", "gmca", "omca", "prtemca"), _nothing("no MPI starts the workers", 2)),
    "x": Turns(variable="VALUE"),
    "genv": Turns(width=2, variable="VALUE"),
    "env": Turns(width=2, variable="VALUE"),
    "allow_run_as_root": _nothing("faultrun does not ask who starts it", 0),
    "oversubscribe": _nothing(_PLACED, 0),
    "use_hwthread_cpus": _nothing(_PLACED, 0),
    "report_bindings": _nothing(_PLACED, 0),
    "tag_output": _nothing("lines on the console begin with the rank", 0),
    "merge_stderr_to_stdout": _nothing("log files hold both", 0),
    "wdir": _nothing("start faultrun in that folder"),
    "output_filename": _nothing("logs are in the log_dir"),
    "v": _nothing("faultrun says one line for one thing", 0),
    "q": _nothing("faultrun says one line for one thing", 0),
}

_SRUN: LauncherOptions = {
    **dict.fromkeys(("ntasks", "n"), _WORKERS),
    **dict.fromkeys(("ntasks_per_node", "gpus_per_task"), _NOWHERE),
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
    "ntasks_per_node": _WORKERS,
    "kill_on_bad_exit": _nothing("faultrun decides what a failure ends", 0),
    "export": _nothing("workers inherit the environment"),
    "chdir": _nothing("start faultrun in that folder"),
    "D": _nothing("start faultrun in that folder"),
    "nodelist": _HERE,
    "w": _HERE,
}

_FABRIC: LauncherOptions = {
    "devices": Turns(option="worker_num", reads=_count_of, variable="LT_DEVICES"),
    "accelerator": _sets("LT_ACCELERATOR"),
    "strategy": _sets("LT_STRATEGY"),
    "precision": _sets("LT_PRECISION"),
    "num_nodes": _NODES,
    "node_rank": _HERE,
    "main_address": _HERE,
    "main_port": Turns(option="master_port"),
}

LAUNCHERS: Mapping[str, LauncherOptions] = {
    "accelerate launch": _ACCELERATE,
    "deepspeed": _DEEPSPEED,
    "mpirun": _MPI,
    "mpiexec": _MPI,
    "srun": _SRUN,
    "fabric run": _FABRIC,
}
"""The launchers whose options are not ours."""

ALWAYS_SETS: Mapping[str, tuple[tuple[str, str], ...]] = {"fabric run": (("LT_CLI_USED", "1"),)}
"""Variables that a launcher sets whatever its options are."""
