"""The workers' logs of a rehearsed run as they grow: how far training is, and the losses that it prints."""

from dataclasses import dataclass, field
from pathlib import Path

from faultrun.core.logged_losses import LossPlace, losses_of
from faultrun.core.logged_steps import StepsSeen, read, unread
from faultrun.files import bytes_from

_CHUNK_BYTES = 1 << 20
_KEPT_LINES = 2000


@dataclass(slots=True)
class _Log:
    """One worker's. ``lines`` are the newest, ``rest`` is being written."""

    path: Path
    seen: StepsSeen
    read_bytes: int = 0
    rest: str = ""
    lines: list[str] = field(default_factory=list)
    losses: dict[LossPlace, float] = field(default_factory=dict)

    def look(self) -> bool:
        """Read on; whether there was something."""
        data = bytes_from(self.path, self.read_bytes, _CHUNK_BYTES)
        self.read_bytes += len(data)
        *lines, self.rest = (self.rest + data.decode("utf-8", "replace")).replace("\r", "\n").split("\n")
        self.losses |= losses_of(lines)
        self.seen = read(self.seen, lines)
        self.lines = [*self.lines, *lines][-_KEPT_LINES:]
        return bool(data)


class LogsSeen:
    """All lives and ``ranks`` below one log_dir. ``step_pattern``: see ``StepsSeen``."""

    def __init__(self, log_dir: Path, ranks: int, step_pattern: str = "") -> None:
        self._log_dir, self.ranks, self._pattern = log_dir, ranks, step_pattern
        self._logs: dict[tuple[int, int], _Log] = {}

    def look(self, life: int) -> bool:
        """Read on in the logs of ``life``; whether one has grown."""
        grown = [self._log(life, rank).look() for rank in range(self.ranks)]  # of every log
        return any(grown)

    def step(self, life: int) -> int | None:
        """The furthest global step that a log of ``life`` tells of."""
        found = [self._log(life, rank).seen.last() for rank in range(self.ranks)]
        return max((one.step for one in found if one is not None and one.step is not None), default=None)

    def losses(self, life: int) -> dict[LossPlace, float]:
        """What ``life`` has printed; of ranks behind the first the place names the rank."""
        return {
            place if rank == 0 else f"rank {rank} {place}": loss
            for rank in range(self.ranks)
            for place, loss in self._log(life, rank).losses.items()
        }

    def last_words(self, life: int, rank: int, most: int = 12) -> str:
        """The end of what ``rank`` wrote in ``life``."""
        lines = [line for line in self._log(life, rank).lines if line.strip()]
        return "\n".join(lines[-most:])

    def _log(self, life: int, rank: int) -> _Log:
        path = self._log_dir / f"incarnation_{life}" / f"worker_{rank}.log"
        return self._logs.setdefault((life, rank), _Log(path, unread(self._pattern)))
