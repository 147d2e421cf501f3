"""What to execute, and how."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from faultrun.workers.shared_deadline import SharedDeadline


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """What to execute.

    ``cpus`` is empty when the kernel may choose the processors, ``memory_nodes``
    (NUMA) when it may choose the memory. ``keep`` are descriptors that it inherits. Once ``deadline`` has
    passed it is killed before it executes anything: it may have been decided on long ago. ``at_once``: until
    it executes, it goes before whatever else wants the processors, where ``undisturbed`` may have that.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str]
    stdout: Path
    stderr: Path | None = None
    cwd: str | None = None
    cpus: tuple[int, ...] = ()
    memory_nodes: tuple[int, ...] = ()
    keep: tuple[int, ...] = ()
    deadline: SharedDeadline | None = None
    at_once: bool = False
