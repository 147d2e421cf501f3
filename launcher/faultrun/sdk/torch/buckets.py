"""In which order gradients are added up, told by the layout of their buckets. Pure.

DistributedDataParallel arranges its buckets anew after the first iteration of every wrap. A rank that has
just come has other buckets than the survivors: their collectives would not meet, and where they did, the sums
would differ in their last bits, because a ring adds up in an order that depends on the place in the buffer.
So there is one canonical layout, that of the step before the fault; who has another one collects.
"""

from collections.abc import Sequence

Bucket = tuple[int, ...]
"""The parameters of one bucket, by their number in the model, in the order of their gradients."""

Layout = tuple[Bucket, ...]
"""The buckets in the order in which they are reduced."""


class Matching:
    """One backward pass: which buckets may be reduced as they come, and what is left to be put together.

    ``canonical`` is None where the own layout is everybody's.
    """

    def __init__(self, canonical: Layout | None) -> None:
        self._canonical = canonical
        self._own: list[Bucket] = []
        self._as_it_comes = 0

    def comes(self, bucket: Sequence[int]) -> bool:
        """The next bucket is there; whether to reduce it at once. False for all others, once false."""
        own, place = tuple(bucket), len(self._own)
        self._own.append(own)
        if self._as_it_comes < place:
            return False
        if self._canonical is not None and self._canonical[place : place + 1] != (own,):
            return False
        self._as_it_comes += 1
        return True

    @property
    def layout(self) -> Layout:
        """The own one, as far as it has come."""
        return tuple(self._own)

    def left(self) -> Layout:
        """The canonical buckets that are still to be reduced, once the last own one has come.

        ValueError: these are not the gradients that the others reduce.
        """
        if self._canonical is None:
            return ()
        rest, held = self._canonical[self._as_it_comes :], self._own[self._as_it_comes :]
        if sorted(one for bucket in rest for one in bucket) != sorted(one for own in held for one in own):
            raise ValueError("this rank has gradients for other parameters than its peers")
        return rest
