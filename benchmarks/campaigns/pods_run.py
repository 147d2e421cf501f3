"""One pod that is deleted as a kubelet does it, and what it left, judged."""

import json
import random
import signal
import sys
import time
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from benchmarks.harness import journal
from benchmarks.harness.benchmark import NotMeasured
from benchmarks.harness.launched import ROOT, said_at_the_end
from benchmarks.harness.launchers import LOG_DIR
from benchmarks.harness.pod import Pod, ended

EARLY_MS = (0, 1, 5, 20, 100)
"""When SIGTERM comes, after the launcher's ``exec``."""

MARGIN_S = 5.0
"""What faultrun keeps of ``terminationGracePeriodSeconds`` for itself."""

_LATEST_S = 1.0
_WINDOW_S = (1.0, 4.0)
_LONGER_S = 1.5
_OVERTAKES_S = 1.0


class Hook(Enum):
    """How the preStop hook and SIGTERM follow each other."""

    FIRST = "hook, then SIGTERM"  # as documented: SIGTERM when the hook has ended
    OVERTAKEN = "SIGTERM beside the hook"  # a node that shuts down, an impatient person
    NONE = "SIGTERM alone"


@dataclass(frozen=True, slots=True, kw_only=True)
class Deletion:
    """One pod, counted from 1; all lengths are in seconds.

    ``at_s`` is after all workers have done a step; after the launcher's ``exec``
    where ``starting``. ``period_s`` is terminationGracePeriodSeconds, counted from the deletion;
    SIGTERM follows the hook after ``overtakes_s`` where it does not wait for its end.
    """

    number: int
    starting: bool
    at_s: float
    hook: Hook
    overtakes_s: float
    period_s: float
    save_s: float

    @property
    def window_s(self) -> float:
        """What is left for saving."""
        return self.period_s - MARGIN_S


def draw(pods: int, seed: int) -> tuple[Deletion, ...]:
    """Draw ``pods`` deletions; one in five comes while the launcher still starts."""
    rng = random.Random(f"pods {seed}")
    return tuple(_draw(rng, number) for number in range(1, pods + 1))


def _draw(rng: random.Random, number: int) -> Deletion:
    window_s = rng.uniform(*_WINDOW_S)
    return Deletion(
        number=number,
        starting=number % 5 == 0,
        at_s=rng.uniform(0.0, _LATEST_S),
        hook=list(Hook)[number % len(Hook)],
        overtakes_s=rng.uniform(0.0, _OVERTAKES_S),
        period_s=window_s + MARGIN_S,
        save_s=rng.uniform(0.0, window_s + _LONGER_S),
    )


WORKERS = 2
FAULTRUN = (sys.executable, "-m", "faultrun")
_STOPPED = 143
_KILLED = 137
_MUST_FIT_S = 1.0  # below the window by so much a save must succeed: worker's margin, and a busy machine
_ENDED_S = 30.0
_START_S = 120.0
_LOOK_S = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """What a deleted pod left. ``newest`` is the newest step that a rank said it had when asked; -1: none.

    ``granted_s`` is the window that faultrun opened: a late hook has used up a part of it.
    ``came_up``: the launcher ran at all before the period was over. ``hook_code``
    is None where there was no hook; ``files`` are whole saves: rank, step.
    """

    exit_code: int | None
    came_up: bool
    hook_code: int | None
    newest: int
    granted_s: float
    saves_begun: tuple[int, ...]
    files: tuple[tuple[int, int], ...]
    torn: tuple[str, ...]
    last_line: str
    took_s: float


def run(deletion: Deletion, folder: Path) -> Left:
    """Start, delete, wait for the end."""
    job = (sys.executable, "-S", str(ROOT / "benchmarks" / "jobs" / "pod_count.py"), str(deletion.save_s))
    options = (f"--worker_num={WORKERS}", "--framework=plain", "--checkpoint_dir=ck")
    environ = {
        "FAULTRUN_LOG_DIR": str(folder / LOG_DIR),  # a hook begins in the root folder
        "FAULTRUN_TERMINATION_GRACE_S": f"{deletion.period_s:.3f}",
    }
    with Pod([*FAULTRUN, *options, *job], folder, environ) as pod:
        if not deletion.starting:
            _wait_for_training(pod, folder)
        pod.ends_within(deletion.at_s)
        deleted_s = time.monotonic()
        hook_code = _delete(pod, deletion, deleted_s)
        code = pod.ends_within(deleted_s + deletion.period_s - time.monotonic())
        if code is None:
            pod.signal(signal.SIGKILL)
            code = _KILLED if pod.ends_within(_ENDED_S) is not None else None
        return _left(pod, folder, code, hook_code, time.monotonic() - deleted_s)


def broken(deletion: Deletion, left: Left) -> list[str]:
    """Say every promise that was broken."""
    found = []
    if left.exit_code != _STOPPED and (left.came_up or left.exit_code != _KILLED):
        found.append(f"exit code {left.exit_code}")
    died_with_us = deletion.hook is Hook.OVERTAKEN and left.exit_code is not None
    if left.came_up and left.hook_code not in (None, 0) and not died_with_us:
        found.append(f"the hook ended with {left.hook_code}")
    hooked = deletion.hook is Hook.FIRST and left.newest >= 0
    if hooked and "stopped by the preStop hook" not in left.last_line:
        found.append(f"the hook did not stop it: {left.last_line}")
    if any(begun > 1 for begun in left.saves_begun):
        found.append(f"saved more than once: {left.saves_begun}")
    if left.torn:
        found.append(f"torn: {', '.join(left.torn)}")
    steps = {step for _, step in left.files}
    fits = deletion.save_s + _MUST_FIT_S < left.granted_s
    if fits and max(steps, default=-1) < left.newest:
        lengths = f"a save of {deletion.save_s:.1f} s in a window of {left.granted_s:.1f} s"
        found.append(f"step {left.newest} was finished, steps {sorted(steps)} saved; {lengths}")
    if steps and not any(f"saved step {step};" in left.last_line for step in steps):
        found.append(f"the last line does not tell what was saved: {left.last_line}")
    return found


def _wait_for_training(pod: Pod, folder: Path) -> None:
    deadline_s = time.monotonic() + _START_S
    while not all(_count(log, "step") for log in _logs(folder)):
        if pod.ends_within(_LOOK_S) is not None or time.monotonic() >= deadline_s:
            raise NotMeasured(f"the workers never trained: {pod.console}")


def _delete(pod: Pod, deletion: Deletion, deleted_s: float) -> int | None:
    """Hook and SIGTERM; the hook's exit code, once it has ended or has no time left."""
    if deletion.hook is Hook.NONE:
        pod.signal(signal.SIGTERM)
        return None
    with pod.hook([*FAULTRUN, "prestop"]) as hook:
        patience_s = deletion.overtakes_s if deletion.hook is Hook.OVERTAKEN else deletion.period_s
        ended(hook, deleted_s + patience_s - time.monotonic())
        pod.signal(signal.SIGTERM)
        if not ended(hook, deleted_s + deletion.period_s - time.monotonic()):
            hook.kill()
        return hook.wait()


def _left(pod: Pod, folder: Path, code: int | None, hook_code: int | None, took_s: float) -> Left:
    whole, torn = _files(folder / "ck")
    lines = journal.read(folder)
    requests = journal.of(lines, "GaspRequested")
    acknowledged = [line["step"] for line in journal.of(lines, "GaspAcknowledged")]
    return Left(
        exit_code=code,
        came_up=bool(lines),
        hook_code=hook_code,
        granted_s=next((asked["deadline_s"] - asked["run_s"] for asked in requests), 0.0),
        newest=max((step for step in acknowledged if step is not None), default=-1),
        saves_begun=tuple(_count(log, "saving") for log in _logs(folder)),
        files=whole,
        torn=torn,
        last_line=said_at_the_end(pod.console),
        took_s=took_s,
    )


def _files(folder: Path) -> tuple[tuple[tuple[int, int], ...], tuple[str, ...]]:
    """Every file that has its name: whole ones as rank and step, and those that are not what they say."""
    whole, torn = [], []
    for path in sorted(folder.rglob("count-step_*.json")):
        manifest = path.with_name(f"{path.name}.manifest.json")
        if not manifest.exists():
            continue  # cut off between the two: nobody takes it for a save
        state = _state(path, manifest)
        if state is None:
            torn.append(str(path.relative_to(folder)))
        else:
            whole.append(state)
    return tuple(whole), tuple(torn)


def _state(path: Path, manifest: Path) -> tuple[int, int] | None:
    """Rank and step; None when file and manifest do not fit together."""
    content = path.read_bytes()
    try:
        told: dict[str, Any] = json.loads(manifest.read_bytes())
        state = json.loads(content)
    except (OSError, ValueError):
        return None
    fits = told["digest"] == f"crc32:{zlib.crc32(content):08x}" and state["twice"] == 2 * state["count"]
    return (told["rank"], told["step"]) if fits and told["step"] == state["count"] else None


def _logs(folder: Path) -> list[Path]:
    return [folder / LOG_DIR / "incarnation_0" / f"worker_{rank}.log" for rank in range(WORKERS)]


def _count(log: Path, word: str) -> int:
    text: Sequence[str] = log.read_text(encoding="utf-8").splitlines() if log.exists() else ()
    return sum(line == word for line in text)
