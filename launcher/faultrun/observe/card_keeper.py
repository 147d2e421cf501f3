"""Keeps the card of the newest incident: shown when it is decided, written anew when more is known."""

import contextlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from faultrun.core import gasp
from faultrun.core.resumption import place_checked
from faultrun.journal.codec import encode
from faultrun.model.checkpoint import RecoveryPoint, Refusal
from faultrun.model.incident import Card
from faultrun.model.plan import Plan
from faultrun.model.recovery import Began, RecoveryTimed, ResumeChecked
from faultrun.model.run import Phase, RunState
from faultrun.model.spec import RunSpec
from faultrun.observe.card import render


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
            _replace(self._log_dir / f"incident_{number}.txt", text)
            data = json.dumps(encode(card), indent=2)
            _replace(self._log_dir / f"incident_{number}.json", f"{data}\n".encode())


def _replace(path: Path, data: bytes) -> None:
    """In one step: somebody who looks at a run meanwhile reads the old card or the new one."""
    fresh = path.with_name(f".{path.name}")
    fresh.write_bytes(data)
    fresh.replace(path)


def _newer(refused: tuple[Refusal, ...], point: RecoveryPoint | None) -> int:
    """How many refused files claim to be further than the chosen one."""
    reached = -1 if point is None or point.global_step is None else point.global_step
    return sum(1 for one in refused if one.global_step is not None and one.global_step > reached)
