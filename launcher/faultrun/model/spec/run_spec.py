"""What the user asked for, validated: the command line, environment and config file become this once."""

import math
import re
from dataclasses import dataclass, field
from enum import Enum

from faultrun.model.event_base import UNLESS_USED
from faultrun.model.exits import WorkerExitCodes
from faultrun.model.observed.elastic import Elastic
from faultrun.model.observed.evidence import Row
from faultrun.model.observed.hang import HangPolicy
from faultrun.model.observed.standby import StandbyWish
from faultrun.model.spec.nodes_spec import AgreementSpec
from faultrun.model.spec.output import Logs, View
from faultrun.model.spec.windows import Windows
from faultrun.model.spec.worker_identity import WorkerIdentity
from faultrun.model.topology import NodeId, RunId, Topology


class Framework(Enum):
    """Which environment contract and helper processes the workers need."""

    MINDSPORE = "mindspore"
    TORCH = "torch"
    TENSORFLOW = "tensorflow"
    PLAIN = "plain"


class Resume(Enum):
    """What the first incarnation does with checkpoints it finds (CONTRACT: ``--resume``)."""

    AUTO = "auto"
    ALWAYS = "always"
    NEVER = "never"


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """The worker's program: ``argv`` runs as it stands; ``script_args`` is where ``--resume_arg`` edits.

    The full argument vector of a worker is ``prefix + script_args``.
    """

    prefix: tuple[str, ...]
    script_args: tuple[str, ...]
    shown: str

    @property
    def script(self) -> str:
        """The name of the file that is run, or of the module."""
        return self.prefix[-1].rpartition("/")[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartPolicy:
    """At most ``max_restarts`` for faults in any ``window_s``; waits grow from ``backoff_min_s``.

    ``exit_codes``: what workers mean by theirs; it may be that nothing is to follow.
    """

    max_restarts: int = 3
    window_s: float = 3600.0
    backoff_min_s: float = 1.0
    backoff_max_s: float = 60.0
    exit_codes: WorkerExitCodes = WorkerExitCodes.USUAL


class OnFault(Enum):
    """What becomes of the survivors of a fault."""

    AUTO = "auto"  # they stay where their script can
    REPLACE = "replace"  # the same, and it is said why they cannot
    RESTART = "restart"  # all start again


class WhileMissing(Enum):
    """What survivors do while the place of another is empty."""

    WAIT = "wait"
    TRAIN = "train"  # they share out its samples, where their script can


class Hold(Enum):
    """How a worker is tied to processors."""

    NONE = "none"
    CORES = "cores"
    NUMA = "numa"


@dataclass(frozen=True, slots=True, kw_only=True)
class Binding:
    """Processors for each local rank; ``cpus`` is empty when the kernel may choose.

    ``memory_nodes`` are NUMA nodes (``numactl --membind``), empty for any. ``worker_env`` are the variables
    through which msrun tells MindSpore's own thread binding of it, name and value, for each local rank.
    """

    hold: Hold = Hold.NONE
    cpus: tuple[tuple[int, ...], ...] = ()
    memory_nodes: tuple[tuple[int, ...], ...] = ()
    scheduler_cpus: tuple[int, ...] = ()
    scheduler_memory_nodes: tuple[int, ...] = ()
    worker_env: tuple[tuple[tuple[str, str], ...], ...] = ()


class MsScheduler(Enum):
    """Who serves the rendezvous of MindSpore's workers: the supervisor, or MindSpore's scheduler process."""

    BUILTIN = "builtin"
    NATIVE = "native"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rendezvous:
    """Where the workers meet if rank 0 is here. ``port``: of the first start, or of all (``fixed_port``).

    ``ports``: the first and the last of those that nodes may use of one another; None: any.
    """

    master_addr: str = "127.0.0.1"
    port: int | None = None
    fixed_port: bool = False
    ports: tuple[int, int] | None = None
    cluster_time_out_s: int = 600
    rank_table_file: str = ""
    rank_table_wait_s: float = 300.0
    ms_scheduler: MsScheduler = MsScheduler.NATIVE


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulation:
    """MindSpore's dry run (``--sim_level``): workers without a scheduler; ``rank`` picks a single one.

    ``world_size`` is the size that is simulated (RANK_SIZE, MS_WORKER_NUM); fewer workers may really run.
    """

    level: int
    rank: int | None = None
    world_size: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewrite:
    """``--rewrite FILE:KEY[=TEMPLATE]``: the configuration value that shall name the recovery point.

    ``format`` is a name of ``configs.editors.registry``, or empty when the file's name tells it.
    """

    file: str
    key: str
    template: str = "{checkpoint}"
    format: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pointer:
    """A file in which the training code itself notes its newest checkpoint: DeepSpeed's ``latest``.

    ``name`` lies beside the checkpoint, which is a folder, and holds the filled ``template`` to the byte.
    """

    name: str
    template: str


class RestoreConfigs(Enum):
    """When rewritten configurations are restored by themselves (``--restore_configs``).

    END: when the run has ended well, or was given up; one that was stopped goes on with them.
    """

    NEVER = "never"
    END = "end"


class Replicas(Enum):
    """How it is known which ranks hold the same state.

    AUTO: from the workers' ``group_info.pb`` if they write one, else all hold
    the same. GROUP_INFO: only from there; until it is written no rank has a replica.
    """

    AUTO = "auto"
    GROUP_INFO = "group_info"


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """Where checkpoints are looked for and how a recovery point reaches the training code.

    ``resume_at``: before which of the script's arguments a missing one of ``resume_args`` goes, None: last.
    ``trust``: a checkpoint that cannot be verified may be used. ``script_asks``: its source mentions
    our variables or uses the SDK; None where it could not be read. ``pattern`` names files of a format of
    the user's (``checkpoints/formats/user_pattern.py``), ``formats`` are the only others that count; empty:
    none, all. ``resharded``: whether what all ranks saved together loads into any number of workers; None:
    not said. ``resume_environment`` are templates of variables, set whenever an incarnation resumes.
    """

    checkpoint_dirs: tuple[str, ...] = ()
    rewrites: tuple[Rewrite, ...] = ()
    pointers: tuple[Pointer, ...] = ()
    resume_args: tuple[str, ...] = ()
    resume_at: int | None = None
    resume: Resume = Resume.AUTO
    trust: bool = False
    replicas: Replicas = Replicas.AUTO
    restore_configs: RestoreConfigs = RestoreConfigs.END
    script_asks: bool | None = None
    pattern: str = ""
    formats: tuple[str, ...] = ()
    resharded: bool | None = None
    resume_environment: tuple[tuple[str, str], ...] = ()

    @property
    def handed_over(self) -> bool:
        """Whether something tells the script of a recovery point, as far as can be seen."""
        told = self.rewrites or self.pointers or self.resume_args or self.resume_environment
        return bool(told) or self.script_asks is not False

    @property
    def names_it(self) -> bool:
        """Whether the script is told *which* recovery point, and not only that it shall resume."""
        by_option = any("{" in one for one in self.resume_args)
        named = self.rewrites or self.pointers or self.resume_environment or by_option
        return bool(named) or (not self.resume_args and self.script_asks is not False)

    @property
    def own_files(self) -> bool | None:
        """Whether each rank is told a path with its number in it; None: a folder, and no file in it."""
        texts = self._texts
        told = " ".join(texts)
        named = any("{checkpoint_name}" in text and "{rank}" not in text for text in texts)
        if "{checkpoint}" in told or "{checkpoint_file}" in told or named:
            return False
        return "{rank}" in told or (None if "{checkpoint_dir}" in told else False)

    @property
    def own_names(self) -> tuple[str, ...]:
        """How the path of each rank's file ends, as patterns, the longer first; none if a point says it."""
        for parts in (re.sub(r"^-*[\w.-]*=", "", text).split("/") for text in self._texts):
            known = [bool(part.strip(".")) and not re.search(r"{(?!rank})", part) for part in parts]
            fixed = parts[::-1][: [*known[::-1], False].index(False)]
            of_rank = [at for at, part in enumerate(fixed) if "{rank}" in part]
            if of_rank and len(parts) > 1 and "." in fixed[0]:
                ends = (fixed[::-1], fixed[of_rank[-1] :: -1])
                told = (r"(\d+)".join(map(re.escape, "/".join(end).split("{rank}"))) for end in ends)
                return tuple(dict.fromkeys(told))
        return ()

    @property
    def _texts(self) -> tuple[str, ...]:
        return (*self.resume_args, *(text for _, text in self.resume_environment))


class SignalAnswer(Enum):
    """What a signal to faultrun means (``--signals``)."""

    STOP = "stop"
    SAVE = "save"
    IGNORE = "ignore"


@dataclass(frozen=True, slots=True, kw_only=True)
class Supervision:
    """How failures are answered and how the run ends. Signals that ``signals`` does not name mean STOP.

    ``signatures`` are the user's own rows of the table of known failures. ``leave_running_s``: for so long
    may run what ranks left that ended with 0; for ever it is left.
    """

    policy: RestartPolicy = RestartPolicy()
    windows: Windows = Windows()
    exit_code_on_stop: int | None = None
    join: bool = True
    signals: tuple[tuple[int, SignalAnswer], ...] = ()
    signatures: tuple[Row, ...] = ()
    hang: HangPolicy = HangPolicy()
    leave_running_s: float = math.inf


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultFiles:
    """Where the platform tells of faulty devices (Ascend); absolute paths, empty for what is not watched.

    ``restart_in_place``: a rank that the platform gave up may be restarted here
    if the platform says so too (``ENABLE_RESTART_FAULT_PROCESS=on``).
    """

    fault_config: str = ""
    reset_config: str = ""
    restart_in_place: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSpec:
    """One user request, complete and checked. Values that do not fit together never get this far.

    ``environment`` is what workers get on top of the inherited variables, name and value.
    ``compile_cache`` is where MindSpore keeps this job's compiled graphs, absolute; empty: nowhere.
    ``devices`` are the device numbers of the local ranks by the rank table; empty: local rank i has device i.
    ``agreement`` is how several nodes find each other, None for one; the seats of their ``topology`` have no
    names before a plan gives them away. ``elastic`` is how far the run may shrink, or which of its nodes may
    be replaced by spares although they are there; None where neither may be.
    """

    run_id: RunId
    node: NodeId
    topology: Topology
    command: Command
    framework: Framework
    rendezvous: Rendezvous
    supervision: Supervision
    recovery: Recovery
    logs: Logs
    binding: Binding = Binding()
    identity: WorkerIdentity = WorkerIdentity()
    simulation: Simulation | None = None
    environment: tuple[tuple[str, str], ...] = ()
    devices: tuple[int, ...] = ()
    fault_files: FaultFiles = FaultFiles()
    view: View = View()
    compile_cache: str = ""
    standby: StandbyWish = StandbyWish()
    agreement: AgreementSpec | None = None
    elastic: Elastic | None = field(default=None, metadata=UNLESS_USED)

    @property
    def resizes(self) -> bool:
        """Whether the run may go on with another number of workers."""
        return self.elastic is not None and not self.elastic.keeps_size(len(self.topology.nodes))

    @property
    def slots(self) -> int:
        """Workers of this node; every node has as many."""
        return self.topology.nodes[0].slots
