"""Whether there is room for standbys: processors that are idle now, and memory for all that are missing.

``platforms.cgroup`` reads the machine; ``core.standby.policy`` says what is done.
"""

from dataclasses import dataclass

ROOMY = 2.0
"""Processors for each worker that are room enough for any program: a worker keeps one busy and its data
loader, its collectives' threads or a neighbour the other, before a standby, at low priority, gets a turn."""

IDLE = 0.9
"""A standby's imports keep one processor busy; a tenth of it goes to ticks, sshd and our own look."""

SHORTEST_LOOK_S = 0.5
"""The kernel counts idle time in hundredths of a second; less than 50 of them is no measurement."""

MOST_AT_ONCE = 8
"""Side by side they read the same files and fork from one loop: more are ready hardly sooner."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessorSample:
    """What had been used by ``at_s`` (monotonic seconds). Counters only grow; None: unknown.

    ``allowed`` processors are ours to use, by affinity; ``idle_s`` is how long they stood idle, all together.
    ``quota`` is how many the control group pays for, ``spent_s`` what its processes have used of them.
    """

    at_s: float
    allowed: int
    idle_s: float | None = None
    quota: float | None = None
    spent_s: float | None = None

    @property
    def processors(self) -> float:
        """How many this run can use."""
        return self.allowed if self.quota is None else min(self.allowed, self.quota)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessorRoom:
    """Standbys may start now, ``at_once`` of them side by side; ``why`` is a phrase."""

    at_once: int
    why: str


def processor_room(
    before: ProcessorSample | None, now: ProcessorSample, workers: int
) -> ProcessorRoom | None:
    """Return the room beside ``workers`` that run; None where there is none, or it is unknown.

    ``before`` is an earlier sample, at least ``SHORTEST_LOOK_S`` old to tell what is idle.
    """
    idle = idle_processors(before, now)
    at_once = max(1, min(MOST_AT_ONCE, int((idle or 0.0) + 1.0 - IDLE)))
    if now.processors >= ROOMY * workers:
        return ProcessorRoom(at_once=at_once, why=f"{now.processors:g} processors for {workers} workers")
    if idle is not None and idle >= IDLE:
        return ProcessorRoom(at_once=at_once, why=f"{idle:.1f} of {now.processors:g} processors stood idle")
    return None


def idle_processors(before: ProcessorSample | None, now: ProcessorSample) -> float | None:
    """Processors that could have been used between the two samples and were not; None if unknown."""
    if before is None or before.idle_s is None or now.idle_s is None:
        return None
    passed_s = now.at_s - before.at_s
    if passed_s < SHORTEST_LOOK_S:
        return None
    idle = max(0.0, now.idle_s - before.idle_s) / passed_s
    if now.quota is None:
        return min(idle, float(now.allowed))
    if before.spent_s is None or now.spent_s is None:
        return None
    return max(0.0, min(idle, now.quota - (now.spent_s - before.spent_s) / passed_s))


def short_of_memory(missing: int, each_bytes: int, free_bytes: int | None) -> str:
    """Say why ``missing`` standbys of ``each_bytes`` cannot be had; "" where they can.

    All or none: a restart is as slow as its slowest rank. ``free_bytes`` is what may be used up, a reserve
    left alone; None: nothing says.
    """
    if free_bytes is None:
        return "how much memory is free cannot be read"
    need_bytes = missing * each_bytes
    if free_bytes >= need_bytes:
        return ""
    may = f"only {free_bytes >> 20} MiB" if free_bytes >> 20 > 0 else "none"
    return f"{missing} would need about {need_bytes >> 20} MiB, and {may} may be used beside a reserve"
