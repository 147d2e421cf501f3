"""What every worker of a supervisor inherits, and how one would be started where none has been yet."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from faultrun.frameworks.environment import WorkerLaunchSpec, WorkerPlacement, worker_environment
from faultrun.model.plan import Ledger, Plan, Reason
from faultrun.model.spec import RunSpec
from faultrun.model.topology import BootId, Topology
from faultrun.supervisor.exit_inspector import ExitInspector
from faultrun.supervisor.prepare import WorkerCommand
from faultrun.workers.deadline import Deadline
from faultrun.workers.process import Launch
from faultrun.workers.streams import Streams


@dataclass(frozen=True, slots=True, kw_only=True)
class SupervisorEnv:
    """What every worker of this supervisor inherits; read once, where the command line is read."""

    environ: Mapping[str, str]
    boot: BootId
    python: str
    log_dir: Path
    ascend: bool
    command: Callable[[Plan, int], WorkerCommand]
    exits: ExitInspector
    streams: Streams
    deadline: Deadline


def foreseen_launch(spec: RunSpec, env: SupervisorEnv, socket: str, rank: int) -> Launch | None:
    """A worker of a node that waits for a seat, as if it had the first; None where nobody can know enough.

    The seat, the meeting place and the recovery point are another when the node gets one. A standby is given
    the difference then, and does not become the worker if it has read any of it.
    """
    if spec.identity.folder_of(rank, rank, 0) is not None:
        return None  # a folder of its own for each rank
    first, *others = spec.topology.nodes
    topology = Topology(nodes=(replace(first, node=spec.node), *others))
    plan = Plan(
        incarnation=0, topology=topology, reason=Reason.FIRST, point=None, start_at_s=0.0, ledger=Ledger()
    )
    command = env.command(plan, rank)
    seat = WorkerPlacement(
        rank=rank, local_rank=rank, node_rank=0, local_world_size=first.slots, device=command.device
    )
    log_dir = str(env.log_dir.absolute())
    life = WorkerLaunchSpec(
        boot=env.boot,
        plan=plan,
        master_addr=spec.rendezvous.master_addr,
        master_port=0,
        socket=socket,
        progress_page="",
        error_dir=log_dir,
        group_info_dir=log_dir,
        ascend=env.ascend,
    )
    return Launch(
        argv=(*spec.command.prefix, *command.args),
        env=worker_environment(command.environ, spec, seat, life),
        stdout=env.log_dir / f"standby_{rank}.log",
        cpus=share_of(spec.binding.cpus, rank),
        memory_nodes=share_of(spec.binding.memory_nodes, rank),
        deadline=env.deadline,
    )


def share_of(shares: tuple[tuple[int, ...], ...], local_rank: int) -> tuple[int, ...]:
    """What is bound to a local rank, of processors or of memory nodes."""
    return shares[local_rank] if local_rank < len(shares) else ()
