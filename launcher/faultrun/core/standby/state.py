"""What is known of the standbys of one node, and whether devices have room for them."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from faultrun.model.observed.standby import MemoryUsed, StandbyChanged, StandbyPhase

_MARGIN = 20
"""So large a part of a device stays free: ranks grow a little. Where half of it is left, standbys go."""

_PARKED = (StandbyPhase.PARKING, StandbyPhase.PARKED)


@dataclass(frozen=True, slots=True, kw_only=True)
class StandbyState:
    """What is known of the standbys. ``ranks`` are those that shall have one; none: standbys are off.

    Of fewer than this node has ranks, and before workers run, only how many they are counts: a ready one
    serves whatever rank needs it, and a spare keeps its standbys under the first numbers until it gets a
    seat (``waits``). ``doubts`` are why there are none; every life says so, for those who read no more
    than its journal. ``at_once``: how many may be on their way side by side. ``running``: workers run.
    ``proved``: they have trained; after ``settled_s`` they, or the wait, have lasted long enough.
    ``warm``: some were standbys. ``cold_next``: the next start shall not use any. ``suspicions`` counts
    warm starts that failed before they were proved. ``memory`` is what each rank has told of its own; of
    ranks ``kept_ready`` none is parked any more, for want of room. ``healing`` are ranks whose place is empty
    and whose newcomer is on its way or there; ``in_vain``: so many in a row came to nothing, and the next one
    starts at ``heal_at_s``; at ``overdue_s`` one that is still on its way is ended.
    """

    ranks: tuple[int, ...] = ()
    asked: bool = False
    doubts: tuple[str, ...] = ()
    phases: Mapping[int, StandbyPhase] = field(default_factory=dict)
    starting_since_s: float = 0.0
    at_once: int = 1
    running: bool = False
    proved: bool = False
    settled_s: float = 0.0
    warm: bool = False
    cold_next: bool = False
    waits: bool = False
    failures: int = 0
    last_lost: StandbyChanged | None = None
    suspicions: int = 0
    memory: Mapping[int, MemoryUsed] = field(default_factory=dict)
    kept_ready: frozenset[int] = frozenset()
    healing: frozenset[int] = frozenset()
    in_vain: int = 0
    heal_at_s: float = 0.0
    overdue_s: float = 0.0

    @property
    def usable(self) -> frozenset[int]:
        """Ranks whose standby may be given its place now."""
        ready = {rank for rank, phase in self.phases.items() if phase is StandbyPhase.READY}
        return frozenset() if self.cold_next else frozenset(ready)

    @property
    def parked(self) -> tuple[int, ...]:
        """Ranks whose standby runs the user's program: it can join survivors, and begin nothing anew."""
        return tuple(rank for rank, phase in self.phases.items() if phase in _PARKED)

    @property
    def starting(self) -> tuple[int, ...]:
        """Ranks whose standby is not ready yet."""
        return tuple(rank for rank, phase in self.phases.items() if phase is StandbyPhase.STARTING)


def needs(standbys: StandbyState, told: MemoryUsed) -> StandbyState:
    """Note what a rank has told: the most that any process of it has needed, and what is free now."""
    before = standbys.memory.get(told.rank)
    if before is not None and before.device == told.device:
        sizes = ("host_bytes", "device_bytes", "beside_bytes")
        told = replace(told, **{size: max(getattr(told, size), getattr(before, size)) for size in sizes})
    return replace(standbys, memory={**standbys.memory, told.rank: told})


def short_on_device(rank: int, told: Sequence[MemoryUsed], parked: Collection[int], *, asked: bool) -> str:
    """Say why the device of ``rank`` has no room for its standby beside those ``parked``; "" where it has.

    ``told`` is what each rank of the node has said. A standby needs what its rank does, and a margin stays
    free. Where the driver does not say what there is, one that was ``asked`` for is parked.
    """
    own = next(one for one in told if one.rank == rank)
    if not own.total_bytes:
        return f"nothing says how much memory {own.device} has" if own.device and not asked else ""
    here = {one.rank: one for one in told if one.device == own.device}
    ranks_bytes = sum(one.device_bytes for one in here.values())
    # A rank that looks at its device sees what the others have there, too.
    beside_bytes = max(0, *(one.beside_bytes + one.device_bytes - ranks_bytes for one in here.values()))
    each = [here[one].device_bytes + beside_bytes // len(here) for one in {rank, *parked} & here.keys()]
    need_bytes, spare_bytes = ranks_bytes + beside_bytes + sum(each), margin_bytes(own.total_bytes)
    if need_bytes + spare_bytes <= own.total_bytes:
        return ""
    would = f"{need_bytes >> 20} would be used with it, with {spare_bytes >> 20} to stay free"
    return f"{own.device} has {own.total_bytes >> 20} MiB, and {would}"


def margin_bytes(total_bytes: int) -> int:
    """What stays free of a device beside everything that runs there."""
    return total_bytes // _MARGIN


def is_crowded(told: MemoryUsed) -> bool:
    """Whether the ranks of its device may soon need what standbys have there."""
    return told.free_bytes < margin_bytes(told.total_bytes) // 2
