"""How the standbys of a run stand, in one line: how many are ready and what they weigh, or why none is."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from faultrun.model.events import Event, RunStarted, WorkerStarted
from faultrun.model.observed.recovery import RecoveryTimed
from faultrun.model.observed.standby import StandbyChanged, StandbyPhase

_MOST_NAMED = 3
_PYTHON = "python"


@dataclass(frozen=True, slots=True, kw_only=True)
class StandbyTally:
    """``wanted``: how many there shall be on this node. ``ready``: those that wait, by rank.

    ``off``: why there are none and will be none. ``warm_s``: what the last restart took whose ranks were all
    standbys; None where there was none.
    """

    wanted: int = 0
    ready: Mapping[int, StandbyChanged] = field(default_factory=dict)
    off: str = ""
    warm_s: float | None = None

    @property
    def complete(self) -> bool:
        """Whether every rank that shall have one has one."""
        return 0 < self.wanted <= len(self.ready)

    @property
    def memory_bytes(self) -> int:
        """What those that are ready need together (PSS when they became ready)."""
        return sum(one.memory_bytes for one in self.ready.values())

    def after(self, event: Event | None) -> "StandbyTally":
        """With what ``event`` says of them. A supervisor that takes up the run has none."""
        match event:
            case RunStarted():
                return replace(self, ready={}, off="")
            case StandbyChanged(state=StandbyPhase.READY, rank=rank):
                return replace(self, ready={**self.ready, rank: event})
            case StandbyChanged(state=StandbyPhase.OFF, why=why):
                return replace(self, ready={}, off=why)
            case WorkerStarted(standby=True, rank=rank) if self.ready and rank not in self.ready:
                # A spare had it ready before it knew its ranks.
                return self._without(min(self.ready))
            case StandbyChanged(rank=rank) | WorkerStarted(standby=True, rank=rank):
                return self._without(rank)
            case RecoveryTimed(standbys=warm, total_s=total_s) if 0 < self.wanted <= warm:
                return replace(self, warm_s=total_s)
            case _:
                return self

    def _without(self, rank: int) -> "StandbyTally":
        return replace(self, ready={one: was for one, was in self.ready.items() if one != rank})

    def words(self) -> str:
        """One line; empty where there is nothing to say."""
        if self.off:
            return f"none: {self.off}"
        if not self.ready:
            return ""
        count = f"{len(self.ready)}" if self.complete else f"{len(self.ready)} of {self.wanted}"
        plural = "" if self.wanted == 1 else "s"
        each_mib = round(self.memory_bytes / len(self.ready) / (1 << 20))
        weight = f"{each_mib} MiB{' each' if len(self.ready) > 1 else ''}"
        said = f"{count} standby{plural} ready ({self._imported()}, {weight})"
        known = self.complete and self.warm_s is not None
        return f"{said}: a restart takes about {self.warm_s:.1f} s" if known else said

    def _imported(self) -> str:
        """What the first of them has imported."""
        names = [name for name in next(iter(self.ready.values())).imported if name != _PYTHON]
        if not names:
            return "Python started"
        more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
        return f"{', '.join(names[:_MOST_NAMED])}{more} imported"
