"""A moment of the run in numbers, for metrics: the journal so far, and the progress page."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import cached_property
from pathlib import Path
from typing import Any

from faultrun.journal.lines import JournalLine, moment
from faultrun.journal.logdir import logs_of, read_record
from faultrun.journal.supervised import is_supervised
from faultrun.model.run import Phase
from faultrun.model.spec.output import Logs
from faultrun.model.spec.run_spec import RestartPolicy
from faultrun.observe.account.accountant import Accountant
from faultrun.observe.account.records import Account
from faultrun.workers.logs.last_steps import LastSteps


@dataclass(frozen=True, slots=True, kw_only=True)
class RunMoment:
    """``account`` is as of now, between lines too. ``steps``: as ranks report or print them."""

    account: Account
    phase: Phase | None
    incarnation: int
    world_size: int
    up: int
    missing: int
    steps: tuple[int, ...]
    oldest_step_s: float | None
    restarts_left: int


def account_now(accountant: Accountant, log_dir: Path, record: Mapping[str, Any]) -> Account:
    """The account as of now: a journal tells steps once a minute, and those of a log when its life ends.

    ``record`` is ``run.json``. Without a supervisor it ends with what the workers wrote last.
    """
    last, view = accountant.view.last, accountant.view
    at = moment(last.at_utc) if last is not None else None
    if at is None or view.phase is Phase.FINISHED:
        return accountant.account()
    seen = view.last_steps(log_dir, logs_of(record)) if view.phase is Phase.RUNNING else LastSteps()
    until_s = time.time() if is_supervised(log_dir, record) else (seen.changed_utc_ns or 0) / 1e9
    passed_s = max(0.0, until_s - at.timestamp())
    now = (at + timedelta(seconds=passed_s)).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    step = max((one.step for one in seen.steps), default=None)
    return replace(accountant.account(passed_s=passed_s, step=step), last_utc=now)


class RunSnapshot:
    """Takes the lines of a journal in their order; says at any time where the run stands."""

    def __init__(self, log_dir: Path, policy: RestartPolicy) -> None:
        self._log_dir, self._policy = log_dir, policy
        self._accountant = Accountant()
        self._taken_s = time.monotonic()

    def take(self, line: JournalLine) -> None:
        """One new line."""
        self._accountant.take(line)
        self._taken_s = time.monotonic()

    @cached_property
    def _logs(self) -> Logs:
        return logs_of(read_record(self._log_dir))

    def moment(self) -> RunMoment:
        """Where it stands now; the time since the last line goes on as what it was."""
        view, now_s = self._accountant.view, time.monotonic()
        passed_s = now_s - self._taken_s
        running = view.phase is Phase.RUNNING
        slots = view.progress(self._log_dir) if running else []
        known = [slot for slot in slots if slot is not None]
        seen = view.last_steps(self._log_dir, self._logs).steps if running else ()
        steps = tuple(one.step for one in seen)
        run_s = view.last.run_s if view.last is not None else 0.0
        return RunMoment(
            account=self._accountant.account(passed_s=passed_s, step=max(steps, default=None)),
            phase=view.phase,
            incarnation=view.incarnation,
            world_size=view.world_size,
            up=len(view.up),
            missing=len(view.missing.since_s),
            steps=steps,
            oldest_step_s=max((now_s - slot.at_monotonic_s for slot in known), default=None),
            restarts_left=view.restarts_left(self._policy, self._log_dir, run_s + passed_s),
        )
