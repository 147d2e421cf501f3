"""What is still better than a run that ends, where nothing whole serves all that is asked for. Pure."""

from collections.abc import Iterator
from dataclasses import replace

from faultrun.core.recovery.need import Need


def last_resorts(need: Need) -> Iterator[Need]:
    """``need``, and then what may do instead, best first; for ``choose.choose_first``."""
    yield need
    if need.doubt.lost_ranks:
        # No replica can stand in: what a faulty rank wrote while it was well is verified like any other.
        need = replace(need, doubt=replace(need.doubt, lost_ranks=frozenset()))
        yield need
    if need.disks.several:
        yield replace(need, disks=replace(need.disks, partly=True))
    if need.doubt.quarantine:
        # Nothing older is left to fall back to: the quarantined file is still better than none.
        need = replace(need, doubt=replace(need.doubt, quarantine=()))
        yield need
        if need.disks.several:
            yield replace(need, disks=replace(need.disks, partly=True))
