"""For how long a node without workers waits, and what it ends with by itself.

Pure. While a coordinator is there it ends the run for all; what is here is for those that nobody leads,
that were told to stop while others were not, or that were started with something else.
"""

from faultrun.core.agree import Rules, stop_exit_code
from faultrun.core.elect import leads
from faultrun.model.events import RunFinished
from faultrun.model.facts import NodeFact
from faultrun.model.membership import CommonKeys, LeaseTimes, MemberClock, Remembered, Terms
from faultrun.model.roster import Roster

OTHER_ARGUMENTS = 64
NOBODY_CAME = 69


def since(before_s: float | None, now_s: float, *, holds: bool) -> float | None:
    """Since when something holds; None while it does not."""
    if not holds:
        return None
    return now_s if before_s is None else before_s


def patience_over(
    rules: Rules,
    times: LeaseTimes,
    fact: NodeFact,
    remembered: Remembered,
    clock: MemberClock,
    *,
    alone: bool,
) -> RunFinished | None:
    """The end of this node's part, if it waited long enough. ``alone``: it does not coordinate."""
    leaving, waiting = remembered.leaving_since_s, remembered.waiting_since_s
    if leaving is not None and fact.stop is not None and clock.now_s >= leaving + times.leave_s:
        code, why = stop_exit_code(rules, fact.stop), f"stopped by {fact.stop.value}; the other nodes go on"
        return _end(fact, clock, code, why, stopped=True)
    if alone and waiting is not None and clock.now_s >= waiting + times.node_wait_s:
        why = f"no node that may decide for the run came within {times.node_wait_s:g} s"
        return _end(fact, clock, NOBODY_CAME, why)
    return None


def refused(
    terms: Terms, fact: NodeFact, common: CommonKeys, roster: Roster | None, clock: MemberClock
) -> RunFinished | None:
    """The end of a node that was started with something else than the run. Who takes part already goes on."""
    coordinator = common.coordinator
    if coordinator is None or coordinator.asked == terms.asked or leads(common, fact):
        return None
    if fact.status.busy or (roster is not None and roster.has(fact.node, fact.boot)):
        return None
    why = (
        f"node {fact.node} was started with another script (its text counts), other arguments or other "
        f"workers a node than node {coordinator.node}"
    )
    return _end(fact, clock, OTHER_ARGUMENTS, why)


def _end(fact: NodeFact, clock: MemberClock, code: int, why: str, *, stopped: bool = False) -> RunFinished:
    return RunFinished(
        at_s=clock.run_s, incarnation=fact.incarnation, exit_code=code, why=why, stopped=stopped
    )
