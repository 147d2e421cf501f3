"""What would lose less next time, each thing with the numbers that say so."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from faultrun.core.humanize import percent, several, span
from faultrun.journal.logdir import recorded
from faultrun.model.observed.standby import StandbyPhase
from faultrun.observe.account.records import Account
from faultrun.observe.account.timeline import RECOVERY, Spending
from faultrun.observe.card.card import duration

_ASSUMED_SAVE_S = 10.0
_WORTH_SAYING = 0.02
_WORTH_SAYING_S = 1.0
_MUCH_SLOWER = 1.5
_OFTEN = 3
_TOO_SHORT_S = 60.0  # of training: a rate of faults cannot be told from less


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """One thing to change: what, the numbers behind it, and the option or place to change."""

    what: str
    because: str
    hint: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SaveInterval:
    """Young's and Daly's best pause between checkpoints, ``sqrt(2 * save_s * between_faults_s)``.

    ``lost_s`` is the mean training time that a fault cost, None when no steps were counted: at a regular
    interval it is half of the interval. ``assumed``: no save was timed, ``save_s`` is a guess.
    """

    between_faults_s: float
    save_s: float
    assumed: bool
    best_s: float
    best_steps: int | None
    lost_s: float | None


def save_interval(account: Account) -> SaveInterval | None:
    """The best interval by what was observed; None when nothing failed."""
    trained_s = account.spent.get(Spending.TRAINING, 0.0) + account.spent.get(Spending.RECOMPUTE, 0.0)
    if not account.faults or trained_s <= 0:
        return None
    between_s = trained_s / len(account.faults)
    save_s = account.saves.took_s if account.saves.took_s else _ASSUMED_SAVE_S
    best_s = math.sqrt(2 * save_s * between_s)
    lost = [fault.lost_steps for fault in account.faults if fault.lost_steps is not None]
    step_s = account.step_s
    return SaveInterval(
        between_faults_s=between_s,
        save_s=save_s,
        assumed=not account.saves.took_s,
        best_s=best_s,
        best_steps=max(1, round(best_s / step_s)) if step_s else None,
        lost_s=sum(lost) / len(lost) * step_s if lost and step_s else None,
    )


def advise(account: Account, spec: Mapping[str, Any]) -> tuple[Advice, ...]:
    """Everything worth changing, the most expensive first as far as that is known.

    ``spec`` is the run's, as ``run.json`` has it; what it does not say is not advised on.
    """
    return tuple(one for rule in _RULES for one in rule(account, spec))


def _give_up(account: Account, _spec: Mapping[str, Any]) -> Iterator[Advice]:
    if account.ended is None or account.ended[0] in (0, 130, 143) or not account.faults:
        return
    last = account.faults[-1]
    step = "" if last.step is None else f" at step {last.step}"
    who = "no worker" if last.rank is None else f"rank {last.rank}"
    hint = f"faultrun incident {last.number} and the logs; a larger --max_restarts if it was an accident"
    because = f"{account.ended[1]}; the last fault: {who} {last.what}{step}"
    yield Advice(what=f"the run gave up with exit code {account.ended[0]}", because=because, hint=hint)


def _dying_gasp(account: Account, _spec: Mapping[str, Any]) -> Iterator[Advice]:
    lost_s = account.spent.get(Spending.RECOMPUTE, 0.0)
    if account.faults and not account.saves.saved and account.lost_steps:
        yield Advice(
            what="let survivors save when a peer dies",
            because=f"{several(account.lost_steps, 'step')} trained twice ({span(lost_s)}); "
            "no rank saved after a fault",
            hint="sdk.torch.protect(...) or sdk.mindspore.DyingGasp(...): at most one step is lost",
        )


def _interval(account: Account, _spec: Mapping[str, Any]) -> Iterator[Advice]:
    best = save_interval(account)
    if best is None or best.lost_s is None or best.lost_s < _MUCH_SLOWER * best.best_s / 2:
        return
    if best.between_faults_s * len(account.faults) < _TOO_SHORT_S:
        return
    steps = f" (every {best.best_steps} steps)" if best.best_steps else ""
    guess = ", a guess: none was timed" if best.assumed else ""
    yield Advice(
        what=f"save about every {span(best.best_s)}{steps}",
        because=f"a fault every {span(best.between_faults_s)} of training, "
        f"a save takes {span(best.save_s)}{guess}: "
        f"sqrt(2 x {best.save_s:.3g} x {best.between_faults_s:.4g}) = {best.best_s:.3g} s (Young, Daly); "
        f"a fault lost {span(best.lost_s)} on average, as an interval of {span(2 * best.lost_s)} does",
        hint="the save interval of the training script",
    )


def _window(account: Account, spec: Mapping[str, Any]) -> Iterator[Advice]:
    saves = account.saves
    if not saves.cut or saves.saved + saves.failed >= saves.asked:
        return
    grace_s = recorded(spec, "supervision", "windows", "grace_s")
    one = not account.stops  # a stop has a window of its own
    window = f" of {duration(float(grace_s))}" if isinstance(grace_s, (int, float)) and one else ""
    slowest = f"; a save that came through took {span(saves.took_s)}" if saves.took_s else ""
    yield Advice(
        what="workers were killed before they had saved",
        because=f"{saves.cut} windows{window} ran out; "
        f"{saves.saved} of {saves.asked} asked ranks saved{slowest}",
        hint=f"a longer --grace{'' if one else ' or --stop_grace'} if they were writing; "
        "the SDK if they do not hear SIGTERM",
    )


def _slowest(account: Account, spec: Mapping[str, Any]) -> Iterator[Advice]:
    total: Counter[Spending] = Counter()
    for fault in account.faults:
        total.update(fault.spent)
    known = [kind for kind in RECOVERY if total[kind] > 0]
    if not known or account.wall_s <= 0:
        return
    slowest = max(known, key=lambda kind: total[kind])
    share = total[slowest] / account.wall_s
    if slowest not in _SLOW or share < _WORTH_SAYING or total[slowest] < _WORTH_SAYING_S:
        return
    doing, hint = _SLOW[slowest]
    if slowest is Spending.START:
        hint = _start_hint(account, spec)
    yield Advice(
        what=f"{doing} took longest in the recoveries",
        because=f"{span(total[slowest])} over {several(len(account.faults), 'incident')}, "
        f"{percent(share)} of the run, {span(total[slowest] / len(account.faults))} each",
        hint=hint,
    )


def _start_hint(account: Account, spec: Mapping[str, Any]) -> str:
    """Standbys skip imports and rehearsal; where there are some, the rest is the script's own."""
    if account.standbys.get(StandbyPhase.TAKEN.value):
        return "the script's own start: data, compilation, the first step"
    doubts = recorded(spec, "standby", "doubts")
    why = f" (off here: {doubts[0]})" if isinstance(doubts, list) and doubts else ""
    return (
        f"warm standby workers: --standby{why}; or a faster start of the script: imports, data, compilation"
    )


def _same_rank(account: Account, _spec: Mapping[str, Any]) -> Iterator[Advice]:
    if not (blamed := Counter(fault.rank for fault in account.faults if fault.rank is not None)):
        return
    (rank, count), *_ = blamed.most_common(1)
    workers = max((life.workers for life in account.lives), default=1)
    if workers > 1 and count >= _OFTEN and count * 2 > len(account.faults):
        because = f"it failed first in {count} of {len(account.faults)} incidents, with {workers} workers"
        hint = f"its device and its data; worker_{rank}.log of each incarnation"
        yield Advice(what=f"look at rank {rank}", because=because, hint=hint)


def _torn(account: Account, _spec: Mapping[str, Any]) -> Iterator[Advice]:
    if not (count := sum(account.refused.values())):
        return
    reason, times = max(account.refused.items(), key=lambda item: item[1])
    yield Advice(
        what=f"checkpoints were refused {several(count, 'time')}",
        because=f"most often ({times}): {reason}",
        hint="faultrun ckpt list --why DIR; write to a temporary name, sync, then rename",
    )


def _silent(account: Account, _spec: Mapping[str, Any]) -> Iterator[Advice]:
    unseen = account.lives and account.high_step is None and account.productive_share is None
    if unseen and not account.lives[-1].end.startswith("incident"):
        yield Advice(
            what="let ranks report their steps",
            because="no rank and no log told a step, so it is not known how much of the time was training",
            hint="sdk.step(n) in the training loop: faultrun docs make-your-script-fault-tolerant",
        )


def _away(account: Account, _spec: Mapping[str, Any]) -> Iterator[Advice]:
    away_s = account.spent.get(Spending.AWAY, 0.0)
    if account.wall_s > 0 and away_s / account.wall_s > _WORTH_SAYING:
        yield Advice(
            what="no supervisor was running for a while",
            because=f"{span(away_s)}, {percent(away_s / account.wall_s)} of the run, between its starts",
            hint="a platform that starts it again at once: faultrun render, restartPolicy, --requeue",
        )


_SLOW = {
    Spending.DETECT: (
        "noticing the hang",
        "a shorter --hang_timeout, if the script's longest healthy pause allows it",
    ),
    Spending.DRAIN: (
        "saving and stopping",
        "the SDK: a window ends as soon as every replica group has saved; else a shorter --grace",
    ),
    Spending.CHOOSE: (
        "choosing the checkpoint",
        "fewer or smaller files under --checkpoint_dir; remove old checkpoints",
    ),
    Spending.BACKOFF: (
        "the pause before the restart",
        "a smaller --backoff, or the cause: waits grow only while no progress is made",
    ),
    Spending.IDLE: ("waiting for the platform", "the platform's side: it kept workers from being started"),
    Spending.START: ("starting up", ""),  # see _start_hint
}

_RULES = (_give_up, _dying_gasp, _interval, _window, _slowest, _same_rank, _torn, _silent, _away)
