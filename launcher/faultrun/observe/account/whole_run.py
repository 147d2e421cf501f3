"""One account of a run on several nodes: each node's journal tells of the time in which it took part."""

from collections.abc import Sequence
from dataclasses import replace

from faultrun.journal.lines import moment
from faultrun.observe.account.incarnations import IncarnationRecord
from faultrun.observe.account.records import Account, IncidentRecord


def whole_run(accounts: Sequence[Account]) -> Account:
    """The account of the node that saw most, with the incidents and incarnations that only others saw.

    Where the time went is of that node.
    """
    most = max(accounts, key=lambda one: (len(one.faults), len(one.lives), one.wall_s))
    faults = {fault.number: fault for fault in most.faults}
    lives = {life.number: life for life in most.lives}
    for other in accounts:
        later_s = _later_s(other, most)
        for fault in other.faults:
            faults.setdefault(fault.number, replace(fault, at_s=fault.at_s + later_s))
        for life in other.lives:
            lives.setdefault(life.number, _shifted(life, later_s))
    steps = [one.high_step for one in accounts if one.high_step is not None]
    return replace(
        most,
        faults=sorted(faults.values(), key=_when),
        lives=[lives[number] for number in sorted(lives)],
        restarts=max(one.restarts for one in accounts),
        high_step=max(steps, default=None),
    )


def _when(fault: IncidentRecord) -> tuple[int, float]:
    return fault.number, fault.at_s


def _later_s(other: Account, than: Account) -> float:
    """How much later its first line was written."""
    began, base = moment(other.began_utc), moment(than.began_utc)
    return (began - base).total_seconds() if began is not None and base is not None else 0.0


def _shifted(life: IncarnationRecord, later_s: float) -> IncarnationRecord:
    def moved(at_s: float | None) -> float | None:
        return None if at_s is None else at_s + later_s

    return replace(
        life,
        begin_s=life.begin_s + later_s,
        running_s=moved(life.running_s),
        first_step_s=moved(life.first_step_s),
        reached_s=life.reached_s + later_s,
        stuck_s=moved(life.stuck_s),
        end_s=life.end_s + later_s,
    )
