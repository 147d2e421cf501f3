"""A step of all ranks, shared out to those that are left. Pure: positions in an epoch's order, no data.

The order is that of the whole world, and a step takes the next ``full * batch`` samples of it, as it does
when ``full`` ranks read every ``full``-th sample in batches of ``batch``. So an epoch has the same steps with
the same samples, however many ranks there are in between.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What a rank computes at once: positions in the epoch's order.

    ``weight`` makes a mean over these samples a part of the mean over the step's, where the gradients of all
    ranks are averaged: 0 for a sample that only keeps collectives in step, where a rank has none left.
    """

    positions: tuple[int, ...]
    weight: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Sharing:
    """What rank ``rank`` of ``world`` does where ``full`` ranks were to do it, in batches of one size."""

    full: int
    world: int
    rank: int

    @property
    def parts(self) -> int:
        """In how many parts each rank does its share of a step, so that no part is larger than ever."""
        return -(-self.full // self.world)

    def steps(self, total: int, batch: int, *, drop_last: bool) -> int:
        """How many steps an epoch has of ``total`` samples, which are a multiple of ``full``."""
        each = total // self.full
        return each // batch if drop_last else -(-each // batch)

    def share(self, step: int, total: int, batch: int) -> tuple[Part, ...]:
        """The parts of this rank in ``step`` of an epoch of ``total`` samples."""
        first = step * self.full * batch
        last = min(first + self.full * batch, total)
        own = range(first + self.rank, last, self.world)
        cuts = [number * len(own) // self.parts for number in range(self.parts + 1)]
        pieces = [tuple(own[cuts[number] : cuts[number + 1]]) for number in range(self.parts)]
        return tuple(
            Part(positions=piece or (first,), weight=len(piece) * self.world / (last - first))
            for piece in pieces
        )
