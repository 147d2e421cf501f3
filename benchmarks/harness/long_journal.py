"""Journals of runs that were never run: as long as wanted, in the form that the supervisor writes.

A life of a run is a plan, its workers, many heartbeats and, but for the last, a fault with its recovery.
"""

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

_BEGAN = datetime(2026, 3, 1, tzinfo=timezone.utc)
_STEP_S = 2.5
_NODE = "host-0"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """How many workers, faults and lines; heartbeats fill up to ``events``."""

    events: int
    workers: int
    incidents: int
    seed: int = 1


def write_journal(path: Path, shape: Shape) -> None:
    """Write the journal of a finished run, and ``run.json`` beside it."""
    with path.open("w", encoding="utf-8") as file:
        for number, line in enumerate(_Run(shape).lines()):
            file.write(json.dumps({"seq": number, **line}, separators=(",", ":")) + "\n")
    record = {"run_id": "long", "pid": 1, "node": _NODE, "socket": "", "version": "0", "spec": _spec(shape)}
    (path.parent / "run.json").write_text(json.dumps(record))


class _Run:
    def __init__(self, shape: Shape) -> None:
        self._shape = shape
        self._random = random.Random(shape.seed)
        self._now_s = 0.0
        self._step, self._life = 0, 0
        self._workers = list(range(shape.workers))
        each = shape.workers + 12
        left = max(0, shape.events - (shape.incidents + 1) * each)
        self._beats = left // (shape.incidents + 1)

    def lines(self) -> Iterator[dict[str, Any]]:
        yield self._line("RunStarted", "surveying", node=_NODE, boot="b", pid=1, actions=[_survey(0)])
        yield from self._recovery_point(0)
        yield from self._begins("first", 0)
        for number in range(1, self._shape.incidents + 1):
            yield from self._trains()
            yield from self._fault(number)
            yield from self._begins("fault", number)
        yield from self._trains()
        for rank in self._workers:
            phase = "sweeping" if rank == self._workers[-1] else "running"
            yield self._line("WorkerExit", phase, **_exit(rank, {"is": "Exited", "code": 0}))
        yield self._line("Drained", "awaiting_plan", stragglers=[], swept=0, notes=[])
        yield self._line("RunFinished", "finished", exit_code=0, because="every rank finished")

    def _begins(self, reason: str, incidents: int) -> Iterator[dict[str, Any]]:
        self._life = incidents
        point = None if reason == "first" else _point(self._step)
        ledger = {"is": "Ledger", "restarts": [], "high_step": self._step, "incidents": incidents}
        plan = {
            "is": "Plan", "incarnation": incidents, "topology": _topology(self._shape), "reason": reason,
            "point": point, "start_at_s": self._now_s, "ledger": {**ledger, "total_restarts": incidents},
        }  # fmt: skip
        yield self._line("PlanAdopted", "preparing", plan=plan)
        yield self._line("Prepared", "awaiting_go", after_s=0.3, master_port=29500)
        yield self._line("GoGiven", "running", master_addr="127.0.0.1", master_port=29500)
        for rank in self._workers:
            yield self._line("WorkerStarted", "running", after_s=0.002, node=_NODE, rank=rank, pid=rank + 2)
        yield self._line("IncarnationStarted", "running", ranks=self._workers, master_port=29500)
        yield self._line("FirstStep", "running", after_s=self._random.uniform(20, 60), step=self._step + 1)

    def _trains(self) -> Iterator[dict[str, Any]]:
        for _ in range(self._beats):
            steps = self._random.randint(8, 40)
            self._step += steps
            yield self._line(
                "Heartbeat", "running", after_s=steps * _STEP_S, steps=[self._said(0), self._said(1)]
            )

    def _fault(self, number: int) -> Iterator[dict[str, Any]]:
        rank = self._random.choice([self._random.randrange(self._shape.workers), 0])
        signum = self._random.choice([9, 9, 9, 11, 6])
        self._step += 10
        yield self._line("Heartbeat", "running", after_s=10 * _STEP_S, steps=[self._said(0)])
        status = {"is": "Signaled", "signum": signum}
        yield self._line("WorkerExit", "draining", **_exit(rank, status))
        others = [other for other in self._workers if other != rank]
        yield self._line("GaspRequested", "draining", ranks=others, deadline_s=self._now_s + 30, took_s=0.001)
        saved = self._random.random() < 0.6
        if saved and others:
            yield self._line(
                "GaspSaved", "draining", after_s=2.0, rank=others[0], path="gasp", step=self._step,
                size_bytes=1, took_s=self._random.uniform(0.5, 3), digest="", replica_group=[],
            )  # fmt: skip
        incident = {
            "is": "Incident", "number": number, "incarnation": self._life, "at_s": self._now_s,
            "cause": "signal", "rank": rank, "status": status, "followers": others[:5], "step": self._step,
            "explanation": f"killed by signal {signum}",
        }  # fmt: skip
        yield self._line("Drained", "surveying", after_s=3.0, stragglers=[], swept=0, notes=[])
        if not saved:
            self._step -= self._random.randint(5, 200) if self._step > 200 else self._step
        yield from self._recovery_point(self._step, incident)

    def _recovery_point(self, step: int, incident: dict[str, Any] | None = None) -> Iterator[dict[str, Any]]:
        fact = {
            "is": "NodeFact", "node": _NODE, "boot": "b", "at_s": self._now_s, "incarnation": self._life,
            "standing": "joined", "incident": incident,
        }  # fmt: skip
        yield self._line(
            "RecoveryPointChosen", "awaiting_plan", after_s=1.0, point=_point(step) if step else None,
            refused=[], actions=[{"is": "Tell", "fact": fact}],
        )  # fmt: skip

    def _said(self, rank: int) -> dict[str, Any]:
        return {"is": "RankStep", "rank": rank, "step": self._step, "epoch": 1, "phase": "computing"}

    def _line(self, event: str, phase: str, *, after_s: float = 0.0005, **fields: Any) -> dict[str, Any]:
        self._now_s = round(self._now_s + after_s, 6)
        at = (_BEGAN + timedelta(seconds=self._now_s)).isoformat(timespec="milliseconds")
        head = {"at_utc": at.replace("+00:00", "Z"), "run_s": self._now_s, "incarnation": self._life}
        return {**head, "event": event, "actions": [], **fields, "phase": phase, "why": "as it was written"}


def _exit(rank: int, status: dict[str, Any]) -> dict[str, Any]:
    return {"node": _NODE, "rank": rank, "pid": rank + 2, "status": status}


def _survey(incarnation: int) -> dict[str, Any]:
    return {"is": "Survey", "incarnation": incarnation, "continuing": False}


def _point(step: int) -> dict[str, Any]:
    path = f"ckpt/net-{step}.ckpt"
    return {
        "is": "RecoveryPoint", "path": path, "kind": "periodic", "global_step": step, "epoch": 1,
        "step_in_epoch": step, "files": [{"is": "RankFile", "rank": 0, "path": path}],
        "source": {"is": "Shared"},
    }  # fmt: skip


def _topology(shape: Shape) -> dict[str, Any]:
    return {"is": "Topology", "nodes": [{"is": "NodeSlots", "node": _NODE, "slots": shape.workers}]}


def _spec(shape: Shape) -> dict[str, Any]:
    return {
        "topology": _topology(shape),
        "command": {"shown": "train.py"},
        "framework": "torch",
        "supervision": {"policy": {"max_restarts": 3, "window_s": 3600.0, "backoff_min_s": 1.0}},
    }
