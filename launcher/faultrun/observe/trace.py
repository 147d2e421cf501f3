"""A recovery as a trace: when each of its parts began and ended, and what is known of the fault."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from faultrun.journal.lines import moment
from faultrun.observe.account.accountant import Account
from faultrun.observe.account.records import IncidentRecord
from faultrun.observe.account.timeline import Spending

_NO_PART = frozenset({Spending.TRAINING, Spending.RECOMPUTE})
_NS = 1_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class TracePart:
    """One stretch of a recovery, in nanoseconds since 1970."""

    name: str
    begin_ns: int
    end_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryTrace:
    """From a fault until training went on, or the run ended. ``about`` holds what is known, by name.

    ``parts`` follow one another; behind a start come, once more, what it consisted of where that is known.
    """

    begin_ns: int
    end_ns: int
    recovered: bool
    end: str
    about: Mapping[str, str | int]
    parts: tuple[TracePart, ...]


def recovery_trace(account: Account, fault: IncidentRecord) -> RecoveryTrace | None:
    """The trace of one incident of ``account``; None where the journal does not say when the run began."""
    began = moment(account.began_utc)
    if began is None:
        return None
    zero_ns = int(began.timestamp() * 1000) * (_NS // 1000)
    end_s = fault.at_s + sum(fault.spent.values())
    parts = [
        TracePart(
            name=one.kind.value,
            begin_ns=zero_ns + int(max(one.begin_s, fault.at_s) * _NS),
            end_ns=zero_ns + int(min(one.end_s, end_s) * _NS),
        )
        for one in account.segments
        if one.end_s > fault.at_s and one.begin_s < end_s and one.kind not in _NO_PART
    ]
    if parts and parts[-1].name == Spending.START.value:
        parts += _of_start(parts[-1], fault.timeline)
    return RecoveryTrace(
        begin_ns=zero_ns + int(fault.at_s * _NS),
        end_ns=zero_ns + int(end_s * _NS),
        recovered=fault.end.endswith("again"),
        end=fault.end,
        about=_about(fault),
        parts=tuple(parts),
    )


def _of_start(start: TracePart, timeline: Mapping[str, float]) -> Iterator[TracePart]:
    """Import, rendezvous and first step, where ranks were heard to meet; they end with the start."""
    if not {"import_s", "rendezvous_s", "first_step_s"} <= set(timeline):
        return
    formed_ns = max(start.begin_ns, start.end_ns - int(timeline["first_step_s"] * _NS))
    met_ns = max(start.begin_ns, formed_ns - int(timeline["rendezvous_s"] * _NS))
    yield TracePart(name="import", begin_ns=start.begin_ns, end_ns=met_ns)
    yield TracePart(name="rendezvous", begin_ns=met_ns, end_ns=formed_ns)
    yield TracePart(name="first step", begin_ns=formed_ns, end_ns=start.end_ns)


def _about(fault: IncidentRecord) -> dict[str, str | int]:
    known: dict[str, str | int | None] = {
        "incident": fault.number,
        "incarnation": fault.incarnation,
        "rank": fault.rank,
        "cause": fault.cause,
        "what": fault.what,
        "step": fault.step,
        "resumed_step": fault.resumed_step,
        "lost_steps": fault.lost_steps,
        "saves": fault.saved,
        "checkpoints_refused": fault.refused,
        "end": fault.end,
    }
    return {f"faultrun.{name}": value for name, value in known.items() if value is not None}
