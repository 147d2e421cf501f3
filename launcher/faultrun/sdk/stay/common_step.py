"""At which step all ranks go on after a death, and where each gets its state from. Pure.

After a fault the survivors stand at one of two neighbouring steps: no rank ends step n + 1 before all have
entered it. A rank that was interrupted inside an update has no state that is worth anything, and neither has
the process that takes a dead rank's place; both may have a memory snapshot.
"""

from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum

NOTHING = -1
"""Stands for a state that a rank does not have."""


class From(Enum):
    """Where a rank gets the state of the common step from."""

    ITSELF = "its own memory"
    SNAPSHOT = "its memory snapshot"
    PEER = "a rank that has it"
    NOWHERE = "no process is there that could have it"


@dataclass(frozen=True, slots=True)
class Standing:
    """What one rank has: the step of its ``live`` state, or NOTHING; those of its whole memory snapshots.

    ``epoch`` is that of its loop that is open, in which it goes on; NOTHING: it has none.
    """

    live: int
    kept: frozenset[int] = frozenset()
    epoch: int = NOTHING


@dataclass(frozen=True, slots=True, kw_only=True)
class CommonStep:
    """All go on after ``step``. ``sources``: for each rank; ``giver``: who sends to those that ask a peer.

    ``epochs``: in which each rank goes on.
    """

    step: int
    sources: tuple[From, ...]
    giver: int
    epochs: tuple[int, ...] = ()

    @property
    def takers(self) -> tuple[int, ...]:
        """The ranks that get their state from ``giver``, in order."""
        return tuple(rank for rank, source in enumerate(self.sources) if source is From.PEER)


def of_replicas(standings: Sequence[Standing], missing: Container[int] = ()) -> CommonStep | None:
    """All ranks hold the same state: the most advanced one's. None: none has one.

    Snapshots of such ranks hold only what is their own (buffers), and are looked at elsewhere. What stands
    for the ``missing`` is not looked at.
    """
    living = [(rank, one.live) for rank, one in enumerate(standings) if rank not in missing]
    if (step := max((live for _, live in living), default=NOTHING)) == NOTHING:
        return None
    sources = [From.NOWHERE] * len(standings)
    for rank, live in living:
        sources[rank] = From.ITSELF if live == step else From.PEER
    epochs = tuple(one.epoch for one in standings)
    return CommonStep(step=step, sources=tuple(sources), giver=sources.index(From.ITSELF), epochs=epochs)


def of_shards(standings: Sequence[Standing]) -> CommonStep | None:
    """Every rank holds another part: the newest step that each has, live or kept. None: there is none."""
    had = [one.kept | ({one.live} - {NOTHING}) for one in standings]
    common = frozenset.intersection(*had) if had else frozenset()
    if not common:
        return None
    step = max(common)
    sources = tuple(From.ITSELF if one.live == step else From.SNAPSHOT for one in standings)
    return CommonStep(step=step, sources=sources, giver=NOTHING)


def nothing_common(standings: Sequence[Standing], *, of_shards: bool) -> str:
    """Why there is no common step, for people."""
    had = [one.kept | ({one.live} - {NOTHING}) for one in standings]
    bare = [rank for rank, steps in enumerate(had) if not steps]
    if not of_shards or len(bare) == len(had):
        return "no rank has a state, live or in memory"
    if bare:
        ranks = f"rank{'s' if len(bare) > 1 else ''} {' '.join(map(str, bare))}"
        return f"the shards of {ranks} are gone: no copy of them is in memory"
    told = "; ".join(f"rank {rank} has {' '.join(map(str, sorted(steps)))}" for rank, steps in enumerate(had))
    return f"the ranks have no step in common, live or in memory: {told}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """Lists the steps whose state ``rank`` has for ``group``: ``saved`` in files, ``kept`` in memory."""

    rank: int
    group: frozenset[int]
    saved: frozenset[int] = field(default_factory=frozenset)
    kept: frozenset[int] = field(default_factory=frozenset)


@dataclass(frozen=True, slots=True)
class ToWrite:
    """The copy that ``rank`` has of ``step`` is to be made a file."""

    rank: int
    step: int


def missing_of(holdings: Iterable[Holding], ranks: frozenset[int], most_steps: int) -> tuple[ToWrite, ...]:
    """What must be written so that files serve all ``ranks`` at the newest step that all of them have.

    Nothing where files serve them at as new a step already. ``most_steps``: of so many of the newest steps,
    where it is not known which of them ranks elsewhere have.
    """
    known = tuple(holdings)
    filed = {rank: _steps(known, rank, lambda one: one.saved) for rank in ranks}
    had = {rank: filed[rank] | _steps(known, rank, lambda one: one.kept) for rank in ranks}
    if not ranks:
        return ()
    newest = sorted(frozenset.intersection(*had.values()), reverse=True)[:most_steps]
    wanted: dict[ToWrite, None] = {}
    for step in newest:
        for rank in sorted(rank for rank in ranks if step not in filed[rank]):
            givers = [one.rank for one in known if step in one.kept and rank in one.group]
            if not any(ToWrite(giver, step) in wanted for giver in givers):
                wanted[ToWrite(min(givers), step)] = None
    return tuple(wanted)


def _steps(holdings: Iterable[Holding], rank: int, of: Callable[[Holding], frozenset[int]]) -> frozenset[int]:
    return frozenset().union(*(of(one) for one in holdings if rank in one.group))
