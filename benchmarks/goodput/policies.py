"""Who answers a fault: a launcher with what it has switched on, and which work that keeps."""

from dataclasses import dataclass
from enum import Enum

from benchmarks.goodput import recoveries
from benchmarks.goodput.assumptions import Assumptions
from benchmarks.goodput.failures import Kind


class Layout(Enum):
    """Whether a rank's state dies with it."""

    REPLICATED = "replicated"
    SHARDED = "sharded"


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """``start`` names the measured recovery. ``next_node``: another node holds the copies in memory, too."""

    name: str
    start: str
    ours: bool = True
    gasps: bool = False
    standbys: bool = False
    snapshots: bool = False
    stays: bool = False
    spares: bool = False
    next_node: bool = False
    saves: bool = True


_LOOP = Policy(name="shell loop", start=recoveries.LOOP, ours=False)
_TORCHRUN = Policy(name="torchrun", start=recoveries.TORCHRUN, ours=False)
_FT = Policy(name="ft_launcher", start=recoveries.FT_LAUNCHER, ours=False)
_TORCHRUN_SPARES = Policy(
    name="torchrun, given the same spares (supposed)", start=recoveries.TORCHRUN, ours=False, spares=True
)
_RESTART = Policy(name="faultrun, restart", start=recoveries.COLD)
NO_SAVES = Policy(name="a shell loop that never saves", start=recoveries.LOOP, ours=False, saves=False)


def _ladder(layout: Layout) -> tuple[Policy, ...]:
    """faultrun, each with one thing more than the one before."""
    gasps = {"gasps": True}
    warm = {**gasps, "standbys": True}
    copies = {**warm, "snapshots": layout is Layout.SHARDED}
    stay = {**copies, "stays": True}
    spares = {**stay, "spares": True}
    named = [("+ gasp", gasps), ("+ standbys", warm)]
    if layout is Layout.SHARDED:
        named.append(("+ memory snapshots", copies))
    named += [("+ survivors stay", stay), ("+ spares over nodes", spares)]
    if layout is Layout.SHARDED:
        named.append(("+ copies on the next node (supposed)", {**spares, "next_node": True}))
    return (_RESTART, *(Policy(name=name, start=recoveries.COLD, **more) for name, more in named))


def policies(layout: Layout) -> tuple[Policy, ...]:
    """All that are compared."""
    return (_LOOP, _TORCHRUN, _FT, *_ladder(layout), _TORCHRUN_SPARES)


def kept_kinds(policy: Policy, layout: Layout, *, one_node: bool) -> frozenset[Kind]:
    """The kinds of faults after which the work since the last save goes on."""
    if not policy.gasps:
        return frozenset()
    if layout is Layout.REPLICATED:
        return frozenset({Kind.RANK, Kind.HANG} | (set() if one_node else {Kind.NODE}))
    if not policy.snapshots:
        return frozenset()
    return frozenset({Kind.RANK, Kind.HANG} | ({Kind.NODE} if policy.next_node and not one_node else set()))


def kept_share(policy: Policy, layout: Layout, devices: int, assumed: Assumptions) -> float:
    """Of all faults: those after which the work since the last save goes on."""
    shares = {
        Kind.EVERYWHERE: assumed.everywhere,
        Kind.HANG: assumed.hang,
        Kind.NODE: assumed.node,
        Kind.RANK: 1 - assumed.everywhere - assumed.hang - assumed.node,
    }
    kept = kept_kinds(policy, layout, one_node=assumed.nodes(devices) == 1)
    return sum(share for kind, share in shares.items() if kind in kept)
