"""A coordinator's write with what it may rest on, and names of what it writes. Pure."""

import hashlib

from faultrun.model.plan import Plan
from faultrun.nodes.protocol.coordinator_input import Office
from faultrun.nodes.protocol.election import plan_as_seen, still_coordinator
from faultrun.nodes.values.membership import NODES, node_key
from faultrun.nodes.values.roster import Roster, RosterEntry
from faultrun.nodes.values.transaction import Absent, Compare, NothingNewer, Operation, Transaction

MOST_COMPARES = 100
"""etcd takes 128 operations in a transaction by default."""


def guarded(office: Office, what: str, *writes: Operation) -> Transaction:
    """Only as coordinator, over the plan as it was read, and while the lost are lost."""
    compares = (still_coordinator(office.common), plan_as_seen(office.common), *_still_lost(office))
    return Transaction(what=what, compares=compares, then=writes)


def _still_lost(office: Office) -> tuple[Compare, ...]:
    """A member that was held comes back under its own boot, and this node's view of that may be older."""
    if len(office.lost) > MOST_COMPARES:
        return (NothingNewer(folder=NODES, revision=office.nodes.revision),)
    return tuple(Absent(key=node_key(entry.node, entry.boot)) for entry in office.lost)


def name_of(value: Roster | Plan | tuple[RosterEntry, ...]) -> str:
    """A name for what is written once: another value gets another name."""
    return hashlib.sha256(repr(value).encode()).hexdigest()[:16]
