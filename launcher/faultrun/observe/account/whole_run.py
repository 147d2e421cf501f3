"""One account of a run on several nodes: each node's journal tells of the time in which it took part."""

from collections.abc import Sequence
from dataclasses import replace

from faultrun.observe.account.incarnations import IncarnationRecord
from faultrun.observe.account.records import Account
from faultrun.observe.account.timeline import seconds_between

_TIMES = ("begin_s", "running_s", "first_step_s", "reached_s", "stuck_s", "end_s")


def whole_run(accounts: Sequence[Account]) -> Account:
    """The account of the node that saw most, with the incidents and incarnations that only others saw.

    Where the time went is of that node.
    """
    most = max(accounts, key=lambda one: (len(one.faults), len(one.lives), one.wall_s))
    faults = {fault.number: fault for fault in most.faults}
    lives = {life.number: life for life in most.lives}
    for other in accounts:
        later_s = seconds_between(most.began_utc, other.began_utc)
        for fault in other.faults:
            faults.setdefault(fault.number, replace(fault, at_s=fault.at_s + later_s))
        for life in other.lives:
            lives.setdefault(life.number, _shifted(life, later_s))
    return replace(
        most,
        faults=[faults[number] for number in sorted(faults)],
        lives=[lives[number] for number in sorted(lives)],
        restarts=max(one.restarts for one in accounts),
        high_step=max((one.high_step for one in accounts if one.high_step is not None), default=None),
    )


def _shifted(life: IncarnationRecord, later_s: float) -> IncarnationRecord:
    known = {name: at_s for name in _TIMES if (at_s := getattr(life, name)) is not None}
    return replace(life, **{name: at_s + later_s for name, at_s in known.items()})
