"""How a worker of this node is started: what it runs, where it writes, what it is told. Starts nothing."""

from dataclasses import replace
from pathlib import Path

from faultrun.checkpoints.formats.mindspore.group_info import GROUP_INFO_NAME
from faultrun.frameworks.environment import WorkerLaunchSpec, WorkerPlacement, worker_environment
from faultrun.frameworks.mindspore import needs_scheduler
from faultrun.frameworks.standby_eligibility import comes_to_hook
from faultrun.model.actions import Spawn
from faultrun.model.plan import Ledger, Plan, Reason
from faultrun.model.spec.run_spec import RunSpec
from faultrun.model.topology import Topology
from faultrun.supervisor.launch.environment import SupervisorEnv
from faultrun.supervisor.launch.progress_page import ProgressPage
from faultrun.workers.launch import Launch
from faultrun.workers.logs.log_files import LogFiles


class Launches:
    """Makes the launch of each worker of a supervisor, whose control socket is ``socket``."""

    def __init__(self, spec: RunSpec, env: SupervisorEnv, socket: Path) -> None:
        self._spec, self._env, self._socket = spec, env, socket

    def seats(self, plan: Plan) -> tuple[int, ...]:
        """The ranks of this node, in the order of their local ranks."""
        return tuple(plan.topology.ranks_of(self._spec.node))

    def begin_here(self, plan: Plan) -> bool:
        """Whether rank 0 is here, and with it whatever brings the ranks together."""
        return plan.topology.node_rank(self._spec.node) == 0

    def shared(self, order: Spawn, files: LogFiles, page: ProgressPage) -> WorkerLaunchSpec:
        """What all workers of an incarnation are told."""
        return WorkerLaunchSpec(
            boot=self._env.boot,
            plan=order.plan,
            master_addr=order.master_addr,
            master_port=order.master_port,
            socket=str(self._socket),
            progress_page=str(page.path.absolute()),
            error_dir=str(files.folder.absolute()),
            group_info_dir=str(self._env.log_dir.absolute()),
            ascend=self._env.ascend,
            builtin_scheduler=needs_scheduler(self._spec) and not order.native_scheduler,
        )

    def make_folder(self, plan: Plan, rank: int) -> None:
        """Where ``rank`` may say who holds the same; what lies there may be of a world of another size."""
        own, slots = self._env.log_dir / f"device{rank}", plan.slots
        own.mkdir(exist_ok=True)
        if self._spec.resizes and slots is not None and not slots.groups and not plan.kept:
            (own / GROUP_INFO_NAME).unlink(missing_ok=True)

    def launch(self, shared: WorkerLaunchSpec, files: LogFiles, rank: int) -> Launch:
        """``rank`` of the plan in ``shared``. A folder of its own is made; OSError as the disk says."""
        plan = shared.plan
        topology, seats = plan.topology, self.seats(plan)
        local_rank = seats.index(rank)
        command = self._env.command(plan, rank)
        placement = WorkerPlacement(
            rank=rank,
            local_rank=local_rank,
            node_rank=topology.node_rank(self._spec.node),
            local_world_size=len(seats),
            device=command.device,
            places=topology.nodes[topology.node_rank(self._spec.node)].places,
            rank_table=command.rank_table,
        )
        cwd = self._spec.identity.folder_of(rank, local_rank, placement.node_rank)
        if cwd is not None:
            Path(cwd).mkdir(parents=True, exist_ok=True)
        return Launch(
            cwd=cwd,
            argv=(*self._spec.command.prefix, *command.args),
            env=worker_environment(command.environ, self._spec, placement, shared),
            stdout=files.worker(rank),
            stderr=self._env.streams.errors(files, rank, local_rank),
            cpus=_share_of(self._spec.binding.cpus, placement.slot),
            memory_nodes=_share_of(self._spec.binding.memory_nodes, placement.slot),
            deadline=self._env.deadline,
            at_once=True,
            hooked=comes_to_hook((*self._spec.command.prefix, *command.args)),
        )

    def foreseen(self, rank: int) -> Launch | None:
        """A worker of a node that waits for a seat, as if it had the first; None: too little is known.

        The seat, the meeting place and the recovery point are another when the node gets one. A standby is
        given the difference then, and does not become the worker if it has read any of it.
        """
        spec, env = self._spec, self._env
        if spec.identity.folder_of(rank, rank, 0) is not None:
            return None  # a folder of its own for each rank
        first, *others = spec.topology.nodes
        topology = Topology(nodes=(replace(first, node=spec.node), *others))
        plan = Plan(
            incarnation=0, topology=topology, reason=Reason.FIRST, point=None, start_at_s=0.0, ledger=Ledger()
        )
        command = env.command(plan, rank)
        placement = WorkerPlacement(
            rank=rank, local_rank=rank, node_rank=0, local_world_size=first.slots, device=command.device
        )
        log_dir = str(env.log_dir.absolute())
        shared = WorkerLaunchSpec(
            boot=env.boot,
            plan=plan,
            master_addr=spec.rendezvous.master_addr,
            master_port=0,
            socket=str(self._socket),
            progress_page="",
            error_dir=log_dir,
            group_info_dir=log_dir,
            ascend=env.ascend,
        )
        return Launch(
            argv=(*spec.command.prefix, *command.args),
            env=worker_environment(command.environ, spec, placement, shared),
            stdout=env.log_dir / f"standby_{rank}.log",
            cpus=_share_of(spec.binding.cpus, rank),
            memory_nodes=_share_of(spec.binding.memory_nodes, rank),
            deadline=env.deadline,
        )


def _share_of(shares: tuple[tuple[int, ...], ...], slot: int) -> tuple[int, ...]:
    """What is bound to a slot, of processors or of memory nodes."""
    return shares[slot] if slot < len(shares) else ()
