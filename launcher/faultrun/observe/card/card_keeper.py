"""Keeps the card of an incident: shows it, and writes its files anew whenever more is known."""

import contextlib
import json
from collections.abc import Callable, Collection
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

from faultrun.core.humanize import several, span
from faultrun.core.phases import grace_window
from faultrun.core.placement.slots import workers_words
from faultrun.core.recovery.resume_verdict import place_checked
from faultrun.files import replace_whole
from faultrun.journal.codec import decode, encode
from faultrun.model.checkpoint import RecoveryPoint, Refusal
from faultrun.model.incident import Aftermath, Card, Cause, Incident
from faultrun.model.line_tone import Tone, toned
from faultrun.model.observed.recovery import Began, RecoveryTimed, ResumeChecked
from faultrun.model.plan import Plan
from faultrun.model.run import Phase, RunState
from faultrun.model.spec.run_settings import RunSettings
from faultrun.model.spec.run_spec import RunSpec
from faultrun.observe.card.card import agreed_card, in_colours, lost_steps, render


def local_time() -> datetime:
    """The wall clock now, with its offset from UTC."""
    return datetime.now().astimezone()


class CardKeeper:
    """Writes to ``say`` and to the incident files of ``log_dir``. Disk trouble never reaches the loop.

    ``now`` is the wall clock, in local time.
    """

    def __init__(
        self, spec: RunSpec, log_dir: Path, say: Callable[[str], None], now: Callable[[], datetime]
    ) -> None:
        self._now = now
        self._moment: datetime | None = None
        self._spec, self._log_dir, self._say = spec, log_dir, say
        self._card: Card | None = None
        self._open = self._left_open()
        """Cards that say without whom the others train on, by their numbers."""
        self._began_s = 0.0
        self._timed: int | None = None
        self._text_stays = False

    def began(self, incident: Incident, at_s: float, *, timed: bool) -> None:
        """It is ``at_s`` run-seconds now; the clock on the wall tells when ``incident`` was.

        ``timed``: this supervisor saw it begin, and will tell how long the recovery took.
        """
        self._timed = incident.number if timed else None
        self._moment = self._now() - timedelta(seconds=max(0.0, at_s - incident.at_s))

    def restarting(self, state: RunState, refused: tuple[Refusal, ...], plan: Plan, now_s: float) -> None:
        """``plan`` follows the incident of ``state``, and one whose ranks were not one group again yet."""
        self._superseded(state, plan)
        before = state.plan.ledger.restarts if state.plan is not None else ()
        charged = plan.ledger.restarts
        self._show(
            replace(
                self._new(state, refused),
                point=plan.point,  # what all nodes resume from, which this one may not have seen itself
                refused=len(newer(refused, plan.point)),
                refused_why=_why_refused(refused, plan.point),
                restart=(len(charged), self._spec.supervision.policy.max_restarts),
                refunded=len(before) if len(charged) == 1 and before != charged else 0,
                backoff_s=max(0.0, plan.start_at_s - now_s),
                kept=tuple(sorted(plan.kept)),
                recovers_itself=state.recovers_itself,
                workers=workers_words(plan),
                missing=tuple(sorted(plan.missing)),
                barred=tuple(sorted(plan.barred())),
            )
        )

    def _superseded(self, state: RunState, plan: Plan) -> None:
        """Take back what the card before promised of ranks that stayed, and came to no step."""
        card, incident = self._card, state.life.incident
        if card is None or incident is None or not card.kept or card.recovers_itself:
            return
        if card.incident.number == incident.number or not (incident.of_before or card.rejoined_step is None):
            return
        kept = tuple(sorted(plan.kept.intersection(card.kept)))
        why = "" if kept else f"incident {incident.number} came before they had done a step"
        told = replace(card.incident, unkept=why)
        self._update(replace(card, incident=told, kept=kept, point=plan.point, missing=()))

    def agreed(self, plan: Plan, told: Aftermath, state: RunState, now_s: float) -> None:
        """``plan`` follows an incident of several nodes: the card's text is the same on each, and stays so.

        How long a recovery took is told by each node's own clock, and kept beside the text. A node that has
        heard of the plan that answered it needs no other to tell of it again.
        """
        if told.answer is not None and self._has_answer(told.incident.number):
            return
        settings = RunSettings.of(self._spec, str(self._log_dir))
        self._show(agreed_card(plan, told, settings, plan.topology.world_size))
        own = state.life.incident
        self._began_s, self._text_stays = now_s if own is None else own.at_s, True

    def agreed_end(self, told: Aftermath, state: RunState, why: str) -> None:
        """No plan follows an incident of several nodes; as in ``agreed``.

        A card that an earlier supervisor left here was answered by the end of that one's run.
        """
        if self._card is None and (self._log_dir / f"incident_{told.incident.number}.json").exists():
            return
        settings = RunSettings.of(self._spec, str(self._log_dir))
        self._show(agreed_card(None, told, settings, state.seats.world_size, why))

    def given_up(self, state: RunState, refused: tuple[Refusal, ...], why: str) -> None:
        """No incarnation follows the incident of ``state``."""
        self._show(replace(self._new(state, refused), why=why))

    def answered(self, state: RunState) -> bool:
        """Whether the card of the incident of ``state`` says already how the run goes on."""
        incident = state.life.incident
        return incident is not None and self._has_answer(incident.number)

    def _has_answer(self, number: int) -> bool:
        card = self._card
        return card is not None and card.restart is not None and card.incident.number == number

    def running(self, at_s: float) -> None:
        """The workers of the next incarnation run."""
        if self._card is not None and self._card.restarted_after_s is None:
            self._update(replace(self._card, restarted_after_s=at_s - self._began_s))

    def rejoined(self, step: int) -> None:
        """Survivors, and newcomers for whom they waited, are one group, at this step; others come later."""
        if self._card is not None and self._card.kept and self._card.rejoined_step is None:
            self._update(replace(self._card, rejoined_step=step))

    def healed(self, ranks: Collection[int], at_s: float) -> None:
        """These ranks are back: every card that misses one of them says after how long."""
        for card in [*self._open.values()]:
            if not set(card.missing).isdisjoint(ranks):
                self._rewrite(card, replace(card, healed_after_s=at_s - card.incident.at_s))

    def unhealed(self, awaited: Collection[int] = ()) -> None:
        """Only the ``awaited`` are missing, or on their way: no card says so of others any longer."""
        for card in [*self._open.values()]:
            if set(card.missing).isdisjoint(awaited):
                self._rewrite(card, replace(card, unhealed=True))

    def _rewrite(self, before: Card, card: Card) -> None:
        """Keep it as the card, or beside that."""
        newest = self._card
        self._update(card)
        self._card = newest if newest is not None and newest is not before else card

    def _left_open(self) -> dict[int, Card]:
        """What an earlier supervisor of this log_dir could not say any more."""
        found = dict[int, Card]()
        for path in self._log_dir.glob("incident_*.json"):
            with contextlib.suppress(OSError, ValueError):
                card: Card = decode(json.loads(path.read_bytes()), Card)
                if card.missing and card.healed_after_s is None and not card.unhealed:
                    found[card.incident.number] = card
        return found

    def checked(self, event: ResumeChecked) -> bool:
        """Where the script began; whether ``timed`` will tell it, because that was after an incident."""
        if self._card is None or self._card.incident.incarnation >= event.incarnation:
            return False
        self._update(replace(self._card, checked=event))
        return self._card.incident.number == self._timed

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
        elif self._card.rejoined_step is not None:
            lost = several(lost_steps(self._card) or 0, "step")
            where = f" (from step {self._card.rejoined_step}, {lost} lost)"
        since = "they were told to save" if self._card.incident.cause is Cause.GROWTH else "the failure"
        self._say(toned(f"training again {span(event.total_s)} after {since}{where}", Tone.GOOD))

    def _new(self, state: RunState, refused: tuple[Refusal, ...]) -> Card:
        assert state.life.incident is not None
        rank, opened = state.life.incident.rank, state.life.incident.opened or ()
        recovery = self._spec.recovery
        return Card(
            incident=state.life.incident,
            world_size=state.seats.world_size,
            saves=state.life.saves,
            point=state.life.point if state.phase is Phase.AWAITING_PLAN else None,
            refused=len(newer(refused, state.life.point)),
            refused_why=_why_refused(refused, state.life.point),
            restart=None,
            window_s=self._spec.supervision.policy.window_s,
            log_name=f"{self._spec.logs.worker_log_name}_{rank}.log" if rank is not None else "",
            unsaved=grace_window.unsaved(state.life),
            handed_over=recovery.handed_over,
            told_by="" if recovery.names_it else recovery.resume_args[0] if recovery.resume_args else "",
            opened=next((f"{one.path}: {one.why}" for one in refused if one.path in opened), ""),
            looked_in=tuple(dict.fromkeys((*recovery.checkpoint_dirs, *state.run.save_folders))),
            at_local="" if self._moment is None else self._moment.isoformat(" ", "milliseconds"),
            host=self._spec.node,
        )

    def _show(self, card: Card) -> None:
        self._began_s, self._text_stays = card.incident.at_s, False
        self._update(card)
        self._say(in_colours(render(card)))

    def _update(self, card: Card) -> None:
        """Keep the card and write its files anew: they learn how long the recovery took."""
        self._card = card
        number = card.incident.number
        self._open.pop(number, None)
        if card.missing and card.healed_after_s is None and not card.unhealed:
            self._open[number] = card
        with contextlib.suppress(OSError):
            # Bytes, because a file name in it need not be UTF-8.
            text = f"{render(card)}\n".encode(errors="backslashreplace")
            if not self._text_stays:
                replace_whole(self._log_dir / f"incident_{number}.txt", text)
            data = json.dumps(encode(card), indent=2)
            replace_whole(self._log_dir / f"incident_{number}.json", f"{data}\n".encode())


def _why_refused(refused: tuple[Refusal, ...], point: RecoveryPoint | None) -> str:
    """The newest of those that are newer than the chosen one, by its name; of any, where none was chosen."""
    found = newer(refused, point) or (refused if point is None else ())
    return "".join(f"{Path(one.path).name}: {one.why}" for one in found[:1])


def newer(refused: tuple[Refusal, ...], point: RecoveryPoint | None) -> tuple[Refusal, ...]:
    """The refused files that claim to be further than the chosen one."""
    reached = -1 if point is None or point.global_step is None else point.global_step
    return tuple(one for one in refused if one.global_step is not None and one.global_step > reached)
