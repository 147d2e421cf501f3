"""Silence without the SDK: a log that does not grow, together with no processor time and no I/O.

Pure, like ``hang``. One rank that shows all three signs for the whole time is
suspected once every rank's log has been silent for as long: ranks that wait
for it may spin in a collective, and burn processor time.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from faultrun.model.hang import Suspicion

_BUSY_SHARE = 0.02
_BUSY_IO_BYTES = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Sign:
    """What one rank and its children have done since their start: log, processor time, I/O."""

    rank: int
    log_bytes: int
    cpu_s: float
    io_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Since:
    sign: Sign
    log_s: float
    work_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Quiet:
    """What has been observed of one incarnation; ``clock_s`` counts observed seconds only."""

    limit_s: float
    at_s: float
    clock_s: float = 0.0
    since: tuple[_Since, ...] = ()


def observe(quiet: Quiet, signs: Iterable[Sign], now_s: float, interval_s: float) -> Quiet:
    """Return the state after one look; gaps in which the observer itself was frozen do not count."""
    passed_s = max(0.0, min(now_s - quiet.at_s, 2 * interval_s))
    clock_s = quiet.clock_s + passed_s
    known = {one.sign.rank: one for one in quiet.since}
    since = tuple(_since(known.get(sign.rank), sign, clock_s, passed_s) for sign in signs)
    return replace(quiet, at_s=now_s, clock_s=clock_s, since=since)


def suspect(quiet: Quiet) -> Suspicion | None:
    """The ranks that show no sign of life, once nobody has logged anything for as long."""
    if not all(quiet.clock_s - one.log_s >= quiet.limit_s for one in quiet.since):
        return None
    idle = [one for one in quiet.since if quiet.clock_s - one.work_s >= quiet.limit_s]
    if not idle:
        return None
    ranks = tuple(one.sign.rank for one in idle)
    silent_s = min(quiet.clock_s - max(one.log_s, one.work_s) for one in idle)
    return Suspicion(front=ranks, behind=ranks, silent_s=silent_s, limit_s=quiet.limit_s)


def _since(before: _Since | None, sign: Sign, clock_s: float, passed_s: float) -> _Since:
    if before is None:
        return _Since(sign=sign, log_s=clock_s, work_s=clock_s)
    old = before.sign
    works = sign.cpu_s - old.cpu_s > _BUSY_SHARE * passed_s or sign.io_bytes - old.io_bytes > _BUSY_IO_BYTES
    return _Since(
        sign=sign,
        log_s=clock_s if sign.log_bytes != old.log_bytes else before.log_s,
        work_s=clock_s if works else before.work_s,
    )
