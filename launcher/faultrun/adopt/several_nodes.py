"""A launch over several nodes: which options each node types itself, and what Slurm's tasks become."""

from collections.abc import Sequence
from dataclasses import replace

from faultrun.adopt.launch import AdoptedOption, FoundLaunch, Remark

PER_NODE = frozenset({"node_rank", "node_name", "local_addr"})
"""What is another on each node, so that a file which all of them read must not hold it."""

ONE_NODE = ("", "1", "1:1", "1-1")
FIRST_NODE = "$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n1)"
"""The node that serves etcd to the others, where none was named; a batch script has the variable."""

_TASKS = frozenset(
    {"n", "ntasks", "ntasks_per_node", "c", "cpus_per_task", "gpus_per_task", "K", "kill_on_bad_exit"}
)
_ONE_EACH = ("--ntasks-per-node=1", "--kill-on-bad-exit=0")
_IN_A_JOB = ("srun", "--ntasks=$SLURM_NNODES", *_ONE_EACH)
"""In a job with more tasks srun takes that many, and what is asked for each node is ignored."""

_WHY = "one task on each node is faultrun, which starts the workers there"


def nodes_of(given: Sequence[tuple[str, str]]) -> str:
    """The value of srun's ``--nodes``; "" without."""
    return next((value for option, value in reversed(given) if _name(option) in ("nodes", "N")), "")


def tasks_of(given: Sequence[tuple[str, str]], nodes: int) -> str:
    """How many ranks srun starts on each of so many nodes; "" if unknown."""
    told = {_name(option): value for option, value in given}
    for name in ("ntasks_per_node", "ntasks", "n"):
        if (count := told.get(name, "")).isdecimal():
            share, left = divmod(int(count), 1 if name == "ntasks_per_node" else nodes)
            return "" if left else str(share)
    return "" if any(told.get(name) for name in ("ntasks_per_node", "ntasks", "n")) else "1"


def srun_words(given: Sequence[tuple[str, str]]) -> tuple[str, ...]:
    """``srun`` as it starts one supervisor on each node: its other options stay as they are."""
    kept = [(option, value) for option, value in given if _name(option) not in _TASKS]
    tasks = f"--ntasks={nodes_of(given)}"
    return ("srun", *(word for pair in kept for word in pair if word), tasks, *_ONE_EACH)


def over_slurm_nodes(
    launch: FoundLaunch, nodes: str, tasks: str, read: str, before: Sequence[str] = _IN_A_JOB
) -> FoundLaunch:
    """Ranks that srun started one by one: on each of ``nodes`` one supervisor, with ``tasks`` ranks."""
    own = tuple(one for one in launch.options if one.name != "worker_num")
    options = [AdoptedOption(name="nnodes", values=(nodes,), read=read)]
    doubts = list(launch.doubts)
    if tasks:
        options.append(AdoptedOption(name="nproc_per_node", values=(tasks,), read=read))
    else:
        what, why = f"how many ranks each of {nodes} nodes has", "give --nproc-per-node=N"
        doubts.append(Remark(what=what, why=why))
    if not any(one.name in ("master_addr", "rdzv_endpoint") for one in own):
        options.append(AdoptedOption(name="master_addr", values=(FIRST_NODE,), read=read))
    no_effect = (*launch.no_effect, Remark(what=f"{read} tasks", why=_WHY))
    launch = replace(launch, options=(*options, *own), no_effect=no_effect, doubts=tuple(doubts))
    return replace(launch, before=(*before, *launch.before))


def _name(option: str) -> str:
    return option.lstrip("-").replace("-", "_")
