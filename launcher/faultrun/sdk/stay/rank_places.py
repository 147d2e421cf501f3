"""The places of a world's ranks, of which some may be empty. Pure."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RankPlaces:
    """Places of ``world`` ranks, which keep their numbers while the ``missing`` have no process."""

    world: int
    missing: tuple[int, ...] = ()

    @property
    def members(self) -> tuple[int, ...]:
        """The ranks that have a process, in order."""
        return tuple(rank for rank in range(self.world) if rank not in self.missing)

    def number(self, rank: int) -> int:
        """The index of ``rank`` among those that have a process, from 0. ValueError: it has none."""
        return self.members.index(rank)

    def __str__(self) -> str:
        return f"rank{'s' if len(self.missing) > 1 else ''} {' '.join(map(str, self.missing))}"
