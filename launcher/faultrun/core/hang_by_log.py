"""Silence without the SDK: a log that does not grow, together with no processor time and no I/O.

Pure, like ``hang``. One rank that shows all three signs for the whole time is
suspected once every rank's log has been silent for as long: ranks that wait
for it may spin in a collective, and burn processor time. One whose process is
stopped is suspected whatever the others print. As there, a silence
is warned of first and acted on much later, or at the limit that the user gave.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from faultrun.core.hang_limits import AUTO_S, LONGEST_FACTOR, REPEAT_S, Looks, Pause
from faultrun.model.hang import HangPolicy, HangWarned, PauseHistory, Suspicion

_AGAIN_FACTOR = 2.0
_WORTH_KEEPING_S = AUTO_S / LONGEST_FACTOR
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
    """What has been observed of one incarnation; ``clock_s`` counts observed seconds only.

    ``over`` is a pause worth telling that ended at the last look, ``forgiven_s``
    the longest that was warned of in vain.
    """

    policy: HangPolicy
    at_s: float
    clock_s: float = 0.0
    since: tuple[_Since, ...] = ()
    looks: Looks = Looks()
    run: PauseHistory = PauseHistory()
    over: Pause | None = None
    forgiven_s: float = 0.0

    @property
    def acts_s(self) -> float:
        """The silence after which a rank is replaced."""
        if "quiet" in self.policy.given:
            return self.policy.quiet_s
        raised_s = _AGAIN_FACTOR * self.run.hung_limit_s
        return max(self.policy.quiet_s, AUTO_S, LONGEST_FACTOR * self.run.longest_s, raised_s)

    @property
    def limit_s(self) -> float:
        """The silence after which the processes are looked at, for the first time or again."""
        unusual_s = min(max(REPEAT_S, _AGAIN_FACTOR * self.forgiven_s), self.acts_s / 2)
        return self.looks.due_s(unusual_s=unusual_s, acts_s=self.acts_s, final_s=self.acts_s)


def observe(quiet: Quiet, signs: Iterable[Sign], now_s: float, interval_s: float) -> Quiet:
    """Return the state after one look; gaps in which the observer itself was frozen do not count."""
    passed_s = max(0.0, min(now_s - quiet.at_s, 2 * interval_s))
    clock_s = quiet.clock_s + passed_s
    known = {one.sign.rank: one for one in quiet.since}
    since = tuple(_since(known.get(sign.rank), sign, clock_s, passed_s) for sign in signs)
    return _gone_on(replace(quiet, at_s=now_s, clock_s=clock_s, since=since), _spell(quiet))


def suspect(quiet: Quiet, stopped: frozenset[int] = frozenset()) -> Suspicion | None:
    """Who shows no sign of life: who is ``stopped`` (state T), else all, once nobody logs anything."""
    limit_s = quiet.limit_s
    mute = [one for one in quiet.since if quiet.clock_s - one.log_s >= limit_s]
    idle = [one for one in mute if quiet.clock_s - one.work_s >= limit_s]
    halted = [one for one in idle if one.sign.rank in stopped]
    idle = halted or idle
    if not idle or (len(mute) < len(quiet.since) and not halted):
        return None
    ranks = tuple(one.sign.rank for one in idle)
    silent_s = min(quiet.clock_s - max(one.log_s, one.work_s) for one in idle)
    acts = silent_s >= quiet.acts_s
    return Suspicion(
        front=ranks,
        behind=ranks,
        silent_s=silent_s,
        limit_s=quiet.acts_s if acts else limit_s,
        final=acts,
        acts=acts,
        acts_s=quiet.acts_s,
        woken=quiet.looks.woken,
    )


def dismissed(quiet: Quiet, suspicion: Suspicion) -> Quiet:
    """Somebody was found at work after all."""
    return replace(quiet, looks=quiet.looks.dismissed(suspicion.silent_s))


def warned(quiet: Quiet, event: HangWarned) -> Quiet:
    """As ``hang.warned``."""
    return replace(quiet, looks=quiet.looks.warned(event))


def _spell(quiet: Quiet) -> float:
    """How long there has been no sign of life: from who was warned of, else from the most idle rank."""
    warned = next((one for one in quiet.since if one.sign.rank == quiet.looks.warned_of), None)
    if warned is not None:
        return quiet.clock_s - max(warned.log_s, warned.work_s)
    log_s = min((quiet.clock_s - one.log_s for one in quiet.since), default=0.0)
    return min(log_s, max((quiet.clock_s - one.work_s for one in quiet.since), default=0.0))


def _gone_on(quiet: Quiet, before_s: float) -> Quiet:
    """Whether a pause ended at this look that was warned of, or that raises a limit."""
    over, spell_s = None, _spell(quiet)
    if spell_s < before_s:
        rank, paused_s = quiet.looks.warned_of, round(before_s, 3)
        if rank is not None or paused_s > max(_WORTH_KEEPING_S, quiet.run.longest_s):
            lively = min(quiet.since, key=lambda one: quiet.clock_s - max(one.log_s, one.work_s))
            over = Pause(
                rank=lively.sign.rank if rank is None else rank, paused_s=paused_s, warned=rank is not None
            )
            forgiven_s = max(quiet.forgiven_s, paused_s if over.warned else 0.0)
            run = replace(quiet.run, longest_s=max(quiet.run.longest_s, paused_s))
            quiet = replace(quiet, forgiven_s=forgiven_s, run=run)
        quiet = replace(quiet, looks=Looks())
    return replace(quiet, over=over)


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
