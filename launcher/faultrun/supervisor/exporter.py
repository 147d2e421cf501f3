"""Prometheus: an endpoint (``--metrics_port``), a file for node_exporter (``--metrics_file``). A sidecar.

What is exported is the account of the journal so far; no label has more values than there are kinds of
something, whatever the number of ranks. The names are described in ``docs/metrics.md``.
"""

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from faultrun.core.account import Accountant
from faultrun.core.account_fault import number_of
from faultrun.model.account import Account, Spending
from faultrun.model.run import Phase
from faultrun.model.spec import RestartPolicy
from faultrun.model.wire import SLOT_BYTES, Progress, unpack_progress

if TYPE_CHECKING:
    from prometheus_client.core import Metric

_FILE_EVERY_S = 10.0
_BUCKETS_S = (1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """A moment of the run. ``since_last`` is the time since the journal's last line, by its use."""

    about: Mapping[str, str]
    phase: str
    phases: tuple[str, ...]
    incarnation: int
    world_size: int
    up: int
    steps: tuple[int, ...]
    oldest_step_s: float | None
    restarts_left: int
    since_last: Mapping[Spending, float]
    buckets_s: tuple[float, ...]
    ended: tuple[int, str] | None


class Exporter:
    """Implements ``sidecar.Work`` and is a collector for prometheus-client."""

    interval_s = 1.0

    def __init__(
        self, log_dir: Path, about: Mapping[str, str], policy: RestartPolicy, port: int | None, file: str
    ) -> None:
        self._log_dir = log_dir
        self._about = dict(about)
        self._max_restarts, self._window_s = policy.max_restarts, policy.window_s
        self._port = port
        self._file = Path(file) if file else None
        self._accountant = Accountant()
        self._up: set[int] = set()
        self._world_size = 0
        self._incarnation = -1
        self._phase = ""
        self._charged: list[float] = []
        self._run_s = 0.0
        self._taken_s = time.monotonic()
        self._written_s = 0.0
        self._write: Callable[[Path], None] | None = None

    def begin(self, lifeline: int) -> None:
        """See ``sidecar.Work``: open the port, if one was asked for."""
        del lifeline
        from prometheus_client import CollectorRegistry, start_http_server, write_to_textfile  # noqa: PLC0415

        registry = CollectorRegistry()
        registry.register(self)
        if self._port is not None:
            start_http_server(self._port, registry=registry)
        self._write = lambda path: write_to_textfile(str(path), registry)

    def take(self, line: Mapping[str, Any]) -> None:
        """See ``sidecar.Work``."""
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

    def tick(self) -> None:
        """See ``sidecar.Work``: the file is written anew now and then."""
        if time.monotonic() - self._written_s > _FILE_EVERY_S:
            self._write_file()

    def end(self) -> None:
        """See ``sidecar.Work``: a short job is known by what it leaves."""
        self._write_file()

    def collect(self) -> "Iterator[Metric]":
        """What prometheus-client asks for at each scrape."""
        from faultrun.supervisor.exporter_metrics import metrics  # noqa: PLC0415

        account = self._accountant.account()
        return metrics(account, self.state(account))

    def state(self, account: Account) -> State:
        """What is not in the account: the moment, the ranks, the budget."""
        passed_s = time.monotonic() - self._taken_s
        now = self._accountant.now_kind
        slots = self._slots()
        monotonic_s = time.monotonic()
        recent = [at for at in self._charged if self._run_s + passed_s - at < self._window_s]
        return State(
            about=self._about,
            phase=self._phase,
            phases=tuple(phase.value for phase in Phase),
            incarnation=self._incarnation,
            world_size=self._world_size,
            up=len(self._up),
            steps=tuple(slot.step for slot in slots),
            oldest_step_s=max((monotonic_s - slot.at_monotonic_s for slot in slots), default=None),
            restarts_left=max(0, self._max_restarts - len(recent)),
            since_last={now: passed_s} if now is not None else {},
            buckets_s=_BUCKETS_S,
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
        ledger = plan.get("ledger")
        restarts = ledger.get("restarts") if isinstance(ledger, dict) else None
        charged = (one.get("at_s") for one in restarts or () if isinstance(one, dict))
        self._charged = [float(at_s) for at_s in charged if isinstance(at_s, (int, float))]

    def _slots(self) -> list[Progress]:
        if self._phase != Phase.RUNNING.value:
            return []
        try:
            page = (self._log_dir / f"incarnation_{self._incarnation}" / "progress").read_bytes()
        except OSError:
            return []
        found = (unpack_progress(page[at : at + SLOT_BYTES]) for at in range(0, len(page), SLOT_BYTES))
        return [slot for slot in found if slot is not None]

    def _write_file(self) -> None:
        """prometheus-client writes beside it and renames: a reader sees a whole file."""
        self._written_s = time.monotonic()
        if self._file is not None and self._write is not None:
            with suppress(OSError):
                os.makedirs(self._file.parent, exist_ok=True)  # noqa: PTH103
                self._write(self._file)
