"""What `make demo` shows: four MindSpore workers train, two are killed one after the other, the run finishes.

The first is killed when standbys are ready, so that the restart is a warm one; the second right after it,
before there are others, so that it is a cold one. Where a machine has no time for standbys it says so.

Everything is real: the data, the training, `kill -9`. The example runs as it stands, on a copy of its config
in a scratch folder. At the end each promise is checked: the exit code is 0 only if all were kept.
"""

import difflib
import importlib.util
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

EXAMPLE = Path(__file__).resolve().parent / "01_mindspore_lenet"
WORKERS = 4
VICTIMS = (2, 0)  # any rank may die, 0 as well
EPOCHS = 7
LAST_STEP = EPOCHS * 22
SAVE_EVERY = 5
STEP_DELAY_S = 0.3  # as if each step had more to compute; the processors are as idle as with an accelerator
UNDER_WAY_WITHIN_S = 150.0  # usually 15, 15, 10 and 35
READY_WITHIN_S = 45.0
AGAIN_WITHIN_S = 90.0
FINISHED_WITHIN_S = 150.0
LATEST_KILL = LAST_STEP - 40
LEAST_ACCURACY = 0.9  # one guess in ten is right by chance

STEP = re.compile(r"^rank \d+ epoch (\d+) step (\d+) loss (\S+)$", re.MULTILINE)
RESUMED = re.compile(r"^rank \d+ resumed from (.+) at step (\d+)$", re.MULTILINE)
FINAL = re.compile(r"^final step (\d+) accuracy (\S+) on (\d+) digits", re.MULTILINE)
AT_ITS_END = re.compile(rf"killed by SIG(SEGV|ABRT) at step {LAST_STEP}\b")
"""MindSpore's message thread may crash while the process ends: no fault of the run, and it gets over it."""


class NotAsPromised(Exception):
    """The run did not go as this page says."""


@dataclass(frozen=True, kw_only=True)
class Restart:
    """What one kill cost. ``standbys``: how many of the new workers had been waiting."""

    standbys: int
    killed_at: int
    resumed_at: int
    pause_s: float

    @property
    def row(self) -> str:
        """Under the head of ``sum_up``."""
        some = f"{self.standbys} of {WORKERS} warm"
        name = {WORKERS: "warm: standbys", 0: "cold: none"}.get(self.standbys, some)
        steps = (
            f"step {self.killed_at:>4}    step {self.resumed_at:>4}   {self.killed_at - self.resumed_at:>10}"
        )
        return f"  {name:<15}  {steps}   {self.pause_s:>18.1f} s"


class Demo:
    """One run of faultrun in a scratch folder, and the story told about it."""

    def __init__(self, work: Path) -> None:
        self.work = work
        self.log_dir = work / "faultrun_log"
        self._started = time.monotonic()
        self._shown_step = 0

    def shortened(self, text: str) -> str:
        """Paths as they are seen from the scratch folder."""
        return text.replace(f"{self.work}/", "")

    def tell(self, line: str) -> None:
        print(f"{time.monotonic() - self._started:6.1f} s  {line}\n", end="", flush=True)

    @property
    def last_incarnation(self) -> int:
        return max(
            (int(path.name.partition("_")[2]) for path in self.log_dir.glob("incarnation_*")), default=0
        )

    def worker_log(self, incarnation: int, rank: int = 0) -> str:
        """What a worker has printed so far; nothing before it has started."""
        path = self.log_dir / f"incarnation_{incarnation}" / f"worker_{rank}.log"
        return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""

    def step(self, incarnation: int, rank: int = 0) -> int:
        """The last step that a worker finished in this incarnation; 0 before the first."""
        steps = STEP.findall(self.worker_log(incarnation, rank))
        return int(steps[-1][1]) if steps else 0

    def journal(self, event: str, incarnation: int) -> list[dict[str, Any]]:
        """The journal's lines of one kind, of one life of the workers."""
        text = (self.log_dir / "journal.jsonl").read_text(encoding="utf-8")
        lines = [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]
        return [line for line in lines if (line["event"], line["incarnation"]) == (event, incarnation)]

    def standbys_ready(self, incarnation: int) -> bool:
        """Whether every worker of this incarnation could be replaced at once."""
        changes = self.journal("StandbyChanged", incarnation)
        return len({change["rank"] for change in changes if change["state"] == "ready"}) == WORKERS

    def show_progress(self, incarnation: int) -> None:
        """Tell every 20th step."""
        for epoch, step, loss in STEP.findall(self.worker_log(incarnation)):
            if int(step) % 20 == 0 and int(step) > self._shown_step:
                self._shown_step = int(step)
                self.tell(f"training | epoch {epoch:>2}  step {step:>3}  loss {float(loss):.3f}")


def main() -> int:
    if importlib.util.find_spec("faultrun") is None or importlib.util.find_spec("mindspore") is None:
        print("demo: faultrun or MindSpore is missing\n  because: it is not in", sys.prefix, file=sys.stderr)
        print("  try:     make setup", file=sys.stderr)
        return 1
    demo = Demo(Path(tempfile.mkdtemp(prefix="faultrun-demo-")))
    try:
        with started(demo) as run:
            restarts = two_kills(run, demo)
            wait_until(run, lambda: run.poll() is not None, demo, within_s=FINISHED_WITHIN_S)
        sum_up(demo, run.returncode, restarts)
    except NotAsPromised as broken:
        print(f"\ndemo: not as promised: {broken}\n  look into {demo.work}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"\ndemo: interrupted; the workers are stopped\n  look into {demo.work}", file=sys.stderr)
        return 130
    print(f"\nLogs, journal, checkpoints and the original config are in {demo.work}")
    return 0


def two_kills(run: "subprocess.Popen[str]", demo: Demo) -> list[Restart]:
    """One with standbys ready, and one at once after it; the other way round where they take too long."""
    wait_until(run, lambda: demo.step(0) > SAVE_EVERY, demo, within_s=UNDER_WAY_WITHIN_S)
    if not wait_for_standbys(run, demo, 0):
        print("\nThe standbys are not ready yet: this machine is busy. So the slow restart comes first.")
    first = kill(run, demo, 0, VICTIMS[0])
    # A save later: a fault without any progress since the last one would be answered after a pause.
    wait_until(run, lambda: demo.step(1) > first.resumed_at + SAVE_EVERY, demo, within_s=AGAIN_WITHIN_S)
    if first.standbys < WORKERS and not wait_for_standbys(run, demo, 1):
        print("\nStill no standbys: this machine has no time for them now. So the next restart is slow, too.")
    return [first, kill(run, demo, 1, VICTIMS[1])]


def wait_for_standbys(run: "subprocess.Popen[str]", demo: Demo, incarnation: int) -> bool:
    """Whether they are ready in good time, and while there is still something to train."""
    over_s = time.monotonic() + READY_WITHIN_S

    def settled() -> bool:
        late = time.monotonic() > over_s or demo.step(incarnation) >= LATEST_KILL
        return late or demo.standbys_ready(incarnation)

    wait_until(run, settled, demo, within_s=2 * READY_WITHIN_S)
    return demo.standbys_ready(incarnation)


def kill(run: "subprocess.Popen[str]", demo: Demo, incarnation: int, victim: int) -> Restart:
    """SIGKILL to one worker, found in the journal; return what came of it, once training goes on."""
    pid = next(
        (one["pid"] for one in demo.journal("WorkerStarted", incarnation) if one["rank"] == victim), None
    )
    if pid is None:
        raise NotAsPromised(f"the journal names no process for rank {victim}")
    print(f"\nNow rank {victim} dies without a word, as when memory runs out:  kill -9 {pid}\n", flush=True)
    killed_s = time.monotonic()
    os.kill(pid, signal.SIGKILL)
    after = incarnation + 1
    wait_until(run, lambda: demo.step(after) > 0, demo, within_s=AGAIN_WITHIN_S)
    pause_s = time.monotonic() - killed_s
    resumed = RESUMED.findall(demo.worker_log(after))
    check(bool(resumed), f"the workers of incarnation {after} resume from a checkpoint")
    return Restart(
        standbys=sum(one["standby"] for one in demo.journal("WorkerStarted", after)),
        killed_at=demo.step(incarnation, victim),
        resumed_at=int(resumed[-1][1]),
        pause_s=pause_s,
    )


@contextmanager
def started(demo: Demo) -> Iterator["subprocess.Popen[str]"]:
    """faultrun, with its stderr told line by line. It never outlives the block."""
    shutil.copy(EXAMPLE / "config.yaml", demo.work)
    options = [f"--worker_num={WORKERS}", f"--standby={WORKERS}"]  # asked for: auto waits on a busy machine
    options += ["--checkpoint_dir=lenet", "--rewrite", "config.yaml:pre_trained"]
    options += ["--restore_configs=never"]  # it is shown at the end
    pace = [f"--epochs={EPOCHS}", f"--save_checkpoint_steps={SAVE_EVERY}", f"--step_delay_s={STEP_DELAY_S}"]
    script = [str(EXAMPLE / "train.py"), "--config", "config.yaml", "--log_steps=1", *pace]
    print("Four MindSpore workers learn to read handwritten digits:\n")
    print(
        f"  faultrun {shlex.join(options)} \\\n    {shlex.join([os.path.relpath(script[0]), *script[1:]])}\n"
    )
    run = subprocess.Popen(
        [sys.executable, "-m", "faultrun", *options, *script],
        cwd=demo.work,
        stdout=subprocess.DEVNULL,  # the workers' own lines, which are told as progress
        stderr=subprocess.PIPE,
        text=True,
    )
    echo = threading.Thread(target=tell_stderr, args=(run, demo))
    echo.start()
    try:
        yield run
    finally:
        if run.poll() is None:
            run.terminate()  # faultrun takes its workers with it
        try:
            run.wait(timeout=60)
        except subprocess.TimeoutExpired:
            run.kill()  # ... in this case too
            run.wait()
        echo.join(timeout=5)


def tell_stderr(run: "subprocess.Popen[str]", demo: Demo) -> None:
    for line in run.stderr or ():
        said = demo.shortened(line.rstrip())
        demo.tell(f"faultrun | {said.partition('faultrun: ')[2] or said}")


def wait_until(
    run: "subprocess.Popen[str]", reached: Callable[[], bool], demo: Demo, *, within_s: float
) -> None:
    """Return as soon as ``reached``; NotAsPromised when the run ends before or the time is over."""
    deadline = time.monotonic() + within_s
    while not reached():
        incarnation = demo.last_incarnation
        demo.show_progress(incarnation)
        if run.poll() is not None and not reached():
            raise NotAsPromised(f"faultrun ended with exit code {run.returncode}, too early")
        if time.monotonic() > deadline:
            raise NotAsPromised(
                f"incarnation {incarnation} was at step {demo.step(incarnation)} after {within_s:.0f} s"
            )
        time.sleep(0.05)
    demo.show_progress(demo.last_incarnation)


def sum_up(demo: Demo, code: int, restarts: list[Restart]) -> None:
    """Show what is left of the run, and check it."""
    before = (EXAMPLE / "config.yaml").read_text(encoding="utf-8").splitlines()
    after = (demo.work / "config.yaml").read_text(encoding="utf-8").splitlines()
    changes = list(difflib.unified_diff(before, after, n=0, lineterm=""))
    final = FINAL.findall(demo.worker_log(demo.last_incarnation))
    cards = sorted(demo.log_dir.glob("incident_*.txt"))
    texts = [demo.shortened(card.read_text(encoding="utf-8").rstrip()) for card in cards]
    check(len(cards) >= len(restarts), "each fault has an incident card")
    for text, victim in zip(texts, VICTIMS, strict=False):
        check(f"rank {victim} of {WORKERS} killed by SIGKILL" in text, f"a card blames rank {victim}")
    crashes = list(zip(cards, texts, strict=True))[len(restarts) :]
    for _, text in crashes:
        first_line = text.partition("\n")[0]
        check(bool(AT_ITS_END.search(first_line)), f"there are two incidents, but also this: {first_line}")
    check(len(changes) == 5, f"one line of config.yaml changes, the diff has {len(changes) - 3} lines")
    check(bool(final), "the last step is reached")
    print(f"\nThe card of the first fault ({cards[0].relative_to(demo.work)}):\n")
    print(texts[0])
    print("\nThe training config, as the workers found it when they came back:\n")
    print(demo.shortened("\n".join(changes[3:])))
    print("\nAnd in figures:\n")
    print("  restart          killed at   resumed at   steps lost   training again after")
    print("\n".join(one.row for one in restarts))
    print(f"\n  finished at step {final[-1][0]}, accuracy {final[-1][1]} on {final[-1][2]} held-out digits")
    print(f"  exit code {code}")
    for card, _ in crashes:
        print(
            "\nWhen all was done a rank crashed: MindSpore 2.10 does that in a few runs of a hundred"
            f"\n(docs/troubleshooting.md). The run went on from its last save and ended well: {card.name}"
        )
    for one in restarts:
        check(0 <= one.killed_at - one.resumed_at <= SAVE_EVERY, f"at most {SAVE_EVERY} steps are lost")
    check(float(final[-1][1]) >= LEAST_ACCURACY, f"the accuracy is at least {LEAST_ACCURACY}")
    check(code == 0, "the exit code is 0")


def check(kept: bool, promise: str) -> None:
    if not kept:
        raise NotAsPromised(promise)


if __name__ == "__main__":
    sys.exit(main())
