"""Whom does a job that stands still wait for? A judgement from what the processes were found doing.

Progress comes first: only ranks that are behind can be to blame. Among them the kernel's word (stopped,
traced, uninterruptible) counts more than what a main thread's stack suggests, and a rank that waits in a
collective is the last to be blamed. While a rank is found at work it is no hang.
"""

from dataclasses import dataclass, replace
from typing import Any

from faultrun.core.hangs.limits import Beat
from faultrun.core.hangs.process_activity import Frame, ProcessSample, activity_of, describe
from faultrun.core.humanize import rank_names, span
from faultrun.model.observed.hang import Activity, HangDetected, HangElsewhere, HangWarned, Suspicion
from faultrun.model.observed.progress import WorkPhase

_SURE = frozenset({Activity.STOPPED, Activity.TRACED})
_ENDING = frozenset({Activity.LEAVING, Activity.DEAD})
_ENDS_S = 3600.0
"""A process that ends may take so long: a teardown is no hang of the training."""

_WAKES = 3
_PROOF_S = 60.0
_LEAST_SHARE = 0.01
_SUREST_FIRST = tuple(Activity)
_DOING = {
    WorkPhase.COMPUTING: "computing",
    WorkPhase.COLLECTIVE: "in forward, backward or a collective",
    WorkPhase.UPDATING: "updating",
    WorkPhase.SAVING: "saving",
    WorkPhase.EVALUATING: "evaluating",
    WorkPhase.DONE: "ending",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Working:
    """It is no hang, yet: a rank works, or would if it got a processor (``excused_s`` that it did not)."""

    why: str
    excused_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Blamed:
    """It is a hang. ``look`` is None when nothing is known of the process.

    ``elsewhere``: all ranks here wait for those of other nodes.
    """

    rank: int
    stance: Activity
    why: str
    look: ProcessSample | None = None
    elsewhere: bool = False


def judge(
    suspicion: Suspicion,
    looks: tuple[ProcessSample, ...],
    finished: tuple[tuple[int, int], ...] = (),
    elsewhere: int = 0,
) -> Working | Blamed:
    """Name the rank that the others wait for, or say who works.

    ``finished`` are ranks that have ended well or are done, and their last step. ``elsewhere``: how many
    ranks other nodes have, of which it is unknown here what they do.
    """
    known = {look.rank: _fed(look, suspicion) for look in looks}
    stances = {rank: activity_of(known[rank]) for rank in suspicion.front if rank in known}
    sure = [rank for rank in suspicion.front if stances.get(rank) in _SURE]
    if not sure:
        for rank, found in stances.items():
            ends = found in _ENDING and suspicion.silent_s < _ENDS_S
            if ends or found is Activity.STARVED or (found is Activity.WORKING and not suspicion.final):
                excused_s = known[rank].starved_s if found is Activity.STARVED else 0.0
                return Working(why=f"rank {rank} {describe(found, known[rank])}", excused_s=excused_s)
    candidates = sure or [rank for rank in suspicion.behind if rank in known]
    if not candidates:
        rank = min(suspicion.behind)
        return Blamed(rank=rank, stance=Activity.UNKNOWN, why="nothing is known of its process")
    rank = min(candidates, key=lambda one: (_SUREST_FIRST.index(stances[one]), one))
    if stances[rank] is Activity.WAITING and finished:
        gone, step = min(finished, key=lambda one: one[1])
        waiting = " ".join(str(one) for one in candidates)
        wait = f"rank {waiting} still waits" if len(candidates) == 1 else f"ranks {waiting} still wait"
        why = f"finished after step {step}, and {wait} in a collective"
        return Blamed(rank=gone, stance=Activity.ENDED, why=why)
    why = describe(stances[rank], known[rank])
    alike = [one for one in sorted(candidates) if one != rank and stances[one] is stances[rank]]
    if alike and stances[rank] is not Activity.WAITING:
        why += f"; {rank_names(alike)} as well: who began is unknown"
    waits = stances[rank] is Activity.WAITING and elsewhere > 0
    if waits:
        why = f"waits in a collective for ranks of other nodes ({elsewhere}): every rank of this node waits"
    return Blamed(rank=rank, stance=stances[rank], why=why, look=known[rank], elsewhere=waits)


def acts(blamed: Blamed, suspicion: Suspicion) -> bool:
    """Whether something is to be done about it now; else it is a warning.

    A limit is over, or the rank was stopped again each time that it was woken.
    No rank is replaced for being stopped before it was woken, nor for waiting for nodes that were not asked.
    """
    if suspicion.by_log:
        return False
    if blamed.stance is Activity.STOPPED:
        return suspicion.woken >= (1 if suspicion.acts else _WAKES)
    return suspicion.acts and (suspicion.asked or not blamed.elsewhere)


def proved(blamed: Blamed, suspicion: Suspicion) -> bool:
    """Whether, by the kernel's word, the rank could not go on: woken in vain, or never out of state D."""
    if blamed.stance is Activity.STOPPED:
        return suspicion.woken >= _WAKES
    held_s = blamed.look.held_s if blamed.look is not None else 0.0
    return blamed.stance is Activity.UNINTERRUPTIBLE and held_s >= max(_PROOF_S, suspicion.limit_s / 2)


def _fed(look: ProcessSample, suspicion: Suspicion) -> ProcessSample:
    """A process that waited for a processor is excused until it has had the time that it needed.

    No limit, not even one that the user gave, means a machine that is too busy:
    another start would only be one more that wants it.
    """
    if suspicion.silent_s - look.starved_s < suspicion.needed_s:
        return look
    fed_share = max(1.0 - look.starved_share, _LEAST_SHARE)
    return replace(look, starved_share=0.0, main_share=min(1.0, look.main_share / fed_share))


def explain(blamed: Blamed, suspicion: Suspicion, doing: WorkPhase) -> str:
    """The cause for the card: what it does, for how long, and by which measure that is too long."""
    usual = "" if suspicion.usual_s is None else f" (a step usually takes {span(suspicion.usual_s)})"
    activity = "" if doing is WorkPhase.UNKNOWN else f" while {_DOING[doing]}"
    silence = f"nothing heard for {span(suspicion.silent_s)}{activity}"
    limit = f", the limit is {span(suspicion.limit_s)}" if suspicion.acts else ""
    return f"{blamed.why}; {silence}{limit}{usual}"


def judged(
    suspicion: Suspicion,
    verdict: Blamed,
    beat: Beat | None,
    *,
    at_s: float,
    incarnation: int,
    folder: str = "",
    stacks: tuple[int, ...] = (),
) -> HangDetected | HangElsewhere | HangWarned:
    """The event that says what was judged. ``beat`` is the rank's last word, if it had one."""
    doing = beat.phase if beat is not None and beat.begun else WorkPhase.UNKNOWN
    found: dict[str, Any] = {
        "at_s": at_s,
        "incarnation": incarnation,
        "rank": verdict.rank,
        "step": beat.step if beat is not None and beat.stepped else None,
        "doing": doing,
        "stance": verdict.stance,
        "silent_s": round(suspicion.silent_s, 3),
        "why": explain(verdict, suspicion, doing),
        "where": _where(verdict.look.frames if verdict.look is not None else ()),
        "folder": folder,
        "stacks": stacks,
    }
    if suspicion.acts and verdict.elsewhere and not suspicion.asked:
        return HangElsewhere(**found)
    if not acts(verdict, suspicion):
        return HangWarned(**found, acts_s=suspicion.acts_s)
    return HangDetected(**found, limit_s=round(suspicion.limit_s, 3), proved=proved(verdict, suspicion))


def _where(frames: tuple[Frame, ...]) -> str:
    """The innermost frame and, where that is in a library, the script's own that led there."""
    if not frames:
        return ""
    innermost = frames[0]
    own = next((frame for frame in frames if not _is_library(frame)), innermost)
    return innermost.shown if own is innermost else f"{innermost.shown}, called from {own.shown}"


def _is_library(frame: Frame) -> bool:
    marks = ("-packages/", "/lib/python", "/faultrun/sdk/")
    return frame.file.startswith("<") or any(mark in frame.file for mark in marks)
