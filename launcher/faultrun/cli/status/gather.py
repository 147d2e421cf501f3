"""From a log_dir to ``RunStatus``: run.json, the end of the journal, the progress page and ``/proc``.

Nobody is asked: a supervisor that hangs, or is gone, has left all of it in files.
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

from faultrun.core.budget import Allowed, charge
from faultrun.errors import LogDirError
from faultrun.journal.append import FILE_NAME
from faultrun.journal.codec import CodecError, decode
from faultrun.journal.lines import JournalLine, Tail, moment, tail
from faultrun.journal.logdir import read_record, recorded
from faultrun.model.incident import Card
from faultrun.model.spec import RestartPolicy
from faultrun.observe.card import duration, headline
from faultrun.observe.status import LastIncident, NewestCheckpoint, Outlook, RunStatus, Supervised
from faultrun.observe.status_ranks import Pace, rank_states
from faultrun.observe.view import RunView

if TYPE_CHECKING:
    from faultrun.checkpoints.listing import Named

_CONNECT_S = 0.5
_PATIENCE_S = 0.4


def gather(folder: Path, pace: Pace) -> RunStatus:
    """The status now. ``pace`` remembers earlier looks, for rates. LogDirError when no run is there."""
    record = read_record(folder)
    try:
        end = tail(folder / FILE_NAME)
    except OSError as error:
        raise LogDirError(
            f"no run is known in {folder}",
            because=f"{folder / FILE_NAME}: {error.strerror}",
            hint="--log_dir=DIR, the log directory printed at the start",
        ) from error
    return _Look(folder, record, end).status(pace)


class _Look:
    """One look at one log_dir."""

    def __init__(self, folder: Path, record: Mapping[str, Any], end: Tail) -> None:
        self._folder = folder
        self._record = record
        self._first = end.first
        self._view = RunView()
        for line in end.lines:
            self._view.take(line)
        self._now = datetime.now(timezone.utc)
        self._supervisor = self._who_supervises()

    def status(self, pace: Pace) -> RunStatus:
        """Everything that is known."""
        view, run_id = self._view, str(self._record.get("run_id", ""))
        here = self._supervisor is not Supervised.ELSEWHERE
        ranks = rank_states(self._folder, view, run_id, pace, processes_are_here=here)
        steps = [rank.step for rank in ranks if rank.step is not None]
        policy, now_s, high = self._policy(), self._run_s(), max(steps, default=-1)
        left = view.restarts_left(policy, now_s=now_s, high_step=high)
        point = view.plan.point if view.plan is not None else None
        incident = self._incident()
        return RunStatus(
            run_id=run_id,
            command=str(recorded(self._record, "spec", "command", "shown") or ""),
            log_dir=str(self._folder),
            supervisor=self._supervisor,
            phase=view.phase.value if view.phase is not None else "",
            why=view.phase_why,
            suspected=view.suspected,
            incarnation=view.incarnation,
            world_size=view.world_size if view.plan is not None else len(ranks),
            elapsed_s=self._elapsed_s(),
            last_event_age_s=self._age_s(view.last),
            step=max(steps, default=None),
            slowest_step=min(steps, default=None),
            # Of the slowest rank that has one: the others wait for it.
            rate=min((rank.rate for rank in ranks if rank.rate is not None), default=None),
            restarts=view.ledger.total_restarts,
            restarts_in_window=policy.max_restarts - left,
            restarts_left=left,
            window_s=policy.window_s,
            incidents=incident.number if incident is not None else 0,
            last_incident=incident,
            resumed_from=point.path if point is not None else "",
            resumed_step=point.global_step if point is not None else None,
            last_checkpoint=newest_checkpoint(self._dirs()),
            outlook=self._outlook(policy, now_s, high),
            ended=view.ended,
            ranks=ranks,
        )

    def _outlook(self, policy: RestartPolicy, now_s: float, high_step: int) -> Outlook | None:
        """What would be decided if one more rank died now: the budget asked without being charged."""
        view = self._view
        if view.plan is None or view.ended is not None or self._supervisor is Supervised.GONE:
            return None
        answer = charge(view.ledger, policy, now_s=now_s, high_step=high_step)
        if isinstance(answer, Allowed):
            where = "from the newest whole checkpoint" if self._dirs() else "as the script resumes by itself"
            wait = f" after {answer.backoff_s:.1f} s" if answer.backoff_s else ""
            text = f"restart {answer.number} of {policy.max_restarts} in {duration(policy.window_s)}"
            number, backoff_s, text = answer.number, answer.backoff_s, f"{text}{wait}, {where}"
        else:
            number, backoff_s, text = 0, 0.0, f"give up with that rank's exit code: {answer.why}"
        return Outlook(
            restarts=number > 0,
            number=number,
            allowed=policy.max_restarts,
            backoff_s=backoff_s,
            text=text,
        )

    def _policy(self) -> RestartPolicy:
        try:
            policy: RestartPolicy = decode(
                recorded(self._record, "spec", "supervision", "policy"), RestartPolicy
            )
        except CodecError:
            return RestartPolicy()
        return policy

    def _who_supervises(self) -> Supervised:
        if _listens(str(self._record.get("socket") or "")):
            return Supervised.RUNNING
        if self._view.ended is not None:
            return Supervised.ENDED
        if self._record.get("node") not in (None, socket.gethostname()):
            return Supervised.ELSEWHERE
        return Supervised.GONE

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

    def _incident(self) -> LastIncident | None:
        known = self._view.ledger.incidents
        for number in (known + 1, known):
            path = self._folder / f"incident_{number}.json"
            with suppress(OSError, ValueError, CodecError):
                card: Card = decode(json.loads(path.read_bytes()), Card)
                age_s = max(0.0, time.time() - path.stat().st_mtime)
                return LastIncident(number=number, headline=headline(card), age_s=age_s)
        return None


def _moment(line: JournalLine | None) -> datetime | None:
    return moment(line.at_utc) if line is not None else None


def _listens(path: str) -> bool:
    """Whether a supervisor accepts connections there; a file that was left behind does not."""
    if not path or not os.path.exists(path):  # noqa: PTH110 - a string is all there is
        return False
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(_CONNECT_S)
        try:
            probe.connect(path)
        except OSError as error:
            return isinstance(error, (BlockingIOError, TimeoutError))  # its queue is full: it is there
    return True


def newest_checkpoint(roots: Sequence[str]) -> NewestCheckpoint | None:
    """The newest checkpoint by name and time, of all files only its header read; None without one.

    Looks through ``roots`` for at most 0.4 s; what it says is not verified.
    """
    if not roots:
        return None
    from faultrun.checkpoints.format import Unreadable
    from faultrun.checkpoints.listing import claimed, walk
    from faultrun.checkpoints.registry import builtin_formats
    from faultrun.model.checkpoint import Refusal

    formats, deadline = builtin_formats(), time.monotonic() + _PATIENCE_S
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
    return NewestCheckpoint(
        path=entry.path,
        step=entry.global_step,
        age_s=max(0.0, time.time() - entry.mtime_ns / 1e9),
        size_bytes=entry.size_bytes,
    )
