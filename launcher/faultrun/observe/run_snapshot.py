"""A moment of the run in numbers, for metrics and curves: the journal so far, and the progress page."""

import time
from dataclasses import dataclass
from pathlib import Path

from faultrun.journal.lines import JournalLine
from faultrun.model.run import Phase
from faultrun.model.spec import RestartPolicy
from faultrun.observe.account.accountant import Accountant
from faultrun.observe.account.records import Account
from faultrun.observe.account.timeline import Spending, productive_share


@dataclass(frozen=True, slots=True, kw_only=True)
class RunMoment:
    """``account`` ends with the journal's last line, ``spent`` now. ``steps``: of ranks that say theirs."""

    account: Account
    phase: Phase | None
    incarnation: int
    world_size: int
    up: int
    steps: tuple[int, ...]
    oldest_step_s: float | None
    restarts_left: int
    spent: dict[Spending, float]

    @property
    def productive_share(self) -> float | None:
        """ETTR until now; None where nobody reports steps."""
        return productive_share(self.spent)


class RunSnapshot:
    """Takes the lines of a journal in their order; says at any time where the run stands."""

    def __init__(self, log_dir: Path, policy: RestartPolicy) -> None:
        self._log_dir = log_dir
        self._policy = policy
        self._accountant = Accountant()
        self._taken_s = time.monotonic()

    def take(self, line: JournalLine) -> None:
        """One new line."""
        self._accountant.take(line)
        self._taken_s = time.monotonic()

    @property
    def faults_over(self) -> int:
        """How many incidents the run has got over, or ended with."""
        return self._accountant.faults_over

    def moment(self) -> RunMoment:
        """Where it stands now; the time since the last line goes on as what it was."""
        view, account, now_s = self._accountant.view, self._accountant.account(), time.monotonic()
        passed_s, kind = now_s - self._taken_s, self._accountant.now_kind
        slots = view.progress(self._log_dir) if view.phase is Phase.RUNNING else []
        known = [slot for slot in slots if slot is not None]
        steps = tuple(slot.step for slot in known)
        run_s = view.last.run_s if view.last is not None else 0.0
        return RunMoment(
            account=account,
            phase=view.phase,
            incarnation=view.incarnation,
            world_size=view.world_size,
            up=len(view.up),
            steps=steps,
            oldest_step_s=max((now_s - slot.at_monotonic_s for slot in known), default=None),
            restarts_left=view.restarts_left(
                self._policy, now_s=run_s + passed_s, high_step=max(steps, default=-1)
            ),
            spent={one: account.spent.get(one, 0.0) + (passed_s if one is kind else 0.0) for one in Spending},
        )
