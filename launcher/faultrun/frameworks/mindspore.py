"""MindSpore in a run: its own scheduler process, which version the workers import, their compiled graphs.

**Scheduler.** It only keeps the cluster's membership. msrun runs the user's script a second time for it; here
it is a line of Python, so nothing of the user's happens twice. It serves one incarnation: a scheduler refuses
a node that registers again.

**Compiled graphs.** MindSpore 2.10 takes a kept graph as it is, with every Python number that was a constant
when it was compiled (seen: ``x * self.k`` goes on with the ``k`` of the first run). So a folder serves one
script with the same arguments, workers and version; whether its constants change with the step at which
training resumes, only its author knows.
"""

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from faultrun.files import on_path, sha256
from faultrun.frameworks.environment import WorkerLaunchSpec, scheduler_address
from faultrun.model.spec.run_spec import Command, Framework, RunSpec

PROVED = ("2.10.0",)
"""Versions whose workers our own scheduler has served, on CPU, 1 to 8 of them, as
``benchmarks.campaigns.starts`` and ``tests/faults/processes/test_mindspore_scheduler.py`` show.
"""

_ASK = "import importlib.metadata as m; print(m.version('mindspore'))"
_PATIENCE_S = 10.0

_PROGRAM = (
    "import mindspore as ms; "
    "ms.set_device('CPU') if hasattr(ms, 'set_device') else ms.set_context(device_target='CPU'); "
    "from mindspore.communication import init; init()"
)


def needs_scheduler(spec: RunSpec) -> bool:
    """Whether the workers will look for a scheduler: MindSpore, unless it is a dry run."""
    return spec.framework is Framework.MINDSPORE and spec.simulation is None


def scheduler_argv(command: Command, our_python: str) -> tuple[str, ...]:
    """The scheduler's program, run by the Python that the workers run."""
    return (_python_of(command) or our_python, "-c", _PROGRAM)


def scheduler_environment(base: Mapping[str, str], spec: RunSpec, shared: WorkerLaunchSpec) -> dict[str, str]:
    """A scheduler's environment: a member of the cluster without a rank of its own."""
    return {
        **{name: value for name, value in base.items() if name not in ("GROUP_INFO_FILE", "MS_NODE_ID")},
        **scheduler_address(shared),
        "MS_ROLE": "MS_SCHED",
        "MS_WORKER_NUM": str(shared.plan.topology.world_size),
        "MS_TOPO_TIMEOUT": str(spec.rendezvous.cluster_time_out_s),
        "RANK_ID": "0",
        "FAULTRUN_RUN_ID": spec.run_id,
        "FAULTRUN_BOOT_ID": shared.boot,
    }


def installed_version(command: Command, our_python: str, import_path: Sequence[str]) -> str | None:
    """The version that the Python of ``command`` would import; None when it has none, or does not say.

    ``import_path`` is ours: a command that names no other Python (a shell script) is taken to use it.
    """
    if (python := _python_of(command)) is None or Path(python).parent == Path(our_python).parent:
        return next((version for folder in import_path if (version := _in_folder(Path(folder)))), None)
    try:
        argv = [python, "-c", _ASK]
        asked = subprocess.run(argv, capture_output=True, text=True, timeout=_PATIENCE_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return asked.stdout.strip() or None


def compile_cache_key(source: Path | None, command: Command, world_size: int, version: str | None) -> str:
    """A name for what may share compiled graphs. A script that cannot be read counts by its name."""
    try:
        script = source.read_bytes() if source is not None else b""
    except OSError:
        script = b""
    parts = (script, *map(str.encode, (*command.prefix, *command.script_args, str(world_size), str(version))))
    digest = sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "big") + part)
    return digest.hexdigest()[:16]


def _in_folder(folder: Path) -> str | None:
    """By the name of ``mindspore-<version>.dist-info``; ``importlib.metadata`` would cost PID 1 five MiB."""
    try:
        found = sorted(folder.glob("mindspore-*.dist-info"))
    except OSError:
        return None
    return found[0].name.removeprefix("mindspore-").removesuffix(".dist-info") if found else None


def _python_of(command: Command) -> str | None:
    """The interpreter that the workers' command names, if it names one."""
    program = on_path(command.prefix[0])
    return program if Path(program).name.startswith("python") else None
