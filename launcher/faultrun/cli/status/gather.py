"""From a log_dir to ``RunStatus``: run.json, the end of the journal, the progress page and ``/proc``.

No process is asked: a supervisor that hangs, or is gone, has left all of it in files.
"""

import json
import os
import socket
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from faultrun.core.placement.slots import workers_words
from faultrun.core.plan.restart_budget import Allowed, charge
from faultrun.errors import FaultrunError, LogDirError
from faultrun.journal.append import FILE_NAME
from faultrun.journal.codec import CodecError, decode
from faultrun.journal.lines import JournalLine, Tail, moment, tail
from faultrun.journal.logdir import read_record, recorded, recorded_as, which_log_dir
from faultrun.journal.supervised import is_here, is_supervised
from faultrun.model.incident import Card
from faultrun.model.spec.run_spec import Recovery, RestartPolicy
from faultrun.observe.card.card import duration, headline
from faultrun.observe.run_view import RunView
from faultrun.observe.standby_words import StandbyTally
from faultrun.observe.status.ranks import Pace, rank_states
from faultrun.observe.status.status import (
    LastIncident,
    NewestCheckpoint,
    Outlook,
    RestartsSpent,
    RunEnd,
    RunStatus,
    Supervised,
)

if TYPE_CHECKING:
    from faultrun.checkpoints.listing import Named

_PATIENCE_S = 0.4


def gather(folder: Path, pace: Pace) -> RunStatus:
    """The status now. ``pace`` remembers earlier looks, for rates. LogDirError when no run is there."""
    record = read_record(folder)
    try:
        end = tail(folder / FILE_NAME)
    except OSError as error:
        because = f"{folder / FILE_NAME}: {error.strerror}"
        hint = which_log_dir(folder)
        raise LogDirError(f"no run is known in {folder}", because=because, hint=hint) from error
    return _Look(folder, record, end).status(pace)


class _Look:
    """One look at one log_dir."""

    def __init__(self, folder: Path, record: Mapping[str, Any], end: Tail) -> None:
        self._folder, self._record = folder, record
        self._first = end.first
        self._view = RunView()
        count = recorded(record, "spec", "standby", "count")
        self._view.standbys = StandbyTally(wanted=count if isinstance(count, int) else 0)
        for line in end.lines:
            self._view.take(line)
        self._now = datetime.now(timezone.utc)
        self._supervisor = who_supervises(folder, record, ended=self._view.ended is not None)

    def status(self, pace: Pace) -> RunStatus:
        """Everything that is known."""
        view, record = self._view, self._record
        runs = self._supervisor is Supervised.RUNNING
        here = is_here(self._folder, record) if runs else self._supervisor is not Supervised.ELSEWHERE
        ranks = rank_states(self._folder, view, record, pace, processes_are_here=here)
        steps = [rank.step for rank in ranks if rank.step is not None]
        policy, now_s = recorded_as(record, RestartPolicy, "spec", "supervision", "policy"), self._run_s()
        left = view.restarts_left(policy, self._folder, now_s)
        point = view.plan.point if view.plan is not None else None
        incident = self._incident()
        newest = newest_checkpoint(self._dirs(), recorded_as(record, Recovery, "spec", "recovery"))
        return RunStatus(
            run_id=str(record.get("run_id", "")),
            command=str(recorded(record, "spec", "command", "shown") or ""),
            log_dir=str(self._folder),
            supervisor=self._supervisor,
            phase=view.phase.value if view.phase is not None else "",
            why=view.phase_why,
            suspected=view.suspected,
            incarnation=view.incarnation,
            world_size=view.world_size if view.plan is not None else len(ranks),
            here=self._here(len(ranks)),
            elapsed_s=self._elapsed_s(),
            last_event_age_s=self._age_s(view.last),
            step=max(steps, default=None),
            slowest_step=min(steps, default=None),
            # Of the slowest rank that has one: the others wait for it.
            rate=min((rank.rate for rank in ranks if rank.rate is not None), default=None),
            spent=RestartsSpent(
                restarts=view.restarts,
                counted=len(view.ledger.restarts),
                incidents=incident.number if incident is not None else 0,
                high_step=view.ledger.high_step if view.ledger.high_step >= 0 else None,
                allowed=policy.max_restarts,
                left=left,
                window_s=policy.window_s,
            ),
            last_incident=incident,
            resumed_from=point.path if point is not None else "",
            resumed_step=point.global_step if point is not None else None,
            last_checkpoint=newest,
            first_save=view.first_save,
            outlook=self._outlook(policy, now_s, view.high_step(self._folder), newest),
            standbys=self._standbys(),
            ended=self._ended(),
            ranks=ranks,
            workers=workers_words(view.plan) if view.plan is not None else "",
            missing="" if self._supervisor is Supervised.GONE else view.missing.words(view.world_size, now_s),
        )

    def _ended(self) -> RunEnd | None:
        if (ended := self._view.ended) is None:
            return None
        return RunEnd(exit_code=ended[0], why=ended[1], stopped=self._view.stopping)

    def _here(self, started: int) -> int:
        """Workers that the plan gives to this node."""
        seats = self._view.plan.topology.nodes if self._view.plan is not None else ()
        known = seats[0].slots if len(seats) == 1 else started
        return next((seat.slots for seat in seats if seat.node == self._record.get("node")), known)

    def _outlook(
        self, policy: RestartPolicy, now_s: float, high_step: int, newest: NewestCheckpoint | None
    ) -> Outlook | None:
        """What would be decided if one more rank died now: the budget asked without being charged.

        A later save gives back what was spent, if it is whole; it is not verified yet.
        """
        view = self._view
        if view.plan is None or view.ended is not None or self._supervisor is Supervised.GONE:
            return None
        answer = charge(view.ledger, policy, now_s=now_s, high_step=high_step)
        if isinstance(answer, Allowed):
            alone = self._alone()
            where = "from the newest whole checkpoint" if self._dirs() else "as the script resumes by itself"
            where = alone or f"{where}{self._not_alone()}"
            wait = f" after {answer.backoff_s:.1f} s" if answer.backoff_s and not alone else ""
            text = f"restart {answer.number} of {policy.max_restarts} in {duration(policy.window_s)}"
            number, backoff_s, text = answer.number, answer.backoff_s, f"{text}{wait}, {where}"
        else:
            number, backoff_s, text = 0, 0.0, f"give up with that rank's exit code: {answer.why}"
        step = newest.step if newest is not None else None
        if number != 1 and policy.max_restarts and step is not None and step > view.ledger.saved_step:
            text += f"; restart 1 of {policy.max_restarts} at once if the save of step {step:,} is whole"
        return Outlook(
            restarts=number > 0, number=number, allowed=policy.max_restarts, backoff_s=backoff_s, text=text
        )

    def _alone(self) -> str:
        """Who stays where only that rank is started again; empty if all are."""
        view = self._view
        stays = recorded(self._record, "spec", "supervision", "windows", "rejoin_s")
        if not (stays and view.up and view.can_stay >= view.up and view.world_size > 1):
            return ""
        elsewhere = view.world_size > len(view.up)
        return "of that rank alone: the others stay" + (", if those of other nodes can" if elsewhere else "")

    def _not_alone(self) -> str:
        """Which rank keeps the others from staying, where some could or it was asked for."""
        view = self._view
        if view.cannot_stay:
            rank, why = min(view.cannot_stay.items())
            return f"; of all, because rank {rank} cannot stay: {why}"
        mute = view.up - view.can_stay
        return f"; of all, until rank {min(mute)} says that it can stay" if view.can_stay and mute else ""

    def _standbys(self) -> StandbyTally | None:
        """None where no process lives to keep any, or none is wanted."""
        tally, supervised = self._view.standbys, self._supervisor
        lives = supervised in (Supervised.RUNNING, Supervised.ELSEWHERE)
        return tally if lives and (tally.wanted or tally.off) else None

    def _dirs(self) -> tuple[str, ...]:
        """Absolute: the run may have been started somewhere else."""
        found, cwd = (
            recorded(self._record, "spec", "recovery", "checkpoint_dirs"),
            str(self._record.get("cwd") or ""),
        )
        return tuple(os.path.join(cwd, str(one)) for one in found) if isinstance(found, list) else ()  # noqa: PTH118

    def _run_s(self) -> float:
        """Run-seconds now, as the supervisor counts them."""
        last = self._view.last
        passed_s = self._age_s(last) if self._supervisor is Supervised.RUNNING else 0.0
        return (last.run_s if last is not None else 0.0) + (passed_s or 0.0)

    def _elapsed_s(self) -> float:
        began, last = _moment(self._first), _moment(self._view.last)
        if began is None or last is None:
            return 0.0
        until = self._now if self._supervisor is Supervised.RUNNING else last
        return max(0.0, (until - began).total_seconds())

    def _age_s(self, line: JournalLine | None) -> float | None:
        at = _moment(line)
        return None if at is None else max(0.0, (self._now - at).total_seconds())

    def _since(self, card: Card) -> float | None:
        """How long ago its fault was noticed. The card is written anew later, when more is known."""
        last, age_s = self._view.last, self._age_s(self._view.last)
        return None if last is None or age_s is None else max(0.0, age_s + last.run_s - card.incident.at_s)

    def _incident(self) -> LastIncident | None:
        known = self._view.ledger.incidents
        for number in (known + 1, known):
            path = self._folder / f"incident_{number}.json"
            with suppress(OSError, ValueError, CodecError):
                card: Card = decode(json.loads(path.read_bytes()), Card)
                age_s, ordered = self._since(card), card.incident.ordered
                return LastIncident(number=number, headline=headline(card), age_s=age_s, ordered=ordered)
        return None


def who_supervises(folder: Path, record: Mapping[str, Any], *, ended: bool) -> Supervised:
    """Whether a supervisor looks after the run of ``folder``: by socket, lock, process and machine."""
    if is_supervised(folder, record, ended=ended):
        return Supervised.RUNNING
    if ended:
        return Supervised.ENDED
    if record.get("host", record.get("node")) not in (None, socket.gethostname()):
        return Supervised.ELSEWHERE
    return Supervised.GONE


def _moment(line: JournalLine | None) -> datetime | None:
    return moment(line.at_utc) if line is not None else None


def newest_checkpoint(roots: Sequence[str], recovery: Recovery) -> NewestCheckpoint | None:
    """The newest checkpoint by name and time, of all files only its header read; None without one.

    Formats are those that count in the run. It looks for at most 0.4 s; what it says is not verified.
    """
    if not roots:
        return None
    from faultrun.checkpoints.format import Unreadable
    from faultrun.checkpoints.listing import claimed, walk
    from faultrun.checkpoints.registry import builtin_formats, registry_for
    from faultrun.model.checkpoint import Refusal

    try:
        formats = registry_for(recovery).formats
    except FaultrunError:  # of a recipe that names a format of a package that is not installed here
        formats = builtin_formats()
    deadline = time.monotonic() + _PATIENCE_S
    newest: Named | None = None
    for root in roots:
        for listing in walk(root):
            for one in claimed(listing, root, formats) if not isinstance(listing, Refusal) else ():
                if isinstance(one, Refusal) or one.unfinished:
                    continue
                if newest is None or one.first.mtime_ns > newest.first.mtime_ns:
                    newest = one
            if time.monotonic() > deadline:
                break
    if newest is None:
        return None
    entry = newest.first
    for known in formats:
        if known.name == entry.format:
            with suppress(Unreadable, OSError):
                entry = known.read(entry)
    age_s, step = max(0.0, time.time() - entry.mtime_ns / 1e9), entry.global_step
    return NewestCheckpoint(path=entry.path, step=step, age_s=age_s, size_bytes=entry.size_bytes)
