"""Whether all nodes of a run were started alike: their statements carry a digest of each part. Pure."""

import hashlib
from collections.abc import Mapping

from faultrun.model.events import RunFinished
from faultrun.model.observed.node_fact import NodeFact
from faultrun.nodes.protocol.election import leads
from faultrun.nodes.protocol.waiting_ends import ends
from faultrun.nodes.values.membership import CommonKeys, MemberClock, NodeSettings
from faultrun.nodes.values.roster import Roster

ASKED = (
    "another script (its text counts)",
    "other arguments",
    "another framework",
    "another number of nodes or of workers a node",
    "another --max_restarts or --restart_window",
)
"""What has to be the same on all nodes, in the words of the refusal."""

OTHER_ARGUMENTS = 64


def refused(
    terms: NodeSettings, fact: NodeFact, common: CommonKeys, roster: Roster | None, clock: MemberClock
) -> RunFinished | None:
    """The end of a node that was started with something else than the run. Who takes part already goes on."""
    coordinator = common.coordinator
    if coordinator is None or coordinator.asked == terms.asked or leads(common, fact):
        return None
    if fact.busy or (roster is not None and roster.has(fact.node, fact.boot)):
        return None
    why = (
        f"node {fact.node} was started with {_differing(terms.asked, coordinator.asked)} than node "
        f"{coordinator.node}\n"
        "  because: all nodes of a run begin alike; the others go on without this one\n"
        "  try:     the same command on every node, but for --node_rank and --node_name; "
        "--rdzv-id=OTHER for another run"
    )
    return ends(fact, clock, OTHER_ARGUMENTS, why)


def asked(parts: Mapping[str, object]) -> str:
    """What a node is started with, as its statements carry it: a digest of each part, ``ASKED`` by name."""
    return "-".join(hashlib.sha256(repr(parts[name]).encode()).hexdigest()[:8] for name in ASKED)


def _differing(here: str, there: str) -> str:
    ours, theirs = here.split("-"), there.split("-")
    if not len(ours) == len(theirs) == len(ASKED):  # of another version
        return "something else"
    return " and ".join(name for name, one, other in zip(ASKED, ours, theirs, strict=True) if one != other)
