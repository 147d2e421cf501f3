"""A run that is rehearsed: its process, its journal, its logs and its saves, looked at together."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from faultrun.journal.append import FILE_NAME
from faultrun.journal.lines import JournalFollower, JournalLine, moment
from faultrun.model.checkpoint import RecoveryPoint
from faultrun.model.events import Drained, FirstStep, Heartbeat, PlanAdopted, Timer, TimerFired, WorkerExit
from faultrun.model.observed.hang import PauseOver
from faultrun.model.observed.recovery import FirstStepLogged, ResumeChecked
from faultrun.model.run import Phase
from faultrun.observe.run_view import RunView
from faultrun.rehearse.log_progress import LogsSeen
from faultrun.rehearse.observed_saves import RehearsedSaves
from faultrun.workers.process import die_with

_LOOK_S, _SAVES_LOOK_S = 0.05, 0.15


@dataclass(slots=True)
class LifeSeen:
    """One incarnation. ``trains_at`` is the wall clock (seconds of Unix) at its first step.

    ``reached`` is the furthest global step by any source, ``first`` the first; None: unknown.
    """

    number: int
    point: RecoveryPoint | None
    trains_at: float | None = None
    first: int | None = None
    reached: int | None = None
    checked: ResumeChecked | None = None


class WatchedRun:
    """``command`` is what a person would type; ``start`` may be called again once the process has ended.

    ``silent_s`` is the longest time between two signs of life of a training. ``hang_over_at`` is when a
    warning of a hang was last taken back, ``cut_at`` when a window last ran out with a rank left (Unix).
    ``failed_first`` has the rank that was the first of its life to fail, by the life's number.
    """

    def __init__(
        self, command: Sequence[str], log_dir: Path, *, logs: LogsSeen, saves: RehearsedSaves
    ) -> None:
        self.command = tuple(command)
        self.log_dir = log_dir
        self.view = RunView()
        self.logs = logs
        self.saves = saves
        self.lives: dict[int, LifeSeen] = {}
        self.failed_first: dict[int, int] = {}
        self.hang_over_at = self.cut_at = 0.0
        self._sign_s = time.monotonic()
        self.silent_s = 0.0
        self._follower = JournalFollower(log_dir / FILE_NAME)
        self._process: subprocess.Popen[bytes] | None = None
        self._saves_looked_s = 0.0
        self._read_life = 0

    @property
    def life(self) -> LifeSeen | None:
        """The present incarnation; None before the first."""
        return self.lives.get(self.view.incarnation)

    @property
    def exit_code(self) -> int | None:
        """The supervisor's; None while it runs."""
        return None if self._process is None else self._process.poll()

    @property
    def trains(self) -> bool:
        """Whether the present incarnation has done a step, as far as any rank tells."""
        return self.life is not None and self.life.trains_at is not None and self.exit_code is None

    def start(self) -> None:
        """Type the command. What it says goes to ``console.txt`` beside the log_dir."""
        with self.log_dir.with_name(f"{self.log_dir.name}_console.txt").open("ab") as console:
            self._process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=console,
                start_new_session=True,
                preexec_fn=partial(die_with, os.getpid()),  # noqa: PLW1509  there is no other thread here
            )
        self._sign_s = time.monotonic()

    def signal(self, signum: int) -> None:
        """Send ``signum`` to the supervisor."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signum)

    def pid(self, rank: int) -> int | None:
        """The process of ``rank`` in the present incarnation, if it has not ended."""
        worker = self.view.workers.get(rank)
        return worker.pid if worker is not None and worker.end is None else None

    def signal_rank(self, rank: int, signum: int) -> bool:
        """Send ``signum`` to a rank; whether it was there."""
        if (pid := self.pid(rank)) is None:
            return False
        with suppress(ProcessLookupError):
            os.kill(pid, signum)
            return True
        return False

    def wait(self, until: Callable[[], bool], until_s: float) -> bool:
        """Look until ``until`` holds; False at ``until_s`` of the monotonic clock."""
        while True:
            self.look()
            if until():
                return True
            if time.monotonic() >= until_s:
                return False
            time.sleep(_LOOK_S)

    def look(self) -> None:
        """Read what is new."""
        now_s = time.monotonic()
        for line in self._follower.new_lines():
            self.view.take(line)
            self._heard(line)
        grown = self._look_at_life()
        if now_s - self._saves_looked_s >= _SAVES_LOOK_S:
            self._saves_looked_s = now_s
            grown |= self.saves.look(now_s)
        if grown:
            if self.trains:
                self.silent_s = max(self.silent_s, now_s - self._sign_s)
            self._sign_s = now_s

    def reached_before(self, life: int) -> int | None:
        """The furthest step of the lives before ``life``."""
        known = [one.reached for one in self.lives.values() if one.number < life and one.reached is not None]
        return max(known, default=None)

    def kill(self) -> None:
        """End it as hard as it can be ended; its workers die with it."""
        self.signal(signal.SIGKILL)
        if self._process is not None:
            self._process.wait()

    def _look_at_life(self) -> bool:
        """Whether its logs or its steps have grown."""
        if (life := self.view.incarnation) < 0:
            return False
        while self._read_life < life:  # its last lines came after the last look, or it was a short life
            if not self.logs.look(self._read_life):
                self._reaches(self._read_life, self.logs.step(self._read_life))
                self._read_life += 1
        grown = self.logs.look(life)
        further = self._reaches(life, self.logs.step(life) if grown else None)
        page = self.view.progress(self.log_dir)
        further |= self._reaches(life, max((one.step for one in page if one is not None), default=None))
        return grown or further

    def _reaches(self, number: int, step: int | None) -> bool:
        life = self.lives.get(number)
        if life is None or step is None or step < 0 or (life.reached is not None and step <= life.reached):
            return False
        life.reached = step
        return True

    def _heard(self, line: JournalLine) -> None:
        found = moment(line.at_utc)
        at = 0.0 if found is None else found.timestamp()
        match line.event:
            case PlanAdopted(plan=plan):
                self.lives[plan.incarnation] = LifeSeen(number=plan.incarnation, point=plan.point)
            case FirstStep(step=step, began=began):
                self._begins(line.incarnation, at, step if began is None else began)
                self._reaches(line.incarnation, step)
            case FirstStepLogged(step=step):
                self._begins(line.incarnation, at, step)
                self._reaches(line.incarnation, step)
            case ResumeChecked() if line.incarnation in self.lives:
                self.lives[line.incarnation].checked = line.event
            case WorkerExit(rank=rank, clean=False):
                self.failed_first.setdefault(line.incarnation, rank)
            case Heartbeat(steps=steps):
                self._reaches(line.incarnation, max((one.step for one in steps), default=None))
            case Drained(notes=notes):
                logged = (note.logged_step for note in notes)
                newest = max((step for step in logged if step is not None), default=None)
                self._reaches(line.incarnation, newest)
            case PauseOver():
                self.hang_over_at = at
            case TimerFired(timer=Timer.GRACE) if line.phase is Phase.KILLING:
                self.cut_at = at

    def _begins(self, number: int, at: float, step: int | None) -> None:
        if (life := self.lives.get(number)) is not None and life.trains_at is None:
            life.trains_at, life.first = at, step
