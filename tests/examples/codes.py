"""What the examples of training codes (09 to 13) have in common: how they are started, struck, and read.

Each prints ``step <n> loss <x>`` on rank 0, and at the end ``final step <n> loss <x> digest <8 hex>``.
"""

import os
import re
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from examples.launched import FAULTRUN, Run
from faultrun.workers import process
from support.lightly import LIGHT, lightly
from support.machine.free_port import free_port
from support.machine.processes import stand_still
from support.preloaded import Forked, Preloaded

_STEP = re.compile(r"^step (\d+) loss (\S+)$", re.MULTILINE)
_FINAL = re.compile(r"^final step \d+ loss \S+ digest [0-9a-f]{8}$", re.MULTILINE)
_LOOK_AGAIN_S = 0.0005


def undisturbed(
    script: Path,
    *options: str,
    imports: Sequence[str],
    cwd: Path,
    workers: int = 2,
    environ: Mapping[str, str] | None = None,
) -> str:
    """What rank 0 prints in a run that no launcher watches, with the variables that torchrun sets.

    The ranks are forked from one process that has imported what they would each import. All their words are
    in files ``undisturbed_RANK.txt``.
    """
    all_ranks = {
        **os.environ,
        **lightly(),
        **(environ or {}),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
        "WORLD_SIZE": str(workers),
        "LOCAL_WORLD_SIZE": str(workers),
    }
    preloaded = Preloaded(*imports, folders=(LIGHT, script.parent))
    ranks: list[Forked] = []
    try:
        for rank in range(workers):
            of_one = {"RANK": str(rank), "LOCAL_RANK": str(rank)}
            with (cwd / f"undisturbed_{rank}.txt").open("wb") as log:
                ranks.append(
                    preloaded.start(script, *options, env=all_ranks | of_one, log=log.fileno(), cwd=cwd)
                )
        texts = [cwd / f"undisturbed_{rank}.txt" for rank in range(workers)]
        for one, text in zip(ranks, texts, strict=True):
            assert one.wait() == 0, text.read_text(errors="replace")
    finally:
        for one in ranks:
            one.kill()
        preloaded.close()
    return texts[0].read_text(errors="replace")


def faultrun(*options: str | Path) -> tuple[str | Path, ...]:
    """The command line that two workers are started with."""
    return *FAULTRUN, "--worker_num=2", *options


def final_line(text: str) -> str:
    """The line that two runs can be compared by."""
    (line,) = _FINAL.findall(text)
    return str(line)


def losses(run: Run, incarnation: int, rank: int = 0) -> dict[int, str]:
    """Loss by step, as printed by now. No step may come twice."""
    lines = _STEP.findall(run.output(incarnation, rank).text)
    found = {int(step): loss for step, loss in lines}
    assert len(found) == len(lines), "a step was counted twice"
    return found


def last_step(run: Run, incarnation: int) -> int:
    """The last step printed by now; 0 before the first."""
    return max(losses(run, incarnation), default=0)


def resumed_at(run: Run, incident: int) -> int:
    """The step of the recovery point after the ``incident``th fault, from 0."""
    chosen = [one for one in run.journal("RecoveryPointChosen") if one.get("point")]
    return int(chosen[incident]["point"]["global_step"])


def killed_while(run: Run, rank: int, is_writing: Callable[[], bool], *, within_s: float) -> None:
    """SIGKILL to ``rank`` while ``is_writing``: it is stopped first, so that the moment does not pass."""
    pid = [one for one in run.journal("WorkerStarted") if one["rank"] == rank][-1]["pid"]
    deadline = time.monotonic() + within_s
    with process.undisturbed():  # the moment is short, and other tests keep the processors
        while time.monotonic() < deadline:
            if not is_writing():
                time.sleep(_LOOK_AGAIN_S)
                continue
            stand_still(pid)
            if is_writing():
                os.kill(pid, signal.SIGKILL)
                return
            os.kill(pid, signal.SIGCONT)
    raise AssertionError(f"nothing was half written within {within_s} s: {run.console}")
