"""What a message on the control socket means. Total: whatever is in it, nothing here raises.

Only our own user may speak here, but a worker with a bug or another version
of the SDK is one of them: a field that is not what it should be is not heard.
"""

from collections.abc import Mapping
from typing import Any

from faultrun.model.events import Event
from faultrun.model.observed.dying_gasp import GaspAcknowledged, GaspFailed, GaspSaved, SaveAwaited
from faultrun.model.observed.rejoin import MemoryFaultFound, RankCannotRejoin, RankCanRejoin, RankRejoined
from faultrun.model.observed.standby import MemoryUsed

_LONGEST_TEXT = 2000
_PATH_MAX = 4096  # limits.h, with the zero at its end


def said(content: Mapping[str, Any], rank: int, incarnation: int, at_s: float) -> Event | None:
    """The event that the worker of ``rank`` tells; None where it tells none, or none that makes sense."""
    kind, step = content.get("kind"), whole(content.get("step"))
    if kind == "ack":
        return GaspAcknowledged(at_s=at_s, incarnation=incarnation, rank=rank, step=step)
    if kind == "saved" and step is not None:
        return GaspSaved(
            at_s=at_s,
            incarnation=incarnation,
            rank=rank,
            path=path(content.get("path")),
            step=step,
            size_bytes=whole(content.get("size_bytes")) or 0,
            took_s=seconds(content.get("took_s")),
            digest=short(content.get("digest", "")),
            replica_group=_ranks(content.get("replica_group")),
            memory=content.get("memory") is True,
        )
    if kind in ("can_rejoin", "cannot_rejoin", "rejoined", "memory_fault"):
        return _of_its_group(content, rank, at_s)
    if kind == "memory":
        words = ("host_bytes", "device_bytes", "beside_bytes", "free_bytes", "total_bytes")
        sizes = {word: whole(content.get(word)) or 0 for word in words}
        device = short(content.get("device", ""))
        return MemoryUsed(at_s=at_s, incarnation=incarnation, rank=rank, device=device, **sizes)
    if kind == "awaits_gasp":
        return SaveAwaited(at_s=at_s, incarnation=incarnation, rank=rank)
    if kind == "failed":
        return GaspFailed(at_s=at_s, incarnation=incarnation, rank=rank, why=short(content.get("why", "")))
    return None


def _of_its_group(content: Mapping[str, Any], rank: int, at_s: float) -> Event | None:
    """Read what a rank says of its group, with the incarnation it names: it may not know of the next yet."""
    incarnation, step = whole(content.get("incarnation")), whole(content.get("step"))
    if incarnation is None:
        return None
    match content["kind"]:
        case "can_rejoin":
            told = content.get("trains_on")
            shares, waits = short(told) if isinstance(told, str) else None, content.get("waits") is True
            return RankCanRejoin(at_s=at_s, incarnation=incarnation, rank=rank, trains_on=shares, waits=waits)
        case "cannot_rejoin":
            why = short(content.get("why", ""))
            return RankCannotRejoin(at_s=at_s, incarnation=incarnation, rank=rank, why=why)
        case "memory_fault":
            what = short(content.get("what", ""))
            return MemoryFaultFound(at_s=at_s, incarnation=incarnation, rank=rank, what=what)
        case "rejoined" if step is not None:
            return RankRejoined(at_s=at_s, incarnation=incarnation, rank=rank, step=step)
        case _:
            return None


def whole(value: object) -> int | None:
    """A count; None for anything else, also for true, which Python takes for 1."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def seconds(value: object) -> float:
    """A duration; 0 for anything else."""
    return max(0.0, float(value)) if isinstance(value, int | float) else 0.0


def path(value: object) -> str:
    """A path that the system can be asked about; "" for anything else."""
    if not isinstance(value, str) or "\0" in value:
        return ""
    try:
        name = value.encode(errors="surrogateescape")
    except UnicodeEncodeError:  # half of a surrogate pair; a name that is no UTF-8 is not refused
        return ""
    return value if len(name) < _PATH_MAX else ""


def short(value: object) -> str:
    """A text that can be written, and fits into a line even if every character of it is escaped."""
    text = value if isinstance(value, str) else ""
    return text[:_LONGEST_TEXT].encode(errors="backslashreplace").decode()


def _ranks(value: object) -> tuple[int, ...]:
    ranks = [whole(rank) for rank in value] if isinstance(value, list) else []
    known = [rank for rank in ranks if rank is not None]
    return tuple(sorted(known)) if len(known) == len(ranks) else ()
