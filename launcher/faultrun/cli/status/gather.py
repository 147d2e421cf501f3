"""From a log_dir to ``RunStatus``: run.json, the end of the journal, the progress page and ``/proc``.

Nobody is asked: a supervisor that hangs, or is gone, has left all of it in files.
"""

import json
import os
import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from faultrun.cli.status.checkpoint import newest_checkpoint
from faultrun.core.budget import restarts_left
from faultrun.errors import LogDirError
from faultrun.journal.append import FILE_NAME
from faultrun.journal.codec import CodecError, decode
from faultrun.journal.logdir import read_record
from faultrun.journal.tail import Tail, tail
from faultrun.model.incident import Card
from faultrun.model.plan import Plan
from faultrun.model.spec import RestartPolicy
from faultrun.observe.card import headline
from faultrun.observe.outlook import outlook
from faultrun.observe.status_model import LastIncident, Outlook, RankState, RunStatus, Supervisor
from faultrun.observe.status_ranks import Pace, rank_states

_CONNECT_S = 0.5
_LIVE_PHASES = frozenset({"running"})


def gather(folder: Path, pace: Pace) -> RunStatus:
    """The status now. ``pace`` remembers earlier looks, for rates. LogDirError when no run is there."""
    record = read_record(folder)
    try:
        end = tail(folder / FILE_NAME)
    except OSError as error:
        raise LogDirError(
            f"no run is known in {folder}",
            because=f"{folder / FILE_NAME}: {error.strerror}",
            hint="--log_dir=DIR of the run, as it printed when it started",
        ) from error
    return _Look(folder, record, end, pace).status()


class _Look:
    """One look at one log_dir."""

    def __init__(self, folder: Path, record: Mapping[str, Any], end: Tail, pace: Pace) -> None:
        self._folder = folder
        self._record = record
        spec = record.get("spec")
        self._spec: Mapping[str, Any] = spec if isinstance(spec, dict) else {}
        self._end = end
        self._pace = pace
        self._now = datetime.now(timezone.utc)
        self._plan = self._planned()
        self._ended = _ended(end.last)
        self._supervisor = self._who_supervises()

    def status(self) -> RunStatus:
        """Put together."""
        last, ranks = self._end.last, self._ranks()
        steps = [rank.step for rank in ranks if rank.step is not None]
        policy, point = self._policy(), self._plan.point if self._plan is not None else None
        ledger = self._plan.ledger if self._plan is not None else None
        high = max(steps, default=-1)
        known, left = None, policy.max_restarts
        if ledger is not None:
            now_s, finds = self._run_s(), bool(self._dirs())
            known = outlook(ledger, policy, now_s=now_s, high_step=high, finds_checkpoints=finds)
            left = restarts_left(ledger, policy, now_s=now_s, high_step=high)
        incident = self._incident()
        return RunStatus(
            run_id=str(self._record.get("run_id", "")),
            command=str(_get(self._spec, "command", "shown") or ""),
            log_dir=str(self._folder),
            supervisor=self._supervisor,
            phase=str(last.get("phase", "")),
            why=self._why(),
            suspected=self._suspicion(),
            # A late timer's line carries the number of the life that set it.
            incarnation=self._plan.incarnation if self._plan is not None else -1,
            world_size=self._plan.topology.world_size if self._plan is not None else len(ranks),
            elapsed_s=self._elapsed_s(),
            last_event_age_s=self._age_s(last),
            step=max(steps, default=None),
            slowest_step=min(steps, default=None),
            rate=self._rate(ranks),
            restarts=ledger.total_restarts if ledger is not None else 0,
            restarts_in_window=policy.max_restarts - left,
            restarts_left=left,
            window_s=policy.window_s,
            incidents=incident.number if incident is not None else 0,
            last_incident=incident,
            resumed_from=point.path if point is not None else "",
            resumed_step=point.global_step if point is not None else None,
            last_checkpoint=newest_checkpoint(self._dirs()),
            outlook=self._if_it_matters(known),
            ended=self._ended,
            ranks=ranks,
        )

    def _why(self) -> str:
        """What began the present phase: later lines of it, such as "rank 0 heard it", explain nothing."""
        began = self._end.last
        for line in reversed(self._end.lines):
            if line.get("phase") != began.get("phase"):
                break
            began = line
        return str(began.get("why", ""))

    def _suspicion(self) -> str:
        """The newest word on a hang, while it is neither taken back nor acted on."""
        for line in reversed(self._end.lines):
            match line.get("event"):
                case "HangSuspected":
                    return str(line.get("why", ""))
                case "HangWarned":
                    return f"rank {line.get('rank')} {line.get('because', '')}"
                case "PauseOver" | "HangDismissed" | "HangDetected" | "IncarnationStarted" | "WorkerExit":
                    return ""
        return ""

    def _if_it_matters(self, known: Outlook | None) -> Outlook | None:
        return known if self._ended is None and self._supervisor is not Supervisor.GONE else None

    def _ranks(self) -> tuple[RankState, ...]:
        here = self._supervisor is not Supervisor.ELSEWHERE
        return rank_states(self._folder, self._end, self._record, self._pace, processes_are_here=here)

    def _planned(self) -> Plan | None:
        for line in reversed(self._end.lines):
            if line.get("event") == "PlanAdopted":
                with suppress(CodecError):
                    plan: Plan = decode(line.get("plan"), Plan)
                    return plan
        return None

    def _policy(self) -> RestartPolicy:
        try:
            policy: RestartPolicy = decode(_get(self._spec, "supervision", "policy"), RestartPolicy)
        except CodecError:
            return RestartPolicy()
        return policy

    def _who_supervises(self) -> Supervisor:
        if _listens(str(self._record.get("socket") or "")):
            return Supervisor.RUNNING
        if self._ended is not None:
            return Supervisor.ENDED
        if self._record.get("node") not in (None, socket.gethostname()):
            return Supervisor.ELSEWHERE
        return Supervisor.GONE

    def _dirs(self) -> tuple[str, ...]:
        """Absolute: the run may have been started somewhere else."""
        found, cwd = _get(self._spec, "recovery", "checkpoint_dirs"), str(self._record.get("cwd") or "")
        return tuple(os.path.join(cwd, str(one)) for one in found) if isinstance(found, list) else ()  # noqa: PTH118

    def _run_s(self) -> float:
        """Run-seconds now, as the supervisor counts them."""
        run_s = self._end.last.get("run_s")
        passed_s = self._age_s(self._end.last) if self._supervisor is Supervisor.RUNNING else 0.0
        return (float(run_s) if isinstance(run_s, (int, float)) else 0.0) + (passed_s or 0.0)

    def _elapsed_s(self) -> float:
        began, last = _moment(self._end.first), _moment(self._end.last)
        if began is None or last is None:
            return 0.0
        until = self._now if self._supervisor is Supervisor.RUNNING else last
        return max(0.0, (until - began).total_seconds())

    def _age_s(self, line: Mapping[str, Any]) -> float | None:
        at = _moment(line)
        return None if at is None else max(0.0, (self._now - at).total_seconds())

    def _rate(self, ranks: tuple[RankState, ...]) -> float | None:
        """Of the slowest rank that has one: the others wait for it."""
        return min((rank.rate for rank in ranks if rank.rate is not None), default=None)

    def _incident(self) -> LastIncident | None:
        ledger_says = self._plan.ledger.incidents if self._plan is not None else 0
        for number in (ledger_says + 1, ledger_says):
            path = self._folder / f"incident_{number}.json"
            with suppress(OSError, ValueError, CodecError):
                card: Card = decode(json.loads(path.read_bytes()), Card)
                written_s = path.stat().st_mtime
                age_s = max(0.0, time.time() - written_s)
                return LastIncident(number=number, headline=headline(card), age_s=age_s)
        return None


def _ended(last: Mapping[str, Any]) -> tuple[int, str] | None:
    if last.get("event") != "RunFinished":
        return None
    return _int(last.get("exit_code"), -1), str(last.get("because") or last.get("why") or "")


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


def _moment(line: Mapping[str, Any]) -> datetime | None:
    try:
        return datetime.fromisoformat(str(line["at_utc"]).replace("Z", "+00:00"))
    except (KeyError, ValueError):
        return None


def _int(value: object, default: int) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else default


def _get(tree: object, *names: str) -> object:
    for name in names:
        tree = tree.get(name) if isinstance(tree, dict) else None
    return tree
