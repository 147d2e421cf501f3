"""What the same faults would have cost without faultrun: by hand, and by the usual launcher.

Of here everything is measured: the account's own recoveries and steps trained again. Of elsewhere the journal
knows where the script's own saves were, how long a step takes and how long this job needs to start cold; the
rest is ``Assumptions``. What the journal does not tell is left out on both sides.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise

from faultrun.model.incident import Cause
from faultrun.model.spec.assumptions import Assumptions, UsualLauncher
from faultrun.observe.account.fault_chains import FaultChain, LivesAfter, chains, why_ordered
from faultrun.observe.account.incarnations import IncarnationRecord
from faultrun.observe.account.records import FAILED_AGAIN, TRAINING_AGAIN, Account, IncidentRecord
from faultrun.observe.account.timeline import Spending


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Seconds of the whole run: ``waiting_s`` without a step, ``again_s`` in steps trained a second time."""

    waiting_s: float
    again_s: float

    @property
    def total_s(self) -> float:
        """Both."""
        return self.waiting_s + self.again_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Interruption:
    """One fault that training got past, or several that it got past together; ``faults`` are their numbers.

    ``by_hand`` is one restart, ``launcher`` one for each fault (None where none restarts). ``steps_again`` is
    what would have been trained again by hand, from the script's own last save; None: unknown, so ``again_s``
    is 0 everywhere, and ``unpaired_s`` is what was measured of it here. ``trained``: a step ended it here;
    else all that was seen, and is compared, is the time until workers ran.
    """

    faults: tuple[int, ...]
    hang: bool
    devices: int
    steps_again: int | None
    here: Cost
    by_hand: Cost
    launcher: Cost | None
    unpaired_s: float = 0.0
    trained: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Savings:
    """All of a run. ``left_out`` counts faults by the reason why they are in no sum.

    ``cold_start_s`` stands for the start elsewhere where standbys took over here: how long this job needs
    from running workers to its first step, at best. None where none did: a cold start is the same everywhere.
    """

    assumptions: Assumptions
    cold_start_s: float | None
    interruptions: tuple[Interruption, ...]
    left_out: Counter[str]

    @property
    def counted(self) -> int:
        """Faults that are in the sums."""
        return sum(len(one.faults) for one in self.interruptions)

    @property
    def steps_unknown(self) -> int:
        """Interruptions for which it is unknown how many steps would have been trained again."""
        return sum(one.steps_again is None for one in self.interruptions)

    @property
    def untrained(self) -> int:
        """Interruptions of which no step is known to have ended them."""
        return sum(not one.trained for one in self.interruptions)

    @property
    def unpaired_s(self) -> float:
        """Seconds in steps trained again here that cannot be laid beside those of elsewhere; in no sum."""
        return math.fsum(one.unpaired_s for one in self.interruptions)

    @property
    def here(self) -> Cost:
        """What they cost in this run."""
        return _sum(one.here for one in self.interruptions)

    @property
    def by_hand(self) -> Cost:
        """What they would have cost a user who restarts by hand."""
        return _sum(one.by_hand for one in self.interruptions)

    @property
    def launcher(self) -> Cost | None:
        """What they would have cost under the usual launcher; None where that restarts nothing."""
        costs = [one.launcher for one in self.interruptions if one.launcher is not None]
        return _sum(costs) if costs else None

    @property
    def device_s_by_hand(self) -> float:
        """Device-seconds saved against a restart by hand; negative where faultrun cost more."""
        return math.fsum(one.devices * (one.by_hand.total_s - one.here.total_s) for one in self.interruptions)

    @property
    def device_s_launcher(self) -> float | None:
        """Device-seconds saved against the usual launcher; None where that restarts nothing."""
        saved = [
            one.devices * (one.launcher.total_s - one.here.total_s)
            for one in self.interruptions
            if one.launcher is not None
        ]
        return math.fsum(saved) if saved else None


def savings(account: Account, assumptions: Assumptions) -> Savings:
    """Lay every fault that training got past beside what it would have cost elsewhere.

    ``assumptions`` are settled; without a launcher that restarts, only hands are compared with.
    """
    workers = {life.number: life.workers for life in account.lives}
    # The quickest start of this job without a standby, from running workers to the first step.
    cold_s = min((took_s for took_s in map(_cold_s, account.lives) if took_s is not None), default=None)
    known = _Known(cold_start_s=cold_s, step_s=account.step_s, workers=workers)
    found, left_out, warm = [], Counter[str](), False
    for chain in chains(account):
        if chain.left_out:
            left_out.update(why_ordered(fault) or chain.left_out for fault in chain.faults)
        else:
            found.append(_interruption(chain, assumptions, known))
            warm = warm or any(life.standbys for life in chain.lives)
    return Savings(
        assumptions=assumptions,
        cold_start_s=known.cold_start_s if warm else None,
        interruptions=tuple(found),
        left_out=left_out,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """What is known of the whole run: a cold start, a step, and the workers of each incarnation."""

    cold_start_s: float | None
    step_s: float | None
    workers: Mapping[int, int]

    def devices(self, incarnation: int) -> int:
        """One for each worker; as many as ever ran where this incarnation never came so far."""
        return self.workers.get(incarnation, 0) or max(self.workers.values(), default=0)


def _interruption(chain: FaultChain, assumed: Assumptions, known: _Known) -> Interruption:
    first, last, faults, after = chain.faults[0], chain.faults[-1], chain.counted, chain.lives_after()
    waited_s = math.fsum(_waited_s(fault) for fault in chain.faults)
    own_s = (life.step_s for life in chain.lives if life.step_s is not None)
    steps, step_s = _steps_again(first), next(own_s, known.step_s)
    if steps is None or (step_s is None and steps > 0):
        steps, step_s = None, 0.0
    again_here_s = math.fsum(fault.recompute_s for fault in chain.faults)
    unpaired_s, again_here_s = (again_here_s, 0.0) if steps is None else (0.0, again_here_s)
    again_s = max(0, (steps or 0) - _steps_in_start(after, last)) * (step_s or 0.0)
    start_s = _start_s(after, last, known)
    by_launcher = None
    if assumed.launcher not in (None, UsualLauncher.NONE):
        each_s = (
            assumed.relaunch_s
            + (assumed.hang_s if fault.cause == Cause.HANG.value else 0.0)
            + _start_s(after, started, known)
            for fault, started in chain.starts()
        )
        more = 0 if steps is None else _more_steps_again(chain, after)
        by_launcher = Cost(waiting_s=math.fsum(each_s), again_s=again_s + more * (step_s or 0.0))
    return Interruption(
        faults=tuple(fault.number for fault in faults),
        hang=any(fault.cause == Cause.HANG.value for fault in chain.faults),
        devices=known.devices(first.incarnation) if assumed.devices is None else assumed.devices,
        steps_again=steps,
        here=Cost(waiting_s=waited_s, again_s=again_here_s),
        by_hand=Cost(waiting_s=assumed.notice_s + assumed.restart_s + start_s, again_s=again_s),
        launcher=by_launcher,
        unpaired_s=unpaired_s,
        trained=last.end == TRAINING_AGAIN,
    )


def _start_s(after: LivesAfter, fault: IncidentRecord, known: _Known) -> float:
    """How long the workers would have needed to their first step then: as here, if that was cold too.

    Where no rank tells the first step, here is known until workers run; so it is compared with that.
    """
    if fault.end not in (TRAINING_AGAIN, FAILED_AGAIN):
        return 0.0
    if any(life.standbys for life in after.get(fault.number, ())):
        return known.cold_start_s or 0.0
    return fault.spent.get(Spending.START, 0.0)


def _more_steps_again(chain: FaultChain, after: LivesAfter) -> int:
    """What a launcher trains again beside the first time: it restarts at each fault."""
    trained = ((before, fault) for before, fault in pairwise(chain.counted) if before.end == TRAINING_AGAIN)
    return sum(max(0, (_steps_again(one) or 0) - _steps_in_start(after, before)) for before, one in trained)


def _steps_in_start(after: LivesAfter, fault: IncidentRecord) -> int:
    """How many of the steps trained again after ``fault`` lie within the start: to the first known one."""
    for life in after.get(fault.number, ()):
        if life.first is not None and life.start_step is not None:
            return max(0, min(life.first, life.high_before or 0) - life.start_step)
    return 0


def _waited_s(fault: IncidentRecord) -> float:
    """From the fault to training again; until workers ran, where no rank tells more."""
    if fault.recovery_s is not None:
        return fault.recovery_s
    lived = () if fault.end == FAILED_AGAIN else (Spending.START, Spending.UNREPORTED)
    return math.fsum(spent_s for what, spent_s in fault.spent.items() if what not in lived)


def _steps_again(fault: IncidentRecord) -> int | None:
    """From the newest save that the script had made by itself to where the fault ended it."""
    if fault.step is None or fault.periodic_step is None:
        return None
    return max(0, fault.step - max(0, fault.periodic_step))


def _cold_s(life: IncarnationRecord) -> float | None:
    if life.first_step_s is None or life.running_s is None or life.standbys:
        return None
    return life.first_step_s - life.running_s


def _sum(costs: Iterable[Cost]) -> Cost:
    known = tuple(costs)
    return Cost(
        waiting_s=math.fsum(cost.waiting_s for cost in known),
        again_s=math.fsum(cost.again_s for cost in known),
    )
