"""The five stages of a recovery that people know, whichever of the two accounts of it there is."""

from collections.abc import Iterable, Mapping

from faultrun.observe.account.records import IncidentRecord
from faultrun.observe.account.timeline import Spending

_ROWS: tuple[tuple[str, str, tuple[str, ...], tuple[Spending, ...]], ...] = (
    ("notice_s", "notice", ("detect_s",), (Spending.DETECT,)),
    ("save_s", "save and stop", ("drain_s",), (Spending.DRAIN,)),
    ("choose_s", "choose a checkpoint", ("choose_s",), (Spending.CHOOSE,)),
    (
        "restart_s",
        "restart",
        ("pause_s", "rewrite_s", "spawn_s"),
        (Spending.BACKOFF, Spending.IDLE, Spending.SPAWN),
    ),
    ("train_s", "until training", ("import_s", "rendezvous_s", "first_step_s"), (Spending.START,)),
    ("away_s", "no supervisor", (), (Spending.AWAY,)),
)
"""Each stage, its words, and its parts in the two accounts: of ``RecoveryTimed``, and of the whole run."""

STAGES: Mapping[str, str] = {name: words for name, words, _, _ in _ROWS}
"""Fields of ``stages`` in the report, in their order, with the words for people."""

_OF_PART = {part: name for name, _, parts, _ in _ROWS for part in parts}
_OF_SPENDING = {kind: name for name, _, _, kinds in _ROWS for kind in kinds}


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
