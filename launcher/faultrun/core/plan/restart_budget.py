"""How many restarts are too many, and how long to wait before the next."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from faultrun.core.humanize import span
from faultrun.model.checkpoint import RecoveryPoint
from faultrun.model.observed.node_fact import NodeFact
from faultrun.model.plan import Ledger, Restart
from faultrun.model.spec.run_spec import RestartPolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowed:
    """Restart number ``number`` of the window may happen after ``backoff_s``; ``ledger`` has it charged."""

    number: int
    backoff_s: float
    ledger: Ledger


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """No restart is left in the window."""

    why: str


def charge(
    ledger: Ledger, policy: RestartPolicy, *, now_s: float, high_step: int, point: RecoveryPoint | None = None
) -> Allowed | Spent:
    """Charge one restart for a fault, or say that the budget is spent.

    At most ``max_restarts`` in any ``window_s``, as Erlang supervisors count: a lifetime count would end a
    month-long run for four unrelated node failures, a window ends only the run that is failing *now*.
    Progress refunds what was spent, so the first restart after it is charged to an empty ledger and waits for
    nothing. ``point`` is where the next life would begin.
    """
    if len(recent := _counted(ledger, policy, now_s, high_step, point)) >= policy.max_restarts:
        return Spent(why=_spent(len(recent), policy, high_step))
    restarts = (*recent, Restart(at_s=now_s, step=high_step))
    total_restarts = ledger.total_restarts + 1
    charged = replace(furthest(ledger, high_step, point), restarts=restarts, total_restarts=total_restarts)
    return Allowed(number=len(recent) + 1, backoff_s=backoff_s(len(recent), policy, now_s), ledger=charged)


def nothing_spent(ledger: Ledger) -> Ledger:
    """What counts when a run that had been given up is started again: its numbers, and nothing spent.

    The user who starts it has changed something, in the program as likely as in its checkpoints: no restart,
    no failure and no attempt on a checkpoint is held against it.
    """
    return Ledger(
        high_step=ledger.high_step,
        saved_step=ledger.saved_step,
        saved_epoch=ledger.saved_epoch,
        incidents=ledger.incidents,
        total_restarts=ledger.total_restarts,
    )


def restarts_left(ledger: Ledger, policy: RestartPolicy, *, now_s: float, high_step: int) -> int:
    """How many restarts for faults ``charge`` would still allow at ``now_s``."""
    return max(0, policy.max_restarts - len(_counted(ledger, policy, now_s, high_step, None)))


def _counted(
    ledger: Ledger, policy: RestartPolicy, now_s: float, high_step: int, point: RecoveryPoint | None
) -> tuple[Restart, ...]:
    """The restarts that count against the next: none once training came further."""
    if progressed(ledger, high_step, point):
        return ()
    return within_window(ledger.restarts, policy, now_s)


def progressed(ledger: Ledger, high_step: int, point: RecoveryPoint | None) -> bool:
    """Whether training came further than when the last plan was made.

    A new highest step counts, and so does a save of a later step or epoch: a run that dies often may creep
    forward from save to save without passing where it once was. A save that says neither proves nothing,
    however new: a script may write one whenever it starts.
    """
    return _reached(furthest(ledger, high_step, point)) != _reached(ledger)


def furthest(ledger: Ledger, high_step: int, point: RecoveryPoint | None) -> Ledger:
    """``ledger`` with the furthest that steps and saves have come, each count for itself."""
    if point is None:
        return replace(ledger, high_step=max(high_step, ledger.high_step))
    epoch = (-1, -1) if point.epoch is None else (point.epoch, _known(point.step_in_epoch))
    high, saved = max(high_step, ledger.high_step), max(_known(point.global_step), ledger.saved_step)
    return replace(ledger, high_step=high, saved_step=saved, saved_epoch=max(epoch, ledger.saved_epoch))


def ledger_told(facts: Iterable[NodeFact]) -> Ledger:
    """What the run had spent by the journals of its nodes, where no other node knows of a plan."""
    told = [(fact.incarnation, fact.ledger.incidents, fact.ledger) for fact in facts if fact.ledger]
    return max(told, key=lambda one: one[:2])[-1] if told else Ledger()


def within_window(restarts: tuple[Restart, ...], policy: RestartPolicy, now_s: float) -> tuple[Restart, ...]:
    """Those restarts that still count at ``now_s``."""
    return tuple(restart for restart in restarts if now_s - restart.at_s < policy.window_s)


def backoff_s(failed_before: int, policy: RestartPolicy, now_s: float) -> float:
    """Wait before a restart, in seconds: nothing at first, then doubling up to the cap, with jitter.

    The jitter (50 to 100 %) comes from the fraction of the clock: as good as
    chance for spreading nodes, and the decision stays a function of its event.
    """
    if failed_before == 0:
        return 0.0
    ceiling = min(policy.backoff_max_s, policy.backoff_min_s * float(2 ** min(failed_before - 1, 30)))
    return ceiling * (0.5 + 0.5 * (now_s * 1e4 % 1.0))


def _reached(ledger: Ledger) -> tuple[int, int, tuple[int, int]]:
    return (ledger.high_step, ledger.saved_step, ledger.saved_epoch)


def _known(count: int | None) -> int:
    return -1 if count is None else count


def _spent(recent: int, policy: RestartPolicy, high_step: int) -> str:
    past = f" without progress past step {high_step}" if high_step >= 0 else ""
    if policy.max_restarts == 0:
        return "restarts are turned off (--max_restarts=0)"
    return f"{recent} of {policy.max_restarts} restarts within {span(policy.window_s)} are used up{past}"
