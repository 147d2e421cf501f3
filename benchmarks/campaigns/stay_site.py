"""One training whose survivors stay, under the real program: started, watched, disturbed, ended."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.campaigns.stay_judge import Line, Truth, parse, truth_of
from benchmarks.campaigns.stay_plan import RANKS, Session
from benchmarks.harness.launched import clean_environ
from benchmarks.harness.launchers import free_port
from benchmarks.harness.procfs import tagged
from benchmarks.jobs.stay_board import Board, Place

ROOT = Path(__file__).resolve().parents[2]
JOB = str(ROOT / "benchmarks" / "jobs" / "stay_torch.py")
REJOIN_S, GRACE_S = 30, 10
TAG = "BENCH_TAG"
_UNDISTURBED_S = 900.0
_NOBODY = 1 << 40
_OPTIONS = (
    *("--framework=torch", f"--worker_num={RANKS}", f"--standby={RANKS}", "--max_restarts=1000"),
    *("--backoff=10ms..20ms", f"--rejoin_timeout={REJOIN_S}s", f"--grace={GRACE_S}s", "--report=False"),
    *("--checkpoint_dir=ck", "--log_dir=log"),
)


def undisturbed(mode: str, steps: int, folder: Path) -> list[Truth]:
    """What each rank writes in a training without a launcher and without a death."""
    folder.mkdir(parents=True)
    (folder / "ck").mkdir()
    Board(folder / "board", RANKS).limit = _NOBODY
    meet = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": str(RANKS)}
    ranks = [
        subprocess.Popen(
            [sys.executable, JOB, mode, str(steps), str(folder)],
            env={**clean_environ(), **meet, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            cwd=folder,
        )
        for rank in range(RANKS)
    ]
    try:
        if any(rank.wait(_UNDISTURBED_S) for rank in ranks):
            raise SystemExit(f"the undisturbed {mode} training failed")
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    return [truth_of(parse((folder / f"steps_{rank}").read_text())) for rank in range(RANKS)]


class Site:
    """The folder of one session, and the processes in it. ``more``: options of faultrun behind the usual."""

    def __init__(self, session: Session, folder: Path, *more: str) -> None:
        self.session = session
        self.folder = folder
        (folder / "ck").mkdir(parents=True)
        self.board = Board(folder / "board", RANKS)
        self.board.limit = 0
        self._tag = os.urandom(8).hex()
        self._read_bytes: dict[str, int] = {}
        self._lines: dict[int, list[Line]] = {rank: [] for rank in range(RANKS)}
        self._journal: list[dict[str, Any]] = []
        self._more = more
        self.process = self.launch()

    def launch(self) -> "subprocess.Popen[bytes]":
        """The supervisor, once more when it was killed."""
        with (self.folder / "console.txt").open("ab") as console:
            return subprocess.Popen(
                [
                    *(sys.executable, "-m", "faultrun", *_OPTIONS, *self._more, JOB),
                    *(self.session.mode, str(self.session.steps), str(self.folder)),
                ],
                cwd=self.folder,
                env={**clean_environ(), "PYTHONPATH": f"{ROOT}:{ROOT}/launcher", TAG: self._tag},
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def wait(self, reached: Callable[[], bool], within_s: float, every_s: float = 0.005) -> bool:
        """Whether it came to that in time, and before the run ended."""
        until_s = time.monotonic() + within_s
        while not reached():
            if time.monotonic() > until_s or self.process.poll() is not None:
                return reached()
            time.sleep(every_s)
        return True

    def lines(self) -> list[list[Line]]:
        """What each rank has written so far."""
        for rank in range(RANKS):
            self._lines[rank] += parse(self._fresh(f"steps_{rank}"))
        return [self._lines[rank] for rank in range(RANKS)]

    def journal(self, event: str, **fields: object) -> list[dict[str, Any]]:
        """The journal's lines of that event so far."""
        self._journal += [json.loads(line) for line in self._fresh("log/journal.jsonl").splitlines()]
        return [
            line
            for line in self._journal
            if line["event"] == event and all(line.get(key) == value for key, value in fields.items())
        ]

    def worker(self, rank: int) -> int:
        """The process that has this rank now."""
        return self.board.seen(rank)[0]

    def parked(self, rank: int) -> int | None:
        """The process that waits for its place; None while there is none."""
        said = self.journal("StandbyChanged", rank=rank)
        if not said or said[-1]["state"] != "parked":
            return None
        path = self.folder / f"births_{rank}"
        pids = [int(line.split()[1]) for line in path.read_text().splitlines()] if path.exists() else []
        waiting = [pid for pid in pids if pid != self.worker(rank) and lives(pid)]
        return waiting[-1] if waiting else None

    def waits_at(self, limit: int) -> bool:
        """Whether all living ranks stand before the step behind ``limit``."""
        seen = [self.board.seen(rank) for rank in range(RANKS)]
        return all(lives(pid) and (step, place) == (limit + 1, Place.LOADER) for pid, step, place in seen)

    def stands_at(self, limit: int) -> bool:
        """Whether a living rank does."""
        seen = [self.board.seen(rank) for rank in range(RANKS)]
        return any(lives(pid) and (step, place) == (limit + 1, Place.LOADER) for pid, step, place in seen)

    def can_all_rejoin(self) -> bool:
        """Whether the journal has heard all ranks say so in the newest incarnation."""
        plans = self.journal("PlanAdopted")
        if not plans:
            return False
        newest = plans[-1]["incarnation"]
        return {line["rank"] for line in self.journal("RankCanRejoin", incarnation=newest)} == {*range(RANKS)}

    @property
    def console(self) -> str:
        """What faultrun said."""
        return (self.folder / "console.txt").read_text(errors="replace")

    def left(self) -> set[int]:
        """Processes of this run that live."""
        return tagged(TAG, self._tag)

    def close(self) -> None:
        """Leave nothing behind."""
        self.process.kill()
        self.process.wait()
        for _ in range(50):
            pids = self.left()
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            if not pids:
                return
            time.sleep(0.1)

    def _fresh(self, name: str) -> str:
        """Whole lines that are new."""
        path, done = self.folder / name, self._read_bytes.get(name, 0)
        if not path.exists():
            return ""
        with path.open("rb") as file:
            file.seek(done)
            data = file.read()
        whole = data[: data.rfind(b"\n") + 1]
        self._read_bytes[name] = done + len(whole)
        return whole.decode()


def lives(pid: int) -> bool:
    """Whether it runs, or could: not a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False
