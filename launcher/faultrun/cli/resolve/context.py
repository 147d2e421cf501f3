"""What ``resolve`` may know of the process it runs in, and what it has to say along the way."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from faultrun.cli.options.option import Option
from faultrun.cli.options.settings import Settings
from faultrun.platforms.rank_table.rank_table import RankTable


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessContext:
    """Our own process: its environment, the Python that runs it, where that imports from, its process id.

    ``at_terminal``: what it prints is read by a person. The platform's usual paths begin at ``root``.
    ``rank_table`` and ``servers`` are what it was waited for; None: to be read.
    """

    environ: Mapping[str, str]
    python: str
    import_path: tuple[str, ...]
    pid: int
    at_terminal: bool = False
    root: Path = Path("/")
    rank_table: RankTable | None = None
    servers: tuple[str, ...] | None = None

    @property
    def in_pod(self) -> bool:
        """Whether this is a container of Kubernetes, with a network of its own and its task's name."""
        names = ("VC_TASK_INDEX", "VK_TASK_INDEX", "KUBERNETES_SERVICE_HOST")
        return any(self.environ.get(name) for name in names)


@dataclass(frozen=True, slots=True)
class ResolveContext:
    """What the user said, where, and the lines for stderr that come of it, each once."""

    settings: Settings
    process: ProcessContext
    notes: list[str] = field(default_factory=list)

    @property
    def environ(self) -> Mapping[str, str]:
        """The environment of our process."""
        return self.process.environ

    def note(self, line: str) -> None:
        """Say something that a person should know before the run starts."""
        if line not in self.notes:
            self.notes.append(line)

    def no_effect(self, because: str, *options: Option[Any]) -> None:
        """Say of each of ``options`` that was set that it does nothing here."""
        for option in options:
            if self.settings.gave(option):
                self.note(f"{self.settings.where(option)} has no effect here: {because}")
