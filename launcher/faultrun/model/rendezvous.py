"""Events of the ranks' meeting at our own scheduler."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class RanksMet:
    """Every rank has registered with our own scheduler (MindSpore, ``--ms_scheduler=builtin``)."""

    at_s: float
    incarnation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterFormed:
    """Every rank knows every other; ``took_s`` since they met. Their ``init()`` returns now."""

    at_s: float
    incarnation: int
    took_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RankMissed:
    """``rank`` left with exit code 0 without having registered, and others wait for it: they never meet."""

    at_s: float
    incarnation: int
    rank: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerFailed:
    """Our own scheduler was asked something that it does not understand, or could not listen."""

    at_s: float
    incarnation: int
    why: str
