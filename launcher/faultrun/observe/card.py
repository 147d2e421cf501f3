"""The first-failure card: one screen that answers what happened, what was lost and what is next.

Shown when the incident is decided, written anew when more is known.
"""

import contextlib
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from faultrun.core import gasp
from faultrun.core.diagnose import describe
from faultrun.core.resumption import place_checked
from faultrun.files import replace_whole
from faultrun.journal.codec import encode
from faultrun.model.checkpoint import RecoveryPoint, Refusal
from faultrun.model.incident import Card, Cause, Incident, Save
from faultrun.model.plan import Plan
from faultrun.model.printable import one_line
from faultrun.model.recovery import Began, RecoveryTimed, ResumeChecked
from faultrun.model.run import Phase, RunState
from faultrun.model.spec import RunSpec

_LISTED = 8
_TRY_WHY = "faultrun ckpt list --why"


def render(card: Card) -> str:
    """The card of CONTRACT §6, without a line end."""
    rows = [
        ("cause", _cause(card.incident)),
        ("try", card.incident.finding.hint if card.incident.finding is not None else ""),
        ("stacks", card.incident.stacks),
        ("last log", f'{card.log_name}: "{card.incident.last_line}"' if card.incident.last_line else ""),
        ("saved", _saved(card)),
        ("resume", _resume(card)),
        ("restart", _restart(card)),
    ]
    lines = [headline(card), *(f"  {name:<9} {text}" for name, text in rows if text)]
    return "\n".join(one_line(line) for line in lines)


def headline(card: Card) -> str:
    """Who, out of how many, how and at which step; and who merely followed."""
    incident = card.incident
    followers = ""
    if incident.together:
        followers += f"; {_ranks(incident.together)} died with it"
    if incident.followers:
        followers += f"; {_ranks(incident.followers)} followed"
    what = f"{_who(card)} {_how(incident)}{_at_step(incident)}"
    return f"incident {incident.number}  {what}   first failure{followers}"


def lost_steps(card: Card) -> int | None:
    """Steps that must be trained again; None when nobody knows how far training had come."""
    if card.incident.step is None:
        return None
    if card.checked is not None and card.checked.began is Began.ELSEWHERE:
        began = card.checked.step
        return (
            None
            if began is None or card.checked.epoch is not None
            else max(0, card.incident.step - began + 1)
        )
    if card.point is None:
        return card.incident.step
    if not card.handed_over and card.checked is None:
        return None
    if card.point.global_step is None:
        return None
    if card.point.global_step > card.incident.step and card.incident.step_from_log:
        return None
    # A survivor may have made one step more than anybody had reported when the first one died.
    return max(0, card.incident.step - card.point.global_step)


def _who(card: Card) -> str:
    if card.incident.rank is not None:
        return f"rank {card.incident.rank} of {card.world_size}"
    return "all workers" if card.incident.ordered else "scheduler"


def _how(incident: Incident) -> str:
    if incident.status is not None:
        return describe(incident.status)
    if incident.cause is Cause.RENDEZVOUS:
        return "stopped for another scheduler"
    if incident.cause is Cause.HANG:
        return "hung"
    return "stopped for the platform" if incident.ordered else "could not be started"


def _at_step(incident: Incident) -> str:
    by_log = " by its log" if incident.step_from_log else ""
    if incident.step is None and incident.epoch is not None:
        within = f", step {incident.in_epoch} of it," if incident.in_epoch is not None else ""
        return f" in epoch {incident.epoch}{within}{by_log}"
    if incident.own_step is not None and incident.own_step != incident.step:
        others = f", others at {incident.step}" if incident.step is not None else ""
        return f" at step {incident.own_step}{others}"
    if incident.step is None:
        return ""
    epoch = f" (epoch {incident.epoch})" if incident.epoch is not None else ""
    return f" at step {incident.step}{epoch}{by_log}"


def _cause(incident: Incident) -> str:
    """What was recognised, then the exception or the line that says it."""
    finding, raised = incident.finding, incident.raised
    if raised is not None:
        where = f" ({raised.frame})" if raised.frame else ""
        text = f"{raised.kind}: {raised.message}{where}" if raised.message else f"{raised.kind}{where}"
        return f"{finding.says}: {text}" if finding is not None else text
    if finding is not None:
        return f"{finding.says}: {finding.line}"
    if incident.cause is Cause.SIGNAL and "SIGKILL" in incident.explanation:
        return "killed from outside: the kernel's OOM killer, an operator or another program"
    return incident.explanation


def _saved(card: Card) -> str:
    if not card.saves:
        return f"nothing: {_unsaved(card)}" if card.unsaved else ""
    newest = max(save.step for save in card.saves)
    at_newest = [save for save in card.saves if save.step == newest]
    ranks = _ranks(tuple(sorted(save.rank for save in at_newest)))
    text = f"{ranks} saved step {newest} in {max(save.took_s for save in at_newest):.1f} s (dying gasp)"
    text += _incomplete(card, at_newest, newest)
    return f"{text}; not {_unsaved(card)}" if card.unsaved else text


def _incomplete(card: Card, saves: Sequence[Save], step: int) -> str:
    """Whose part of a sharded state is in none of these saves, where an older step is resumed from."""
    used = card.point.global_step if card.point is not None else None
    if used is None or used >= step or not all(save.group for save in saves):
        return ""
    lacking = set(range(card.world_size)).difference(*(save.group for save in saves))
    if not lacking:
        return ""
    return f", which lacks the part of the state that only {_ranks(tuple(sorted(lacking)))} held"


def _unsaved(card: Card) -> str:
    """The first line of each reason once, with the ranks that gave it."""
    by_reason: dict[str, list[int]] = {}
    for one in card.unsaved:
        by_reason.setdefault(one.why.partition("\n")[0], []).append(one.rank)
    return "; ".join(f"{_ranks(tuple(sorted(ranks)))}: {why}" for why, ranks in by_reason.items())


def _resume(card: Card) -> str:
    """What was chosen, and what came of it: never that a script resumes which nobody tells to."""
    refused = f"   ({card.refused} newer refused: {_TRY_WHY})" if card.refused else ""
    lost, checked, point = lost_steps(card), card.checked, card.point
    by_log = " by the logs" if card.incident.step_from_log else ""
    lost_text = "" if lost is None else f", lost {lost} step{'s' if lost != 1 else ''}{by_log}"
    elsewhere = checked is not None and checked.began is Began.ELSEWHERE
    if point is None:
        if checked is not None and elsewhere:
            return checked.why
        looked_in = (
            f"nothing in {' '.join(card.looked_in)}" if card.looked_in else "no --checkpoint_dir given"
        )
        return f"from the beginning: {looked_in}{lost_text}{refused}" if card.restart else ""
    if checked is not None and elsewhere:
        return f"{checked.why}{lost_text.replace(',', ';', 1)}{refused}"
    began = checked is not None and checked.began is Began.AS_CHOSEN
    if not card.handed_over and not began:
        return (
            f"no hand-over: nothing tells the script of {point.path} ({_step_of(point)}); "
            f"it decides by itself where it begins{refused}"
        )
    proved = f"; {checked.why}" if checked is not None and began else ""
    doubt = ", unverified (--trust)" if point.unverified else ""
    return f"{point.path}   {_step_of(point)}{lost_text}{doubt}{proved}{refused}"


def _step_of(point: RecoveryPoint) -> str:
    if point.global_step is None and point.epoch is not None:
        return f"epoch {point.epoch}"
    return f"step {'?' if point.global_step is None else point.global_step}"


def _restart(card: Card) -> str:
    if card.restart is None:
        return f"none: {card.why.partition(chr(10))[0]}"
    number, allowed = card.restart
    text = f"{number} of {allowed} in {duration(card.window_s)}"
    if card.refunded:
        text += f" ({card.refunded} before given back for progress)"
    if card.incident.ordered:
        text = "not counted"
    if card.trained_after_s is not None:
        return f"{text}; training again after {_took(card.trained_after_s)}"
    if card.restarted_after_s is not None:
        return f"{text}; workers running again after {_took(card.restarted_after_s)}"
    return f"{text}; in {card.backoff_s:.1f} s" if card.backoff_s > 0 else f"{text}; restarting now"


def duration(seconds: float) -> str:
    """``1h``, ``90s``, ``250ms``: the shortest exact spelling that the options accept."""
    for unit, size in (("h", 3600), ("m", 60), ("s", 1)):
        if seconds >= size and seconds % size == 0:
            return f"{seconds / size:g}{unit}"
    return f"{seconds:g}s" if seconds >= 1 else f"{seconds * 1000:g}ms"


def _took(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds >= 1 else f"{seconds * 1000:.0f} ms"


def _ranks(ranks: tuple[int, ...]) -> str:
    """``rank 3``, ``ranks 0 1 2``, and with hundreds of them ``ranks 0-17 19-511``."""
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    if len(ranks) <= _LISTED:
        return "ranks " + " ".join(str(rank) for rank in ranks)
    runs: list[list[int]] = []
    for rank in sorted(ranks):
        if runs and rank == runs[-1][-1] + 1:
            runs[-1] = [runs[-1][0], rank]
        else:
            runs.append([rank])
    return "ranks " + " ".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)


class CardKeeper:
    """Writes to ``say`` and to the incident files of ``log_dir``. Disk trouble never reaches the loop."""

    def __init__(self, spec: RunSpec, log_dir: Path, say: Callable[[str], None]) -> None:
        self._spec = spec
        self._log_dir = log_dir
        self._say = say
        self._card: Card | None = None

    def restarting(self, state: RunState, refused: tuple[Refusal, ...], plan: Plan, now_s: float) -> None:
        """``plan`` follows the incident of ``state``."""
        before = state.plan.ledger.restarts if state.plan is not None else ()
        charged = plan.ledger.restarts
        self._show(
            replace(
                self._new(state, refused),
                restart=(len(charged), self._spec.supervision.policy.max_restarts),
                refunded=len(before) if len(charged) == 1 and before != charged else 0,
                backoff_s=max(0.0, plan.start_at_s - now_s),
            )
        )

    def given_up(self, state: RunState, refused: tuple[Refusal, ...], why: str) -> None:
        """No incarnation follows the incident of ``state``."""
        self._show(replace(self._new(state, refused), why=why))

    def running(self, at_s: float) -> None:
        """The workers of the next incarnation run."""
        if self._card is not None:
            self._update(replace(self._card, restarted_after_s=at_s - self._card.incident.at_s))

    def checked(self, event: ResumeChecked) -> bool:
        """Where the script began; whether that was after an incident."""
        if self._card is None or self._card.incident.incarnation >= event.incarnation:
            return False
        self._update(replace(self._card, checked=event))
        return True

    def timed(self, event: RecoveryTimed) -> None:
        """The recovery is over: one number, wherever it is told."""
        if self._card is None:
            return
        if event.first_step_s is None:
            self._update(replace(self._card, restarted_after_s=event.total_s))
            return
        self._update(replace(self._card, trained_after_s=event.total_s))
        checked = self._card.checked
        where = ""
        if checked is not None:
            as_chosen = ", as chosen" if checked.began is Began.AS_CHOSEN and self._card.point else ""
            where = f" ({place_checked(checked).words}{as_chosen})"
        self._say(f"training again {event.total_s:.1f} s after the failure{where}")

    def _new(self, state: RunState, refused: tuple[Refusal, ...]) -> Card:
        assert state.life.incident is not None
        rank = state.life.incident.rank
        recovery = self._spec.recovery
        return Card(
            incident=state.life.incident,
            world_size=state.seats.world_size,
            saves=state.life.saves,
            point=state.life.point if state.phase is Phase.AWAITING_PLAN else None,
            refused=_newer(refused, state.life.point),
            restart=None,
            window_s=self._spec.supervision.policy.window_s,
            log_name=f"{self._spec.logs.worker_log_name}_{rank}.log" if rank is not None else "",
            unsaved=gasp.unsaved(state.life),
            handed_over=recovery.handed_over,
            looked_in=tuple(dict.fromkeys((*recovery.checkpoint_dirs, *state.run.save_folders))),
        )

    def _show(self, card: Card) -> None:
        self._update(card)
        self._say(render(card))

    def _update(self, card: Card) -> None:
        """Keep the card and write its files anew: they learn how long the recovery took."""
        self._card = card
        number = card.incident.number
        with contextlib.suppress(OSError):
            # Bytes, because a file name in it need not be UTF-8.
            text = f"{render(card)}\n".encode(errors="backslashreplace")
            replace_whole(self._log_dir / f"incident_{number}.txt", text)
            data = json.dumps(encode(card), indent=2)
            replace_whole(self._log_dir / f"incident_{number}.json", f"{data}\n".encode())


def _newer(refused: tuple[Refusal, ...], point: RecoveryPoint | None) -> int:
    """How many refused files claim to be further than the chosen one."""
    reached = -1 if point is None or point.global_step is None else point.global_step
    return sum(1 for one in refused if one.global_step is not None and one.global_step > reached)
