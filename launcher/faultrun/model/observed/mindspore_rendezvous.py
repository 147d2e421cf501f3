"""Events of the ranks' meeting at our own scheduler."""

from dataclasses import dataclass

from faultrun.model.event_base import Fact


@dataclass(frozen=True, slots=True, kw_only=True)
class RanksMet(Fact):
    """Every rank has registered with our own scheduler (MindSpore, ``--ms_scheduler=builtin``)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterFormed(Fact):
    """Every rank knows every other; ``took_s`` since they met. Their ``init()`` returns now."""

    took_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RankMissed(Fact):
    """``rank`` left with exit code 0 without having registered, and others wait for it: they never meet."""

    rank: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerFailed(Fact):
    """Our own scheduler was asked something that it does not understand, or could not listen."""

    why: str


RendezvousEvent = RanksMet | ClusterFormed | RankMissed | SchedulerFailed
