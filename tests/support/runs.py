"""The real program with real workers, and everything a test asks of it: events, logs, pids, its end."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from support.lightly import lightly
from support.machine.processes import PATIENCE_S, end_all, let_go, stand_still, wait_until, watched

FAULTRUN = (sys.executable, "-m", "faultrun")
LIGHT_PYTHON = (sys.executable, "-S", "-E")
READY = "ready"

PRELUDE = f"""
import os, signal, sys
rank, life = int(os.environ["RANK"]), int(os.environ["FAULTRUN_INCARNATION"])
def say(*words):
    print(*words, flush=True)
def train():
    "Until somebody ends it."
    say("{READY}")
    while True:
        signal.pause()
def train_in_the_first_life():
    if life == 0:
        train()
"""
"""What every worker of these tests begins with."""

HELD_SAVE = """
def held_save(*_):
    "A save that ends when the test says so."
    say("saving")
    open(f"let_go_{rank}").read()
    say("saved")
    sys.exit(143)
"""

ESCAPES = """
def escape():
    "A grandchild in a session of its own, two forks away."
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            with open(f"escaped_{rank}_{life}", "w") as file:
                file.write(str(os.getpid()))
            while True:
                signal.pause()
        os._exit(0)
    os.wait()
    while not (os.path.exists(f"escaped_{rank}_{life}") and open(f"escaped_{rank}_{life}").read()):
        pass
def still_there(pid):
    try:
        return open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False
"""
"""A worker's ``escape()``, and a way to ask whether it worked."""


_STAND_IN = """
import os, signal
def init():
    print("stand-in scheduler", os.environ["MS_ROLE"], flush=True)
    while True:
        signal.pause()
"""


@dataclass(slots=True)
class Run:
    """One supervisor and its log_dir. ``pid`` is the supervisor's."""

    pid: int
    log_dir: Path
    console: Path
    process: "subprocess.Popen[bytes] | None" = None
    _lines: list[dict[str, Any]] = field(default_factory=list, repr=False)
    _read: tuple[int, int] = field(default=(0, 0), repr=False)
    """The journal's inode, and how much of it ``_lines`` are: whoever waits asks hundreds of times."""

    def events(self, name: str = "", **fields: object) -> list[dict[str, Any]]:
        """The journal's whole lines, oldest first, with this name and these fields."""
        self._read_on()
        return [
            line
            for line in self._lines
            if name in ("", line["event"]) and all(line.get(key) == value for key, value in fields.items())
        ]

    def _read_on(self) -> None:
        path = self.log_dir / "journal.jsonl"
        if not path.exists():
            self._lines, self._read = [], (0, 0)
            return
        with path.open("rb") as journal:
            stat = os.fstat(journal.fileno())
            inode, size = self._read
            if inode != stat.st_ino or stat.st_size < size:
                self._lines, size = [], 0
            journal.seek(size)
            whole, newline, _ = journal.read().rpartition(b"\n")
        self._lines += map(json.loads, whole.splitlines() if newline else ())
        self._read = stat.st_ino, size + len(whole + newline)

    def event(self, name: str, **fields: object) -> dict[str, Any]:
        """Wait for such an event; the newest if there are several."""

        def newest() -> dict[str, Any] | None:
            found = self.events(name, **fields)
            return found[-1] if found else None

        return wait_until(newest, while_runs=self.pid, what=f"{name} {fields}")

    def log(self, rank: int, incarnation: int = 0) -> str:
        """What ``rank`` has printed so far."""
        path = self.log_dir / f"incarnation_{incarnation}" / f"worker_{rank}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def said(self, rank: int, text: str, incarnation: int = 0) -> None:
        """Wait until ``rank`` has printed ``text``."""
        wait_until(
            lambda: f"{text}\n" in self.log(rank, incarnation),
            while_runs=self.pid,
            what=f"{text!r} in the log of rank {rank}, incarnation {incarnation}",
        )

    def trains(self, ranks: Sequence[int], incarnation: int = 0) -> "Run":
        """Wait until each of ``ranks`` is in its main loop and the journal knows of all that was started."""
        for rank in ranks:
            self.said(rank, READY, incarnation)
            self.event("WorkerStarted", rank=rank, incarnation=incarnation)
        self.event("IncarnationStarted", incarnation=incarnation)
        return self

    def worker(self, rank: int) -> int:
        """Pid of the newest process of ``rank``."""
        return int(self.events("WorkerStarted", rank=rank)[-1]["pid"])

    def kill(self, *ranks: int, signum: int = signal.SIGKILL) -> None:
        """Send ``signum`` to these workers, to several while the supervisor stands still."""
        pids = [self.worker(rank) for rank in ranks]
        with self._standing_still() if len(pids) > 1 else nullcontext():
            for pid in pids:
                os.kill(pid, signum)

    @contextmanager
    def _standing_still(self) -> Iterator[None]:
        try:
            stand_still(self.pid)
            yield
        finally:
            os.kill(self.pid, signal.SIGCONT)

    def signal(self, signum: int) -> None:
        """Send ``signum`` to the supervisor."""
        os.kill(self.pid, signum)

    def kill_supervisor(self) -> None:
        """SIGKILL to the supervisor; returns once it is gone."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def ends(self, within_s: float = PATIENCE_S) -> int:
        """Wait for the supervisor's end; its exit code (128+n for signal n)."""
        if self.process is None:
            with watched(self.pid) as ended:
                assert ended.poll(within_s * 1000), f"no end within {within_s} s"
            return int(self.events("RunFinished")[-1]["exit_code"])
        try:
            code = self.process.wait(within_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"no end within {within_s} s; the console says:\n{self.text}") from None
        return code if code >= 0 else 128 - code

    @property
    def text(self) -> str:
        """What the supervisor has told people so far."""
        return self.console.read_text(errors="replace")

    def card(self, number: int) -> str:
        """The first-failure card."""
        return (self.log_dir / f"incident_{number}.txt").read_text()

    def judgement(self, number: int) -> dict[str, Any]:
        """The incident as the card's JSON has it."""
        card = json.loads((self.log_dir / f"incident_{number}.json").read_text())
        incident: dict[str, Any] = card["incident"]
        return incident


@dataclass(slots=True)
class Launcher:
    """Starts runs in ``folder``; whatever they start carries ``mark`` in its environment."""

    folder: Path
    mark: str = field(default_factory=lambda: f"TEST_MARK={os.urandom(8).hex()}")
    faultrun: tuple[str, ...] = FAULTRUN
    started: list[Run] = field(default_factory=list)

    def program(self, code: str, name: str = "worker.py") -> tuple[str, ...]:
        """The command of a worker that runs ``code`` behind the prelude."""
        path = self.folder / name
        path.write_text(PRELUDE + code)
        return (*LIGHT_PYTHON, str(path))

    def run(self, code: str, *options: str, workers: int = 2) -> Run:
        """Start workers that run ``code``."""
        return self.command(f"--worker_num={workers}", *options, *self.program(code))

    def command(self, *words: str, environ: Mapping[str, str] | None = None) -> Run:
        """Start ``faultrun --framework=plain WORDS`` with the default log_dir."""
        console = self.folder / f"console_{len(self.started)}.txt"
        with console.open("wb") as output:
            process = self.start(words, environ or {}, output.fileno(), output.fileno())
        run = Run(process.pid, self.folder / "faultrun_log", console, process)
        self.started.append(run)
        return run

    def start(
        self, words: Sequence[str], environ: Mapping[str, str], stdout: int, stderr: int
    ) -> "subprocess.Popen[bytes]":
        """The bare process."""
        name, _, value = self.mark.partition("=")
        plain = () if any(word.startswith("--framework") for word in words) else ("--framework=plain",)
        light = {} if plain else lightly()
        return subprocess.Popen(
            [*self.faultrun, *plain, *words],
            cwd=self.folder,
            # Half a second of Python for each of hundreds of runs; `test_outlets` asks for its report.
            env={"FAULTRUN_REPORT": "False", **os.environ, **light, name: value, **environ},
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
        )

    def holds_saves(self, *ranks: int) -> None:
        """A pipe for the save of each of ``ranks`` to wait for, as ``HELD_SAVE`` does."""
        for rank in ranks:
            os.mkfifo(self.folder / f"let_go_{rank}")

    def lets_go(self, *ranks: int) -> None:
        """End the wait of saves that have begun, or soon will."""
        for rank in ranks:
            let_go(self.folder / f"let_go_{rank}")

    def close(self) -> list[int]:
        """End whatever is left; return what was still alive although its supervisor had ended."""
        for run in self.started:
            if run.process is not None and run.process.poll() is None:
                run.process.kill()
            if run.process is not None:
                run.process.wait()
        return end_all(self.mark, within_s=30)


def stand_in_scheduler(folder: Path) -> None:
    """A package that MindSpore's scheduler, one line of Python, finds in its working directory."""
    package = folder / "mindspore"
    package.mkdir()
    (package / "__init__.py").write_text("def set_device(name): pass\n")
    (package / "communication.py").write_text(_STAND_IN)
