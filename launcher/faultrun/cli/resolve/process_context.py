"""What ``resolve`` may know of the process it runs in, and what it has to say along the way."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from faultrun.cli.options.settings import Settings
from faultrun.platforms.rank_table import RankTable


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """Our own process: its environment, the Python that runs it, where that imports from, its process id.

    The platform's usual paths begin at ``root``. ``rank_table`` and ``servers`` are what it was waited for;
    None: to be read.
    """

    environ: Mapping[str, str]
    python: str
    import_path: tuple[str, ...]
    pid: int
    root: Path = Path("/")
    rank_table: RankTable | None = None
    servers: tuple[str, ...] | None = None


@dataclass(slots=True)
class Notes:
    """Lines for stderr, each said once, in the order in which they came up."""

    settings: Settings
    lines: list[str] = field(default_factory=list)

    def add(self, line: str) -> None:
        """Say something that a person should know before the run starts."""
        if line not in self.lines:
            self.lines.append(line)

    def no_effect(self, name: str, because: str) -> None:
        """Say that option ``name`` does nothing here, if somebody set it."""
        if name in self.settings.given:
            self.add(f"{self.settings.where(name)} has no effect here: {because}")
