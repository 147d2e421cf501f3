"""What a supervisor starts its workers with."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from faultrun.model.plan import Plan
from faultrun.model.topology import BootId
from faultrun.supervisor.exit_inspector import ExitInspector
from faultrun.supervisor.launch.prepare import WorkerCommand
from faultrun.workers.fork_server import ForkServer
from faultrun.workers.logs.streams import Streams
from faultrun.workers.shared_deadline import SharedDeadline


@dataclass(frozen=True, slots=True, kw_only=True)
class SupervisorEnv:
    """What this supervisor starts its workers with, watches and ends them with; made once, at its start."""

    environ: Mapping[str, str]
    boot: BootId
    python: str
    log_dir: Path
    ascend: bool
    command: Callable[[Plan, int], WorkerCommand]
    exits: ExitInspector
    streams: Streams
    deadline: SharedDeadline
    leave: Callable[[], None]
    fork_server: ForkServer
