"""One hostile history: sessions of the real program on one log_dir, struck as the plan says."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.campaigns.hostile_files import Shelf
from benchmarks.campaigns.hostile_plan import Blow, End, History, Session
from benchmarks.harness import journal
from benchmarks.harness.launched import ROOT, start_in
from benchmarks.harness.launchers import LOG_DIR
from benchmarks.harness.procfs import tagged

STOP_GRACE_S = 10.0
STEP_S = 0.01
_JOB = str(ROOT / "benchmarks" / "jobs" / "hostile.py")
_TAG = "HOSTILE_TAG"
_SESSION_S = 120.0
_FOLDER_BACK_S = 15.0
_GONE_S = 8.0
_PAUSE_S = 0.005


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How one session ended. ``stop_took_s``: from the first signal, None without one.

    ``folder_gone``: the checkpoints were away when it started. ``orphans`` lived after it.
    """

    end: End
    exit_code: int
    stop_took_s: float | None
    orphans: int
    folder_gone: bool = False
    overdue: str = ""


@dataclass(slots=True)
class Told:
    """Everything that was seen of a history: what ``hostile_judge`` judges."""

    history: History
    folder: Path
    shelf: Shelf
    ended: list[Ended] = field(default_factory=list)
    blows: list[tuple[float, int, int]] = field(default_factory=list)
    """(when, life, rank) of each SIGKILL of a rank or of the shell around it."""

    def ledger(self) -> list[dict[str, Any]]:
        """The notes of all ranks in the order of their clocks; each names its rank."""
        notes: list[dict[str, Any]] = []
        for path in self.folder.glob("ledger_*.jsonl"):
            rank = int(path.stem.rpartition("_")[2])
            notes += [{**line, "rank": rank} for line in journal.lines_of(path)]
        return sorted(notes, key=lambda note: note["at_s"])


def run(history: History, folder: Path) -> Told:
    """Live through the whole history."""
    told = Told(history, folder, Shelf(folder / "ckpt"))
    _write_wrapper(folder, history)
    for number, session in enumerate(history.sessions):
        told.shelf.do(session.deeds_between)
        gone = session.folder_gone and _save_known(told)
        if gone:
            told.shelf.take_away()
            told.ended.append(_without_its_folder(told, number))
            told.shelf.bring_back()
        told.ended.append(_Live(told, session, number).through())
        if told.ended[-1].overdue or told.ended[-1].exit_code == 0:
            break  # a start after a good end would be another run
    return told


def _save_known(told: Told) -> bool:
    """Whether the run knows of a save; one of the tenth of a second before a SIGKILL it may not know."""
    lines = journal.read(told.folder)
    seen = any(line["event"] in ("SaveSeen", "GaspSaved") or line.get("point") for line in lines)
    return seen and told.shelf.folder.exists()


def _without_its_folder(told: Told, number: int) -> Ended:
    """Started while its checkpoints are away: it may wait or end, and must not begin anew."""
    process = _start(told, number)
    with suppress(subprocess.TimeoutExpired):
        process.wait(_FOLDER_BACK_S)
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
    return _end(told, process, End.FINISH, None, folder_gone=True)


class _Live:
    """One session from its start to its end."""

    def __init__(self, told: Told, session: Session, number: int) -> None:
        self._told, self._session = told, session
        self._process = _start(told, number)
        self._began_s = time.monotonic()

    def through(self) -> Ended:
        """Strike and end it as planned; what does not come in time is told as overdue."""
        for strike in self._session.strikes:
            if not self._reached(strike.after):
                return self._overdue("no progress before a strike")
            self._told.shelf.do(strike.deeds)
            self._strike(strike.blow, strike.rank)
        if self._session.end is End.FINISH:
            return _end(self._told, self._process, End.FINISH, None)
        if not self._reached(self._session.end_after):
            return self._overdue("no progress before the end")
        stopped_s = time.monotonic()
        self._stop()
        taken_s = None if self._session.end is End.KILL else stopped_s
        return _end(self._told, self._process, self._session.end, taken_s)

    def _overdue(self, why: str) -> Ended:
        if self._process.poll() is None:
            self._process.kill()
        return _end(self._told, self._process, self._session.end, None, overdue=why)

    def _reached(self, further: int) -> bool:
        """Wait until the ranks are so many steps further than anybody was, or it is over."""
        far = self._step() + further
        return self._wait(lambda: self._step() >= far or self._process.poll() is not None)

    def _step(self) -> int:
        return max((note["step"] for note in self._told.ledger() if note["what"] == "step"), default=0)

    def _wait(self, reached: Callable[[], bool]) -> bool:
        deadline_s = time.monotonic() + _SESSION_S
        while not reached():
            if time.monotonic() > deadline_s:
                return False
            time.sleep(_PAUSE_S)
        return True

    def _strike(self, blow: Blow, rank: int) -> None:
        """SIGKILL; nothing when the training has ended meanwhile."""
        begun = [note for note in self._told.ledger() if note["what"] == "begin" and note["rank"] == rank]
        if not begun or self._process.poll() is not None:
            return
        life, pid = int(begun[-1]["life"]), int(begun[-1]["pid"])
        if blow is Blow.WRAPPER:
            lines = journal.read(self._told.folder)
            started = [line for line in journal.of(lines, "WorkerStarted") if line["rank"] == rank]
            pid = int(started[-1]["pid"])
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
            self._told.blows.append((time.monotonic(), life, rank))

    def _stop(self) -> None:
        with suppress(ProcessLookupError):
            match self._session.end:
                case End.KILL:
                    self._process.kill()
                case End.PRESTOP:
                    self._prestop()
                case _:
                    self._process.send_signal(signal.SIGTERM)
                    if self._session.end is End.TERM_TWICE:
                        time.sleep(0.02)
                        self._process.send_signal(signal.SIGTERM)
                    elif self._session.end is End.TERM_HUP:
                        self._process.send_signal(signal.SIGHUP)

    def _prestop(self) -> None:
        """The hook, and the SIGTERM that a kubelet sends once it has returned."""
        start_in(self._told.folder, (sys.executable, "-m", "faultrun", "prestop")).wait(_SESSION_S)
        self._process.send_signal(signal.SIGTERM)


def _start(told: Told, number: int) -> "subprocess.Popen[bytes]":
    history, folder = told.history, told.folder
    script = ("bash", "train.sh") if history.wrapped else (sys.executable, _JOB, *_job_options(history))
    options = (
        *("--framework=plain", f"--worker_num={history.workers}", "--checkpoint_dir=ckpt"),
        *("--backoff=10ms..20ms", "--max_restarts=20", f"--log_dir={LOG_DIR}"),
        *(f"--stop_grace={STOP_GRACE_S:g}s", "--grace=10s"),
    )
    slurm: dict[str, str] = {}
    if history.requeued:
        slurm = {"SLURM_JOB_ID": "4711", "SLURM_RESTART_COUNT": str(number)}
        slurm["SLURM_JOB_END_TIME"] = str(int(time.time()) + 3600)
    command = (sys.executable, "-m", "faultrun", *options, *script)
    return start_in(folder, command, **slurm, **{_TAG: folder.name})


def _job_options(history: History) -> tuple[str, ...]:
    far = sum(strike.after for session in history.sessions for strike in session.strikes)
    far += sum(session.end_after for session in history.sessions)
    return (
        f"--guard={history.guard}",
        f"--save_every={history.save_every}",
        f"--steps={far + 20}",
        f"--step_s={STEP_S}",
    )


def _write_wrapper(folder: Path, history: History) -> None:
    """A shell that stays: it waits for its child and passes nothing on, as most people's do."""
    words = " ".join((sys.executable, _JOB, *_job_options(history)))
    (folder / "train.sh").write_text(f"#!/bin/bash\n{words}\nstatus=$?\nexit $status\n", encoding="utf-8")


def _end(
    told: Told,
    process: "subprocess.Popen[bytes]",
    end: End,
    stopped_s: float | None,
    *,
    folder_gone: bool = False,
    overdue: str = "",
) -> Ended:
    """Wait for the supervisor, and count what outlives it; whatever is left is killed: it is ours."""
    try:
        code = process.wait(_SESSION_S)
    except subprocess.TimeoutExpired:
        process.kill()
        code, overdue = process.wait(), overdue or "the supervisor did not end"
    took_s = None if stopped_s is None else time.monotonic() - stopped_s
    left = _gone(told)
    for pid in left:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return Ended(
        end=end,
        exit_code=code if code >= 0 else 128 - code,
        stop_took_s=took_s,
        orphans=len(left),
        folder_gone=folder_gone,
        overdue=overdue,
    )


def _gone(told: Told) -> set[int]:
    """Processes of this history that are there although they had time to go."""
    deadline_s = time.monotonic() + _GONE_S
    while (left := tagged(_TAG, told.folder.name)) and time.monotonic() < deadline_s:
        time.sleep(_PAUSE_S * 4)
    return left


def report_of(folder: Path) -> dict[str, Any]:
    """``report.json``, as the run wrote it at its end; empty when it did not."""
    path = folder / LOG_DIR / "report.json"
    found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    return found
