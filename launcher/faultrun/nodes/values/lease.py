"""A node's lease in the run, and how long what is believed because of it.

Moments are seconds of this machine's CLOCK_BOOTTIME, which goes on in suspend and no other shares.
"""

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseTimes:
    """How long what is believed.

    ``fence_s``: so long after its last answered keepalive was *sent* a node's workers die.
    ``ttl_s``: when the store may drop a lease. ``deaf_s``: after such a silence a node asks its peers.
    ``hold_s``: for so long the peers' answers count. ``election_s`` lies between two who could coordinate.
    ``node_wait_s``: how long the run waits for a node. ``leave_s``: how long a node that was told to stop
    waits to hear that all were.
    """

    ttl_s: float
    fence_s: float
    deaf_s: float
    hold_s: float
    election_s: float = 0.3
    node_wait_s: float = 600.0
    leave_s: float = 2.0

    @classmethod
    def of(cls, ttl_s: float, node_wait_s: float = 600.0) -> "LeaseTimes":
        """What follows from a lease of ``ttl_s``: a tenth of it is the margin for clocks and schedulers."""
        deaf_s, hold_s = ttl_s / 2, ttl_s / 3
        return cls(ttl_s=ttl_s, fence_s=0.9 * ttl_s, deaf_s=deaf_s, hold_s=hold_s, node_wait_s=node_wait_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """This node's lease.

    ``sent_at_s``: when the newest request to renew (or grant) it was sent that was answered.
    ``heard_at_s``: when the first answer came after a silence of ``deaf_s`` or more, or after one that was
    ``tried``: a peer asked, and the store did not answer at once. ``dropped``: the store said that it knows
    this lease no more. The functions of ``lease_deadline`` keep it.
    """

    number: int
    sent_at_s: float
    granted_at_s: float
    heard_at_s: float = -math.inf
    tried: bool = False
    dropped: bool = False
