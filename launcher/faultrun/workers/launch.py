"""What to execute, and how."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from faultrun.workers.shared_deadline import SharedDeadline

HOOK = Path(__file__).parent.parent / "standby" / "hook"


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """What to execute.

    ``cpus`` is empty when the kernel may choose the processors, ``memory_nodes``
    (NUMA) when it may choose the memory. ``keep`` are descriptors that it inherits. Once ``deadline`` has
    passed it is killed before it executes anything: it may have been decided on long ago. ``at_once``: until
    it executes, it goes before whatever else wants the processors, where ``undisturbed`` may have that.
    ``hooked``: it is a Python that can come to our hook before its program.
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
    hooked: bool = False

    @property
    def environ(self) -> Mapping[str, str]:
        """``env``, and the way to the hook. An empty PYTHONPATH is none to Python."""
        if not self.hooked:
            return self.env
        path = self.env.get("PYTHONPATH", "")
        return {**self.env, "PYTHONPATH": f"{HOOK}{os.pathsep}{path}" if path else str(HOOK)}
