"""The launchers that compete: how each is asked to run one and the same job."""

import importlib.util
import shutil
import socket
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from benchmarks.harness.benchmark import OURS
from benchmarks.harness.rivals import NVRX, ft_launcher_missing

BIN = Path(sys.executable).parent
LOG_DIR = "log"
HEARTBEAT_S = 5
_HEARTBEATS = (
    f"--ft-rank-heartbeat-timeout={HEARTBEAT_S}",
    "--ft-initial-rank-heartbeat-timeout=120",
    "--ft-workload-check-interval=1",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """``program`` is ``python ...`` as written, or a script with its arguments.

    ``recovery`` are options that only faultrun has: how its workers learn
    where to resume. ``recovery`` of the others is in ``for_others``: script
    arguments by which the job finds its newest checkpoint itself.
    """

    workers: int
    program: tuple[str, ...]
    restarts: int = 3
    recovery: tuple[str, ...] = ()
    for_others: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Launcher:
    """``signals``: survivors are asked before they are killed. ``restarts``: workers are started again."""

    name: str
    module: str
    command: Callable[[Job], tuple[str, ...]]
    environ: Mapping[str, str] = field(default_factory=dict)
    signals: bool = True
    restarts: bool = True
    absent: Callable[[], str] = lambda: ""

    def missing(self) -> str:
        """Why it cannot run here; empty when it can."""
        if importlib.util.find_spec(self.module.partition(".")[0]) is None:
            return f"{self.module.partition('.')[0]} is not installed"
        return self.absent()


def _faultrun(job: Job) -> tuple[str, ...]:
    options = (f"--worker_num={job.workers}", f"--max_restarts={job.restarts}", f"--log_dir={LOG_DIR}")
    return (sys.executable, "-m", "faultrun", *options, *job.recovery, *job.program)


def _warm(job: Job) -> tuple[str, ...]:
    ours = _faultrun(job)
    return (*ours[:3], f"--standby={job.workers}", *ours[3:])


def _ft_launcher(job: Job, heartbeats: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Without heartbeats if nothing is said: they need calls in the script."""
    options = ("--nnodes=1", f"--nproc-per-node={job.workers}", f"--max-restarts={job.restarts}")
    meet = (f"--rdzv-endpoint=127.0.0.1:{free_port()}", f"--rdzv-id=bench-{free_port()}")
    how = (*heartbeats, *options, "--rdzv-backend=c10d", *meet)
    return (str(NVRX / "ft_launcher"), *how, *job.program, *job.for_others)


def _loop(job: Job) -> tuple[str, ...]:
    script = str(Path(__file__).parents[1] / "jobs" / "loop.py")
    return (sys.executable, script, str(job.workers), str(job.restarts), *job.program, *job.for_others)


def _torchrun(job: Job) -> tuple[str, ...]:
    literal = ("--no-python",) if job.program[0] == "python" else ()
    options = ("--standalone", f"--nproc-per-node={job.workers}", f"--max-restarts={job.restarts}")
    return (sys.executable, "-m", "torch.distributed.run", *options, *literal, *job.program, *job.for_others)


def _msrun(job: Job) -> tuple[str, ...]:
    workers = (f"--worker_num={job.workers}", f"--local_worker_num={job.workers}")
    options = (f"--master_port={free_port()}", "--join=True", f"--log_dir={LOG_DIR}")
    msrun = shutil.which("msrun", path=str(BIN)) or "msrun"
    return (msrun, *workers, *options, *job.program, *job.for_others)


def _bare(job: Job) -> tuple[str, ...]:
    """Workers with nobody watching: the measure of what a launcher changes."""
    return _loop(replace(job, restarts=0))


BARE = Launcher(name="bare", module="sys", command=_bare, signals=False, restarts=False)
FAULTRUN = Launcher(name=OURS, module="faultrun", command=_faultrun, environ={"FAULTRUN_STANDBY": "none"})
WARM = "faultrun, standbys"
FAULTRUN_WARM = Launcher(name=WARM, module="faultrun", command=_warm)
STAY = "faultrun, survivors stay"
FAULTRUN_STAY = Launcher(name=STAY, module="faultrun", command=_warm)
"""For scripts whose ranks can: their standbys wait where they can join."""
TRAIN_ON = "faultrun, survivors train on"
FAULTRUN_TRAIN_ON = replace(
    FAULTRUN, name=TRAIN_ON, environ={"FAULTRUN_STANDBY": "none", "FAULTRUN_WHILE_MISSING": "train"}
)
WARM_CACHED = "faultrun, standbys and compile cache"
FAULTRUN_WARM_CACHED = Launcher(
    name=WARM_CACHED, module="faultrun", command=_warm, environ={"FAULTRUN_COMPILE_CACHE": "log_dir"}
)
FT_LAUNCHER = Launcher(name="ft_launcher", module="torch", command=_ft_launcher, absent=ft_launcher_missing)
HEARTBEATS = f"ft_launcher, heartbeats of {HEARTBEAT_S} s"
_BEATING = partial(_ft_launcher, heartbeats=_HEARTBEATS)
FT_LAUNCHER_HEARTBEATS = replace(FT_LAUNCHER, name=HEARTBEATS, command=_BEATING)
LOOP = Launcher(name="shell loop", module="sys", command=_loop)
TORCHRUN = Launcher(name="torchrun", module="torch", command=_torchrun)
_UNSHARED = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
TORCHRUN_OWN_STORE = replace(TORCHRUN, name="torchrun, unshared store", environ=_UNSHARED)
MSRUN = Launcher(name="msrun", module="mindspore", command=_msrun, signals=False, restarts=False)

_ALL = {
    launcher.name: launcher
    for launcher in (
        *(BARE, LOOP, FAULTRUN, FAULTRUN_WARM, FAULTRUN_WARM_CACHED, FAULTRUN_STAY, FAULTRUN_TRAIN_ON),
        *(TORCHRUN, TORCHRUN_OWN_STORE, FT_LAUNCHER, FT_LAUNCHER_HEARTBEATS, MSRUN),
    )
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Meeting:
    """One of ``size`` nodes, number ``at``: its name and address, the first one's, and where etcd is."""

    size: int
    name: str
    address: str
    first: str
    at: int
    etcd: str
    lease_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LauncherOfNodes:
    """A launcher on one of several nodes. ``command`` takes the script and its arguments."""

    command: Callable[[Meeting, tuple[str, ...]], tuple[str, ...]]
    environ: Mapping[str, str] = field(default_factory=dict)


def _faultrun_node(node: Meeting, program: tuple[str, ...], *more: str) -> tuple[str, ...]:
    options = (
        *(f"--nnodes={node.size}", "--nproc-per-node=1", "--max_restarts=20", f"--log_dir={LOG_DIR}"),
        *("--rdzv-backend=etcd", f"--rdzv-endpoint={node.etcd}", "--rdzv-id=bench"),
        *(f"--local-addr={node.address}", f"--node_name={node.name}", f"--lease_ttl={node.lease_s:g}s"),
        *("--checkpoint_dir=checkpoints", "--resume_arg=--pre_trained={checkpoint}", *more),
    )
    return (sys.executable, "-m", "faultrun", *options, *program)


def _warm_node(node: Meeting, program: tuple[str, ...]) -> tuple[str, ...]:
    return _faultrun_node(node, program, "--standby=1")


def _torchrun_node(node: Meeting, program: tuple[str, ...]) -> tuple[str, ...]:
    """As its page on several nodes says; who serves its store is said, for a host name may not tell."""
    options = (
        *(f"--nnodes={node.size}", "--nproc-per-node=1", "--max-restarts=20"),
        *("--rdzv-backend=c10d", f"--rdzv-endpoint={node.first}:29400", "--rdzv-id=bench"),
        *(f"--rdzv-conf=is_host={int(node.at == 0)}", f"--local-addr={node.address}"),
    )
    return (sys.executable, "-m", "torch.distributed.run", *options, *program, "--find_newest")


LAUNCHERS_OF_NODES = {
    OURS: LauncherOfNodes(command=_faultrun_node, environ={"FAULTRUN_STANDBY": "none"}),
    WARM: LauncherOfNodes(command=_warm_node),
    "torchrun": LauncherOfNodes(command=_torchrun_node),
}


def launcher(name: str) -> Launcher:
    """The launcher of that name."""
    return _ALL[name]


def missing(name: str) -> str:
    """Why the launcher of that name cannot run here; empty when it can."""
    return _ALL[name].missing()


def free_port() -> int:
    """A port that nobody listens on at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
