"""The five stages of a recovery that people know, whichever of the two accounts of it there is."""

from collections.abc import Iterable, Mapping

from faultrun.observe.account.records import IncidentRecord
from faultrun.observe.account.timeline import Spending

STAGES: Mapping[str, str] = {
    "notice_s": "notice",
    "save_s": "save and stop",
    "choose_s": "choose a checkpoint",
    "restart_s": "restart",
    "train_s": "until training",
    "away_s": "no supervisor",
}
"""Fields of ``stages`` in the report, in their order, with the words for people."""

_OF_PART = {
    "detect_s": "notice_s",
    "drain_s": "save_s",
    "choose_s": "choose_s",
    "pause_s": "restart_s",
    "rewrite_s": "restart_s",
    "spawn_s": "restart_s",
    "import_s": "train_s",
    "rendezvous_s": "train_s",
    "first_step_s": "train_s",
}
_OF_SPENDING = {
    Spending.DETECT: "notice_s",
    Spending.DRAIN: "save_s",
    Spending.CHOOSE: "choose_s",
    Spending.BACKOFF: "restart_s",
    Spending.IDLE: "restart_s",
    Spending.SPAWN: "restart_s",
    Spending.START: "train_s",
    Spending.AWAY: "away_s",
}


def stages(fault: IncidentRecord) -> dict[str, float]:
    """Seconds of each stage that occurred; they sum to ``recovery_s`` where that is known.

    By what ``RecoveryTimed`` told, if its total is the one that counts; else by phases of the run.
    """
    timed = fault.timed_s is not None or fault.recovery_s is None
    if timed and fault.timeline:
        return _summed((_OF_PART[name], took_s) for name, took_s in fault.timeline.items())
    known = ((_OF_SPENDING.get(kind), took_s) for kind, took_s in fault.spent.items())
    return _summed((name, took_s) for name, took_s in known if name is not None)


def mean_stages(found: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """The mean of each stage over all of ``found``; a stage that did not occur took no time."""
    every = list(found)
    total = _summed(item for one in every for item in one.items())
    return {name: took_s / len(every) for name, took_s in total.items()}


def _summed(items: Iterable[tuple[str, float]]) -> dict[str, float]:
    total: dict[str, float] = {}
    for name, took_s in items:
        total[name] = total.get(name, 0.0) + took_s
    return {name: total[name] for name in STAGES if name in total}
