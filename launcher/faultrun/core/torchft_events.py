"""What torchft's ``fsdp`` tells of its own recoveries: ``FTFSDP_EVENT {...}`` somewhere in a line of a log.

For people alone: nothing is decided by what a worker prints. The names and fields are those of
``torchft/fsdp/fault_tolerance.py``; what has others, or values of another kind, is no event.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from faultrun.core.humanize import several, span
from faultrun.model.printable import one_line

TORCHFT_MARK = "FTFSDP_EVENT "
_LONGEST = 4096
_MOST = 1e12
_LONGEST_TEXT = 200
"""Of an error; torchft cuts it there itself."""

_NUMBERS = ("step", "seconds", "links_s", "restore_s", "total_s")
_TELL: Mapping[str, str] = {
    "process_start": "began",
    "assigned": "got its place",
    "failure_detected": "noticed a failure",
    "init_replayed": "initialized again",
    "replica_fetched": "fetched its state",
    "recovered": "recovered",
    "training_done": "is done",
    "training_failed": "gave up",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TorchftEvent:
    """What one rank said. ``at_utc_s``: seconds since 1970 by its clock; None and empty: it did not say."""

    rank: int
    name: str
    at_utc_s: float
    step: int | None = None
    seconds: float | None = None
    links_s: float | None = None
    restore_s: float | None = None
    total_s: float | None = None
    error: str = ""

    @property
    def words(self) -> str:
        """As a person says it: ``rank 0 recovered at step 12 in 0.8 s (links 0.3 s, state 0.4 s)``."""
        took = self.seconds if self.total_s is None else self.total_s
        parts = (("links", self.links_s), ("state", self.restore_s))
        shares = ", ".join(f"{name} {span(part)}" for name, part in parts if part is not None)
        said = (
            f"rank {self.rank} {_TELL[self.name]}",
            "" if self.step is None else f"at step {self.step:,}",
            "" if took is None else f"in {span(took)}",
            f"({shares})" if shares else "",
        )
        return " ".join(filter(None, said)) + (f": {self.error}" if self.error else "")


def torchft_event(rank: int, line: str) -> TorchftEvent | None:
    """The event that ``line`` of this rank's log tells of; None for any other text."""
    _, mark, told = line[: 2 * _LONGEST].partition(TORCHFT_MARK)
    if not mark or len(told) > _LONGEST:
        return None
    try:
        fields = json.loads(told)
    except (ValueError, RecursionError):
        return None
    name, at_s = (fields.get("event"), _number(fields.get("t"))) if isinstance(fields, dict) else (None, None)
    if not isinstance(name, str) or name not in _TELL or at_s is None:
        return None
    numbers = {key: _number(fields.get(key)) for key in _NUMBERS}
    step, error = numbers.pop("step"), fields.get("error")
    return TorchftEvent(
        rank=rank,
        name=name,
        at_utc_s=at_s,
        step=None if step is None else int(step),
        error=one_line(error)[:_LONGEST_TEXT] if isinstance(error, str) else "",
        **numbers,
    )


def told_after(events: Iterable[TorchftEvent], began_utc_s: float, ended_utc_s: float) -> list[TorchftEvent]:
    """Those of an incident: from its fault to that of the next one, in their order."""
    found = [one for one in events if began_utc_s <= one.at_utc_s < ended_utc_s]
    return sorted(found, key=lambda one: one.at_utc_s)


def in_words(events: Iterable[TorchftEvent], most: int) -> list[str]:
    """The events, one a line; of more than ``most`` the last ones are only counted."""
    said = [one.words for one in events]
    more = len(said) - most
    return [*said[:most], f"and {several(more, 'event')} more"] if more > 0 else said


def _number(value: object) -> float | None:
    """A number of seconds or steps that can be one."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 <= value < _MOST else None  # false for what is not a number, too
