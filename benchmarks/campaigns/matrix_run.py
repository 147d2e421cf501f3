"""One cell of the fault matrix: a training with one fault, what was said of it, and whether that is right."""

import contextlib
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.campaigns.engine import NotPossible
from benchmarks.harness.launched import ROOT, start_in
from benchmarks.harness.procfs import tagged
from faultrun.testing.fault import CHAOS_VARIABLE, FaultKind, InjectedFault, Trigger
from faultrun.testing.inject import GROUP_PREFIX, MEMORY_GROUPS

PHASES = (Trigger.STARTUP, Trigger.COMPILE, Trigger.STEP, Trigger.SAVE)
_BETWEEN_SAVES = 6
_AT_SAVE = 4
_RUN_S = 240.0
HANGS = (FaultKind.STOP, FaultKind.SPIN, FaultKind.SLEEP)
_HANG_LIMITS = "--hang_limits=startup=8s,compile=8s,step=2s,checkpoint=4s"
_RESTART, _STOP = "restart", "stop"


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """The job that is disturbed; ``program`` is the script and its arguments."""

    program: tuple[str, ...]
    workers: int
    meets: str

    @property
    def ranks(self) -> tuple[int, ...]:
        """All of them."""
        return tuple(range(self.workers))


_CHAOS = (str(ROOT / "benchmarks" / "jobs" / "chaos.py"), "--peer_timeout=30")
TRAININGS = {
    "plain": Training(program=(*_CHAOS, "--collective=sockets"), workers=4, meets="sockets"),
    "torch": Training(program=(*_CHAOS, "--collective=gloo"), workers=4, meets="gloo"),
    "mindspore": Training(
        program=(str(ROOT / "benchmarks" / "jobs" / "chaos_mindspore.py"),), workers=2, meets="MindSpore"
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """``value`` is the exit code of an exit."""

    kind: FaultKind
    phase: Trigger
    rank: int
    value: float | None = None

    @property
    def name(self) -> str:
        """As people call it."""
        return self.kind.value if self.value is None else f"{self.kind.value} {self.value:g}"

    @property
    def number(self) -> tuple[str, str, int]:
        """Which one it is, by fault, phase and rank."""
        return self.name, self.phase.value, self.rank

    @property
    def fault(self) -> InjectedFault:
        """As ``FAULTRUN_CHAOS`` describes it."""
        step = {Trigger.STEP: _BETWEEN_SAVES, Trigger.SAVE: _AT_SAVE}.get(self.phase)
        life = None if self.kind is FaultKind.DISK else 0
        return InjectedFault(
            kind=self.kind, rank=self.rank, step=step, phase=self.phase, life=life, value=self.value
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """``cause``: one of these stands in the card's cause."""

    cause: tuple[str, ...]
    fault_class: tuple[str, ...]
    decision: str
    exit_code: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What was said and done. ``orphans`` are processes that outlived the supervisor."""

    blamed: int | None
    fault_class: str
    cause: str
    decision: str
    exit_code: int
    resumed_wrongly: bool
    orphans: frozenset[int]


def expected(cell: Cell) -> Expected:
    """The right answer. Only what is the program's own by nature is not tried again before the first step."""
    begun = cell.phase in (Trigger.STEP, Trigger.SAVE)
    chance = (_RESTART, 0)
    memory = (_RESTART, 0) if begun else (_STOP, 93)
    left = "left with exit code 0" if cell.value == 0 else f"exited with code {cell.value}"
    causes, classes, (decision, exit_code) = {
        FaultKind.KILL: (("killed from outside",), ("transient",), chance),
        FaultKind.SEGV: (("memory fault", "SIGSEGV"), ("unknown",), chance),
        FaultKind.RAISE: (("InjectedError: injected in",), ("unknown",), chance),
        FaultKind.EXIT: ((left,), ("unknown",), chance),
        FaultKind.OOM: (("out of memory", "memory is full"), ("resource",), memory),
        FaultKind.DISK: (("the disk is full",), ("resource",), (_RESTART, 1)),  # room may be made
        FaultKind.LOG: (("the disk is full",), ("resource",), (_RESTART, 0)),
        FaultKind.STOP: (("nothing failed",), ("",), (_STOP, 0)),  # it is woken, and goes on
        FaultKind.SPIN: (("spins", "waits for a processor"), ("transient",), chance),
        FaultKind.SLEEP: (("sleeps",), ("transient",), chance),
    }[cell.kind]
    return Expected(cause=causes, fault_class=classes, decision=decision, exit_code=exit_code)


def run(cell: Cell, folder: Path, framework: str) -> Outcome:
    """Train with the fault. NotPossible where the disk that it fills may not be mounted."""
    small_disk = cell.kind is FaultKind.DISK
    if small_disk and not _mount_small(folder / "ckpt"):
        raise NotPossible("no small file system may be mounted here")
    try:
        code = _train(cell, framework, folder)
    finally:
        _remove_groups()
        if small_disk:
            subprocess.run(["umount", str(folder / "ckpt")], check=False)
    return _outcome(folder / "faultrun_log", code)


def _remove_groups() -> None:
    """Remove the control groups that ``oom`` left behind, whose processes are dead."""
    for parent, _ in MEMORY_GROUPS:
        for group in parent.glob(f"{GROUP_PREFIX}*"):
            with contextlib.suppress(OSError):
                group.rmdir()


def _train(cell: Cell, framework: str, folder: Path) -> int:
    training = TRAININGS[framework]
    options = (
        *(f"--framework={framework}", f"--worker_num={training.workers}", "--checkpoint_dir=ckpt"),
        *("--backoff=10ms..20ms", "--standby=none", *((_HANG_LIMITS,) if cell.kind in HANGS else ())),
    )
    command = (sys.executable, "-m", "faultrun", *options, *training.program)
    process = start_in(folder, command, **{CHAOS_VARIABLE: cell.fault.text})
    try:
        return process.wait(_RUN_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return -1


def _outcome(logs: Path, code: int) -> Outcome:
    incident: dict[str, Any] = _card(logs).get("incident", {})
    text = (logs / "incident_1.txt").read_text() if (logs / "incident_1.txt").exists() else ""
    rows = [line.strip() for line in text.splitlines()[1:]]
    cause = next((row[len("cause") :].strip() for row in rows if row.startswith("cause ")), "nothing failed")
    said = (log.read_text(errors="replace") for log in logs.glob("incarnation_*/worker_*.log"))
    return Outcome(
        blamed=incident.get("rank"),
        fault_class=incident.get("fault_class", ""),
        cause=cause,
        decision=_RESTART if (logs / "incarnation_1").exists() else _STOP,
        exit_code=code,
        resumed_wrongly=any("WRONG" in text for text in said),
        orphans=frozenset(_orphans(logs)),
    )


def judge(cell: Cell, outcome: Outcome) -> list[str]:
    """What is not as it should be."""
    right, wrong = expected(cell), []
    nobodys = (FaultKind.DISK, FaultKind.STOP)  # shared by all
    if outcome.blamed != cell.rank and cell.kind not in nobodys:
        wrong.append(f"rank {outcome.blamed} blamed")
    if not any(one in outcome.cause for one in right.cause):
        wrong.append("wrong cause")
    if outcome.fault_class not in right.fault_class:
        wrong.append(f"class is not {' or '.join(right.fault_class)}")
    if outcome.decision != right.decision:
        wrong.append(f"decision is not {right.decision}")
    if outcome.exit_code != right.exit_code:
        wrong.append(f"exit code is not {right.exit_code}")
    if outcome.resumed_wrongly:
        wrong.append("wrong resume")
    if outcome.orphans:
        wrong.append(f"orphans {sorted(outcome.orphans)}")
    return wrong


def _card(logs: Path) -> dict[str, Any]:
    try:
        card: dict[str, Any] = json.loads((logs / "incident_1.json").read_text())
    except (OSError, ValueError):
        return {}
    return card


def _orphans(logs: Path) -> set[int]:
    try:
        boot = json.loads((logs / "run.json").read_text())["boot"]
    except (OSError, ValueError, KeyError):
        return set()
    return tagged("FAULTRUN_BOOT_ID", boot)


def _mount_small(folder: Path) -> bool:
    folder.mkdir(parents=True)
    command = ["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(folder)]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0
