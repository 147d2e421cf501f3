"""MindSpore's own scheduler: a process of ours that only keeps the cluster's membership.

msrun runs the user's script a second time for it; here it is a line of
Python, so nothing of the user's happens twice. It serves one incarnation: a
scheduler refuses a node that registers again.
"""

import shutil
from collections.abc import Mapping
from pathlib import Path

from faultrun.frameworks.environment import WorkerLaunchSpec, scheduler_address
from faultrun.model.spec import Command, Framework, RunSpec

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


def scheduler_environment(base: Mapping[str, str], spec: RunSpec, life: WorkerLaunchSpec) -> dict[str, str]:
    """A scheduler's environment: a member of the cluster without a rank of its own."""
    return {
        **{name: value for name, value in base.items() if name not in ("GROUP_INFO_FILE", "MS_NODE_ID")},
        **scheduler_address(life),
        "MS_ROLE": "MS_SCHED",
        "MS_WORKER_NUM": str(life.plan.topology.world_size),
        "MS_TOPO_TIMEOUT": str(spec.rendezvous.cluster_time_out_s),
        "RANK_ID": "0",
        "FAULTRUN_RUN_ID": spec.run_id,
        "FAULTRUN_BOOT_ID": life.boot,
    }


def _python_of(command: Command) -> str | None:
    """The interpreter that the workers' command names, if it names one."""
    program = shutil.which(command.prefix[0]) or ""
    return program if Path(program).name.startswith("python") else None
