"""The environment of one worker: every framework's variables, from values alone.

All frameworks' names are always set (they are harmless to the others), except
where a name changes what another framework does; those are named below.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from faultrun.model import wire
from faultrun.model.exits import WorkerExitCodes
from faultrun.model.plan import Plan
from faultrun.model.spec.run_spec import Framework, RunSpec
from faultrun.model.spec.worker_identity import FOLDERS_VARIABLE, RankEnv
from faultrun.model.topology import BootId

GROUP_INFO, ERROR_VARIABLE = "GROUP_INFO_FILE", "TORCHELASTIC_ERROR_FILE"
_OWNED = (
    "FAULTRUN_RESTART_REASON",
    wire.REJOIN_VARIABLE,
    "FAULTRUN_RESUME_FROM",
    "FAULTRUN_RESUME_EPOCH",
    "FAULTRUN_RESUME_STEP",
    "RESTORE_RANKS",
    "RESTORE_RANKS_MAP",
    FOLDERS_VARIABLE,
    wire.FULL_VARIABLE,
    wire.ACCUMULATE_VARIABLE,
    wire.VERDICT_VARIABLE,
    wire.MISSING_VARIABLE,
)
_RANK_ENV = frozenset(
    (
        *("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "NODE_RANK", "MASTER_ADDR", "MASTER_PORT"),
        *("GROUP_RANK", "GROUP_WORLD_SIZE", "ROLE_NAME", "ROLE_RANK", "ROLE_WORLD_SIZE"),
        *("RANK_ID", "RANK_SIZE", "DEVICE_ID", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_USE_AGENT_STORE"),
        *("TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_MAX_RESTARTS"),
    )
)
_LEASES, _ELECTED_S = 2.0, 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerPlacement:
    """Where one worker sits. ``local_world_size`` counts the workers of its node.

    ``device`` is its device number by the rank table; None: the number is that of its ``slot``, which is its
    local rank unless the run has become smaller. ``rank_table`` is the table of that smaller world; empty:
    the run's own serves.
    """

    rank: int
    local_rank: int
    node_rank: int
    local_world_size: int
    device: int | None = None
    places: tuple[int, ...] = ()
    rank_table: str = ""

    @property
    def slot(self) -> int:
        """The slot, on its node, whose device and processors the worker has."""
        return self.places[self.local_rank] if self.places else self.local_rank

    @property
    def device_id(self) -> str:
        """DEVICE_ID."""
        return str(self.slot if self.device is None else self.device)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerLaunchSpec:
    """What the workers of one incarnation on one node share; paths are absolute.

    ``group_info_dir`` holds ``device<rank>/group_info.pb``. ``ascend`` says whether the workers run on Ascend
    devices, ``builtin_scheduler`` whether MindSpore's ranks meet in the supervisor.
    """

    boot: BootId
    plan: Plan
    master_addr: str
    master_port: int
    socket: str
    progress_page: str
    error_dir: str
    group_info_dir: str
    ascend: bool
    builtin_scheduler: bool = False


def error_file(folder: str, rank: int) -> str:
    """Where a rank writes of what it died."""
    return f"{folder}/error_{rank}.json"


def worker_environment(
    base: Mapping[str, str], spec: RunSpec, seat: WorkerPlacement, shared: WorkerLaunchSpec
) -> dict[str, str]:
    """The complete environment of one worker, on top of what the user's shell had."""
    unset = _unset(spec, shared)
    inherited = {name: value for name, value in base.items() if name not in unset}
    told = {
        **_unless_set(shared),
        **compile_cache_variables(spec.compile_cache, shared.plan),
        **inherited,
        **dict(spec.environment),
        **_always(spec, seat, shared),
        **_as_torchrun(spec, seat, shared),
        **_resume(shared.plan, seat.rank),
        **_recovery(base, spec, seat, shared),
        **_group_info(seat, shared),
        **_mindspore(spec, seat, shared),
        **_tensorflow(spec, seat),
        **_binding(spec, seat),
        **_fewer(base, spec, seat, shared),
        **_own_device(base, spec, seat),
        **_simulated(spec),
    }
    if spec.identity.rank_env is RankEnv.NONE:
        return {name: value for name, value in told.items() if name not in _RANK_ENV} | {
            name: value for name, value in inherited.items() if name in _RANK_ENV
        }
    return told


def _unless_set(shared: WorkerLaunchSpec) -> dict[str, str]:
    """What a user's own variables win over.

    Heartbeats tell MindSpore's scheduler that a rank is gone; we know from the kernel. Without them a script
    that is done leaves at once, and not when its heartbeat thread has slept its five seconds out.
    """
    heartbeat = {"MS_DISABLE_HEARTBEAT": "1"} if shared.builtin_scheduler else {}
    return {**heartbeat, "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1"}


def _unset(spec: RunSpec, shared: WorkerLaunchSpec) -> frozenset[str]:
    """Inherited names that would mislead a worker."""
    meeting = () if spec.simulation is None else ("MS_ROLE", "MS_SCHED_HOST", "MS_SCHED_PORT")
    return frozenset((*_OWNED, *meeting, *(() if shared.ascend else (GROUP_INFO,))))


def _recovery(
    base: Mapping[str, str], spec: RunSpec, seat: WorkerPlacement, shared: WorkerLaunchSpec
) -> dict[str, str]:
    """What a newcomer beside survivors is told; torchft's own words where the training recovers by itself.

    torchft refuses a run id that all its hosts have used before, and wants the same one where one host comes
    back (``torchft/fsdp/fault_tolerance.py``).
    """
    if spec.supervision.policy.exit_codes is not WorkerExitCodes.TORCHFT:
        newcomer = {wire.REJOIN_VARIABLE: "1"} if shared.plan.kept else {}
        shares = {wire.MISSING_VARIABLE: "train"} if spec.supervision.windows.trains_from else {}
        return {**newcomer, **shares, **_verdict(spec)}
    run_id = base.get("FTFSDP_RUN_ID") or spec.run_id
    return {
        "FTFSDP_HOST_NAME": base.get("FTFSDP_HOST_NAME") or spec.node,
        "FTFSDP_HOST_INDEX": base.get("FTFSDP_HOST_INDEX") or str(seat.node_rank),
        "FTFSDP_RUN_ID": f"{run_id}-{shared.plan.started}" if shared.plan.started else run_id,
    }


def _verdict(spec: RunSpec) -> dict[str, str]:
    """A lost node is known by the end of its lease, which may be the coordinator's too."""
    if spec.agreement is None:
        return {}
    return {wire.VERDICT_VARIABLE: f"{_LEASES * spec.agreement.lease_ttl_s + _ELECTED_S:g}"}


def _always(spec: RunSpec, seat: WorkerPlacement, shared: WorkerLaunchSpec) -> dict[str, str]:
    world_size = str(shared.plan.topology.world_size)
    rank_table = seat.rank_table or spec.rendezvous.rank_table_file
    return {
        "RANK": str(seat.rank),
        "LOCAL_RANK": str(seat.local_rank),
        "WORLD_SIZE": world_size,
        "LOCAL_WORLD_SIZE": str(seat.local_world_size),
        "NODE_RANK": str(seat.node_rank),
        "MASTER_ADDR": shared.master_addr,
        "MASTER_PORT": str(shared.master_port),
        "RANK_ID": str(seat.rank),
        "RANK_SIZE": world_size,
        "DEVICE_ID": seat.device_id,
        **({"RANK_TABLE_FILE": rank_table} if rank_table else {}),
        "TORCHELASTIC_RESTART_COUNT": str(shared.plan.incarnation),
        "TORCHELASTIC_MAX_RESTARTS": str(spec.supervision.policy.max_restarts),
        "TORCHELASTIC_RUN_ID": spec.run_id,
        ERROR_VARIABLE: error_file(shared.error_dir, seat.rank),
        "PYTHONUNBUFFERED": "1",
        "FAULTRUN_RUN_ID": spec.run_id,
        "FAULTRUN_BOOT_ID": shared.boot,
        "FAULTRUN_INCARNATION": str(shared.plan.incarnation),
        "FAULTRUN_GRACE_S": f"{spec.supervision.windows.grace_s:g}",
        wire.SOCKET_VARIABLE: shared.socket,
        wire.PROGRESS_VARIABLE: f"{shared.progress_page}:{seat.local_rank}",
        **({FOLDERS_VARIABLE: spec.identity.folder} if spec.identity.folder else {}),
    }


def _as_torchrun(spec: RunSpec, seat: WorkerPlacement, shared: WorkerLaunchSpec) -> dict[str, str]:
    """What torchrun tells beside (PyTorch 2.13, elastic/agent/server/local_elastic_agent.py).

    One role, a group for each node. No agent keeps a store: rank 0 makes one on the port of each incarnation.
    """
    topology = shared.plan.topology
    return {
        "GROUP_RANK": str(seat.node_rank),
        "GROUP_WORLD_SIZE": str(len(topology.nodes)),
        "ROLE_NAME": spec.identity.role,
        "ROLE_RANK": str(seat.rank),
        "ROLE_WORLD_SIZE": str(topology.world_size),
        "TORCHELASTIC_USE_AGENT_STORE": "False",
    }


def _fewer(
    base: Mapping[str, str], spec: RunSpec, seat: WorkerPlacement, shared: WorkerLaunchSpec
) -> dict[str, str]:
    """In a run that may shrink: how many there were, and which devices the local ranks count through.

    torch takes the device whose number is LOCAL_RANK, so those of slots without a worker are hidden from it.
    MindSpore and TensorFlow take DEVICE_ID.
    """
    if not spec.resizes:
        return {}
    full, now = spec.topology.world_size, shared.plan.topology.world_size
    told = {wire.FULL_VARIABLE: str(full), wire.ACCUMULATE_VARIABLE: str(-(-full // now))}
    if not seat.places or spec.framework in (Framework.MINDSPORE, Framework.TENSORFLOW):
        return told
    seen = {"CUDA_VISIBLE_DEVICES": _devices(base, "CUDA_VISIBLE_DEVICES", seat.places)}
    if shared.ascend:
        seen["ASCEND_RT_VISIBLE_DEVICES"] = _devices(base, "ASCEND_RT_VISIBLE_DEVICES", seat.places)
        seen["DEVICE_ID"] = str(seat.local_rank)
    return {**told, **seen}


def _devices(base: Mapping[str, str], variable: str, slots: tuple[int, ...]) -> str:
    """The devices of ``slots``, of those that ``variable`` lets see."""
    seen = [one.strip() for one in base[variable].split(",")] if base.get(variable) else []
    return ",".join(seen[slot] if slot < len(seen) else str(slot) for slot in slots)


def _own_device(base: Mapping[str, str], spec: RunSpec, seat: WorkerPlacement) -> dict[str, str]:
    """``--virtual-local-rank``: the worker's GPU is the only one it sees, and so number 0."""
    if not spec.identity.own_device:
        return {}
    seen = base.get("CUDA_VISIBLE_DEVICES")
    devices = [] if seen is None else seen.split(",")
    device = devices[seat.slot].strip() if seat.slot < len(devices) else str(seat.slot)
    return {"LOCAL_RANK": "0", "CUDA_VISIBLE_DEVICES": device}


def _resume(plan: Plan, rank: int) -> dict[str, str]:
    """Set whenever an incarnation resumes; absent in the first one of a run that begins from nothing."""
    point = plan.point
    if plan.incarnation == 0 and point is None:
        return {}
    return {
        "FAULTRUN_RESTART_REASON": plan.reason.value,
        "FAULTRUN_RESUME_FROM": point.path_for(rank) if point else "",
        "FAULTRUN_RESUME_EPOCH": _number(point.epoch) if point else "",
        "FAULTRUN_RESUME_STEP": _number(point.global_step) if point else "",
        "RESTORE_RANKS": (point.restore_ranks if point else "") or "-1",
        "RESTORE_RANKS_MAP": (point.restore_ranks_map if point else "") or "{}",
    }


def _number(value: int | None) -> str:
    return "" if value is None else str(value)


def _group_info(seat: WorkerPlacement, shared: WorkerLaunchSpec) -> dict[str, str]:
    """Where MindSpore writes the replica groups of each rank.

    On CPU the variable sends graph compilation into a path that only Ascend
    and GPU have, and training fails; there the file is named to our side only.
    """
    path = f"{shared.group_info_dir}/device{seat.rank}/group_info.pb"
    return {"FAULTRUN_GROUP_INFO_FILE": path, **({GROUP_INFO: path} if shared.ascend else {})}


def _mindspore(spec: RunSpec, seat: WorkerPlacement, shared: WorkerLaunchSpec) -> dict[str, str]:
    if spec.framework is not Framework.MINDSPORE:
        return {}
    world = {
        "MS_WORKER_NUM": str(shared.plan.topology.world_size),
        "MS_NODE_ID": str(seat.rank),
        "MS_TOPO_TIMEOUT": str(spec.rendezvous.cluster_time_out_s),
    }
    if spec.simulation is not None:
        return {**world, "MS_SIMULATION_LEVEL": str(spec.simulation.level)}
    return {**world, **scheduler_address(shared), "MS_ROLE": "MS_WORKER"}


def scheduler_address(shared: WorkerLaunchSpec) -> dict[str, str]:
    """Where MindSpore's scheduler listens: the address that the plan's go gave."""
    return {"MS_SCHED_HOST": shared.master_addr, "MS_SCHED_PORT": str(shared.master_port)}


def _tensorflow(spec: RunSpec, seat: WorkerPlacement) -> dict[str, str]:
    """TensorFlow on Ascend; JOB_ID is HCCL's, a constant of the platform's own scripts."""
    if spec.framework is not Framework.TENSORFLOW:
        return {}
    job_id = "123456789" if spec.rendezvous.rank_table_file else "10086"
    return {"ASCEND_DEVICE_ID": seat.device_id, "DEVICE_INDEX": str(seat.rank), "JOB_ID": job_id}


def _binding(spec: RunSpec, seat: WorkerPlacement) -> dict[str, str]:
    """What MindSpore's own threads are told about the processors that the worker was given."""
    told = spec.binding.worker_env
    return dict(told[seat.slot]) if seat.slot < len(told) else {}


def _simulated(spec: RunSpec) -> dict[str, str]:
    """A dry run pretends to be one rank, or all, of a world that need not exist."""
    if spec.simulation is None:
        return {}
    pretended = dict.fromkeys(("WORLD_SIZE", "RANK_SIZE", "MS_WORKER_NUM"), str(spec.simulation.world_size))
    if spec.simulation.rank is None:
        return pretended
    return pretended | dict.fromkeys(("RANK", "RANK_ID", "MS_NODE_ID"), str(spec.simulation.rank))


def compile_cache_variables(folder: str, plan: Plan) -> dict[str, str]:
    """What a worker of ``plan`` is told; each rank keeps a folder of its own in there.

    An incarnation that did not get past its start may have left half a file: the next begins a folder anew.
    """
    if not folder:
        return {}
    if plan.point is None:
        failed = sum(restart.step < 0 for restart in plan.ledger.restarts)
    else:
        failed = next((one.failures for one in plan.ledger.attempts if one.path == plan.point.path), 0)
    fewer = plan.slots is not None and plan.slots.aside
    of_size = f"_of_{plan.topology.world_size}" if fewer else ""
    return {"MS_COMPILER_CACHE_ENABLE": "1", "MS_COMPILER_CACHE_PATH": f"{folder}/{failed}{of_size}"}
