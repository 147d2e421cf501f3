"""Runs an example under a launcher and reads what its workers print."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.lightly import lightly
from support.machine.processes import watched

FAULTRUN = (sys.executable, "-m", "faultrun")
TORCHRUN = (sys.executable, "-m", "torch.distributed.run")

_STEP = re.compile(r"^rank \d+ epoch \d+ step (\d+) loss (\S+)$", re.MULTILINE)
_RESUMED = re.compile(r"^rank \d+ resumed from (.+) at step (\d+)$", re.MULTILINE)
_FINAL = re.compile(r"^final step \d+ accuracy \S+ on \d+ digits, weights [0-9a-f]{8}$", re.MULTILINE)
_LOOK_AGAIN_MS = 50
_LIGHT = {
    # `auto` would begin to import frameworks once more after 20 s, in the middle of a test on a slow machine.
    "FAULTRUN_STANDBY": os.environ.get("FAULTRUN_STANDBY", "none"),
    **lightly(),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """What one worker printed in one incarnation."""

    text: str

    @property
    def losses(self) -> dict[int, str]:
        """Loss by global step, as printed. No step may come twice."""
        lines = _STEP.findall(self.text)
        losses = {int(step): loss for step, loss in lines}
        assert len(losses) == len(lines), "a step was counted twice"
        return losses

    @property
    def resumed(self) -> tuple[str, int]:
        """Path of the checkpoint and its step."""
        ((path, step),) = _RESUMED.findall(self.text)
        return path, int(step)

    @property
    def final(self) -> str:
        """The line that two runs can be compared by."""
        (line,) = _FINAL.findall(self.text)
        return str(line)


def finals(text: str) -> list[str]:
    """The line in which a rank that may have been replaced says what it ended with."""
    found = re.findall(r"rank \d final step .*", text)
    assert len(found) == 1
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A run of faultrun: its supervisor's process and what lies in its log_dir."""

    supervisor: int
    log_dir: Path

    @property
    def console(self) -> str:
        """What faultrun has told so far; nothing when it runs in the background."""
        path = self.log_dir.with_name("console.txt")
        return path.read_text(encoding="utf-8") if path.exists() else ""

    def output(self, incarnation: int, rank: int = 0) -> Output:
        """What ``rank`` has printed so far."""
        path = self.log_dir / f"incarnation_{incarnation}" / f"worker_{rank}.log"
        return Output(text=path.read_text(encoding="utf-8", errors="replace") if path.exists() else "")

    def step(self, incarnation: int, rank: int = 0) -> int:
        """The last step that ``rank`` has printed; 0 before the first."""
        return max(self.output(incarnation, rank).losses, default=0)

    def journal(self, event: str) -> list[dict[str, Any]]:
        """The lines of this kind of event, oldest first."""
        path = self.log_dir / "journal.jsonl"
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        whole = (line for line in text.splitlines(keepends=True) if line.endswith("\n"))
        return [entry for entry in map(json.loads, whole) if entry["event"] == event]

    def kill(self, rank: int) -> None:
        """SIGKILL to the newest process of ``rank``."""
        started = [entry for entry in self.journal("WorkerStarted") if entry["rank"] == rank]
        os.kill(started[-1]["pid"], signal.SIGKILL)

    def wait_until(self, reached: Callable[[], bool], *, within_s: float) -> None:
        """Return once ``reached``; fail when the supervisor ends before, or the time is over."""
        deadline = time.monotonic() + within_s
        with watched(self.supervisor) as ended:
            while not reached():
                assert time.monotonic() < deadline, f"not reached within {within_s} s: {self.console}"
                assert not ended.poll(_LOOK_AGAIN_MS) or reached(), f"the run ended: {self.console}"

    def wait_for_the_end(self, *, within_s: float) -> int:
        """Exit code of the run, from the journal, once the supervisor is gone."""
        with watched(self.supervisor) as ended:
            assert ended.poll(within_s * 1000), f"not at its end within {within_s} s: {self.console}"
        return int(self.journal("RunFinished")[-1]["exit_code"])


@contextmanager
def launched(*command: str | Path, cwd: Path) -> Iterator[Run]:
    """Start faultrun in ``cwd`` with its default log_dir; it is gone at the end of the block."""
    with (cwd / "console.txt").open("wb") as console:
        process = subprocess.Popen(
            [*map(str, command)],
            cwd=cwd,
            env={**os.environ, **_LIGHT},
            stdout=console,
            stderr=subprocess.STDOUT,
        )
    try:
        yield Run(supervisor=process.pid, log_dir=cwd / "faultrun_log")
    finally:
        process.terminate()
        try:
            process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextmanager
def in_background(*command: str | Path, cwd: Path, log_dir: str) -> Iterator[Run]:
    """Start faultrun with ``--join=False``; the supervisor it leaves behind ends with the block."""
    run_to_the_end(*command, cwd=cwd, within_s=60)
    pid = json.loads((cwd / log_dir / "run.json").read_text(encoding="utf-8"))["pid"]
    try:
        yield Run(supervisor=pid, log_dir=cwd / log_dir)
    finally:
        with watched(pid) as ended:
            if not ended.poll(0):
                os.kill(pid, signal.SIGTERM)
                assert ended.poll(60_000), f"supervisor {pid} outlives SIGTERM"


def run_to_the_end(*command: str | Path, cwd: Path, within_s: float) -> str:
    """Run the command, whose exit code must be 0; return what it printed on the console."""
    ended = subprocess.run(
        [*map(str, command)],
        cwd=cwd,
        env={**os.environ, **_LIGHT},
        timeout=within_s,
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert ended.returncode == 0, ended.stdout
    return ended.stdout
