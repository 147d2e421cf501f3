"""The campaign in print: a row for each run, a summary in a few lines. Pure: outcomes in, text out."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from benchmarks.campaigns.gasps_deadline import EXACT_S, Deadline
from benchmarks.campaigns.gasps_run import Outcome
from benchmarks.campaigns.gasps_stop import StopOutcome

WITHOUT_LOSS = 0.95
"""The share of the deaths after which no step may be done again."""

_FAULT_HEADS = (
    "run", "rank", "step", "died at", "newest", "resumed", "lost", "gasps", "drained", "again", "took",
)  # fmt: skip
_STOP_HEADS = ("stop", "after step", "newest", "resumed", "lost", "gasps", "ended in", "took")


def heads(kind: type[Outcome] | type[StopOutcome]) -> str:
    """The first two lines of a table."""
    names = (*(_FAULT_HEADS if kind is Outcome else _STOP_HEADS), "promises")
    return f"\n| {' | '.join(names)} |\n|{'---|' * len(names)}"


def row(done: Outcome | StopOutcome, left_in: Path | None) -> str:
    """One run; ``left_in`` is where a broken one can be looked at."""
    cells = _cells(done) if isinstance(done, Outcome) else _cells_of_stop(done)
    verdict = "kept" if not done.broken else f"**broken**: {'; '.join(done.broken)} (see {left_in})"
    return f"| {' | '.join(cells)} | {verdict} |"


def _cells(done: Outcome) -> tuple[str, ...]:
    fault = done.fault
    numbers = (
        fault.number,
        fault.rank,
        fault.step,
        done.where,
        done.newest,
        done.resumed,
        done.lost,
        done.saved,
    )
    return (*map(str, numbers), _ms(done.drained_s), _s(done.pause_s), _s(done.took_s))


def _cells_of_stop(done: StopOutcome) -> tuple[str, ...]:
    moment = f"{done.stop.step} +{done.stop.after_s * 1e3:.0f} ms"
    numbers = (done.stop.number, moment, done.newest, done.resumed, done.lost, done.saved)
    return (*map(str, numbers), _ms(done.ended_s), _s(done.took_s))


def keeps(outcomes: Sequence[Outcome]) -> bool:
    """Whether no run broke a promise, and few enough lost a step; of a few runs one may."""
    without = sum(done.lost == 0 for done in outcomes)
    return not any(done.broken for done in outcomes) and without >= int(WITHOUT_LOSS * len(outcomes))


def summary(outcomes: Sequence[Outcome]) -> str:
    """What the deaths proved."""
    fine = sum(not done.broken for done in outcomes)
    lost = Counter(done.lost for done in outcomes if done.lost >= 0)
    share = lost[0] / len(outcomes)
    spread = ", ".join(f"{steps}: {count} runs" for steps, count in sorted(lost.items()))
    drained = sorted(done.drained_s for done in outcomes if done.drained_s is not None)
    took = [done.took_s for done in outcomes]
    lines = [
        f"{fine} of {len(outcomes)} deaths kept every promise: exit code 0, one restart, no orphan, the right"
        " rank blamed, at most 1 step lost, and every bit of every rank, step and gasp that of an undisturbed"
        " training",
        f"steps lost: {spread}; {share:.1%} without loss, promised {WITHOUT_LOSS:.0%}",
        f"a run took {median(took):.1f} s (median)",
    ]
    if drained:
        spread = f"median {_ms(median(drained))}, at most {_ms(drained[-1])}"
        lines.append(f"first death to last exit: {spread}")
    by_place: dict[str, list[int]] = {}
    for done in outcomes:
        by_place.setdefault(done.fault.place.value, []).append(done.lost)
    lines += [
        f"  {place}: {len(each)} deaths, lost {sorted(each)[-1]} at most" for place, each in by_place.items()
    ]
    return "\n".join(lines)


def summary_of_stops(outcomes: Sequence[StopOutcome]) -> str:
    """What the stops proved."""
    fine = sum(not done.broken for done in outcomes)
    lost = Counter(done.lost for done in outcomes)
    spread = ", ".join(f"{steps}: {count} runs" for steps, count in sorted(lost.items()))
    ended = [done.ended_s for done in outcomes if done.ended_s]
    took = median(done.took_s for done in outcomes)
    lines = [
        f"{fine} of {len(outcomes)} stops kept every promise: exit code 143, no orphan, the next start"
        " exactly where this one had come, every bit that of an undisturbed training",
        f"steps lost: {spread}; a run of two starts took {took:.1f} s (median)",
    ]
    if ended:
        lines.append(f"SIGTERM to the end: median {_ms(median(ended))}, at most {_ms(max(ended))}")
    return "\n".join(lines)


def summary_of_deadlines(found: Sequence[Deadline]) -> str:
    """How exactly the windows closed."""
    exact = sum(one.exact for one in found)
    timers, lasts = [one.timer_s for one in found], [one.last_exit_s for one in found]
    return (
        f"{exact} of {len(found)} windows closed at their deadline, 0 to {EXACT_S * 1e3:.0f} ms:"
        f" the timer came after {_ms(median(timers))} (median; at most {_ms(max(timers))}),"
        f" the last survivor was gone after {_ms(median(lasts))} (at most {_ms(max(lasts))},"
        f" first {_ms(min(one.first_exit_s for one in found))})"
    )


def _s(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds:.1f} s"


def _ms(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1e3:.1f} ms"
