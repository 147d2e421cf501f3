"""A moment of the run, for whoever puts it into numbers: journal lines, and the progress page."""

import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from faultrun.core.budget import restarts_left
from faultrun.journal.codec import CodecError, decode
from faultrun.model.plan import Ledger
from faultrun.model.run import Phase
from faultrun.model.spec import RestartPolicy
from faultrun.model.wire import SLOT_BYTES, Progress, unpack_progress
from faultrun.observe.account import Accountant
from faultrun.observe.account_fault import number_of
from faultrun.observe.account_model import Account, Spending, productive_share


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """A moment of the run. ``since_last`` is the time since the journal's last line, by its use."""

    phase: str
    incarnation: int
    world_size: int
    up: int
    steps: tuple[int, ...]
    oldest_step_s: float | None
    restarts_left: int
    since_last: Mapping[Spending, float]
    ended: tuple[int, str] | None

    def spent(self, account: Account) -> dict[Spending, float]:
        """Seconds of the run by their use until now; ``account`` ends with the last line."""
        return {kind: account.spent.get(kind, 0.0) + self.since_last.get(kind, 0.0) for kind in Spending}

    def productive_share(self, account: Account) -> float | None:
        """ETTR until now; None where nobody reports steps."""
        return productive_share(self.spent(account))


class RunSnapshot:
    """Takes the lines of a journal in their order; says at any time where the run stands."""

    def __init__(self, log_dir: Path, policy: RestartPolicy) -> None:
        self._log_dir = log_dir
        self._policy = policy
        self._accountant = Accountant()
        self._up: set[int] = set()
        self._world_size = 0
        self._incarnation = -1
        self._phase = ""
        self._ledger = Ledger()
        self._run_s = 0.0
        self._taken_s = time.monotonic()

    def take(self, line: Mapping[str, Any]) -> None:
        """One new line."""
        self._accountant.take(line)
        run_s = line.get("run_s")
        self._run_s = float(run_s) if isinstance(run_s, (int, float)) else self._run_s
        self._taken_s = time.monotonic()
        self._phase = str(line.get("phase", self._phase))
        match line.get("event"):
            case "RunStarted":
                self._up.clear()
            case "PlanAdopted":
                self._planned(line.get("plan"))
            case "WorkerStarted":
                self._up.add(number_of(line.get("rank")) or 0)
            case "WorkerExit":
                self._up.discard(number_of(line.get("rank")) or 0)

    def account(self) -> Account:
        """What the run has cost by the last line taken."""
        return self._accountant.account()

    @property
    def faults_over(self) -> int:
        """How many incidents the run has got over, or ended with."""
        return self._accountant.faults_over

    def state(self, account: Account) -> State:
        """What is not in the account: the moment, the ranks, the budget."""
        passed_s = time.monotonic() - self._taken_s
        now = self._accountant.now_kind
        slots = self._slots()
        monotonic_s = time.monotonic()
        steps = tuple(slot.step for slot in slots)
        return State(
            phase=self._phase,
            incarnation=self._incarnation,
            world_size=self._world_size,
            up=len(self._up),
            steps=steps,
            oldest_step_s=max((monotonic_s - slot.at_monotonic_s for slot in slots), default=None),
            restarts_left=restarts_left(
                self._ledger,
                self._policy,
                now_s=self._run_s + passed_s,
                high_step=max(steps, default=-1),
            ),
            since_last={now: passed_s} if now is not None else {},
            ended=account.ended,
        )

    def _planned(self, plan: object) -> None:
        plan = plan if isinstance(plan, dict) else {}
        self._up.clear()
        self._incarnation = number_of(plan.get("incarnation")) or 0
        topology = plan.get("topology")
        nodes = topology.get("nodes") if isinstance(topology, dict) else None
        self._world_size = sum(
            number_of(node.get("slots")) or 0 for node in nodes or () if isinstance(node, dict)
        )
        with suppress(CodecError):
            self._ledger = decode(plan.get("ledger"), Ledger)

    def _slots(self) -> list[Progress]:
        if self._phase != Phase.RUNNING.value:
            return []
        try:
            page = (self._log_dir / f"incarnation_{self._incarnation}" / "progress").read_bytes()
        except OSError:
            return []
        found = (unpack_progress(page[at : at + SLOT_BYTES]) for at in range(0, len(page), SLOT_BYTES))
        return [slot for slot in found if slot is not None]
