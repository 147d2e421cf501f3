"""Standbys under the real supervisor: they take over, they are replaced, they leave nothing behind."""

import os
import re
import signal
import sys
from collections import Counter
from functools import partial

import pytest

from support.machine.processes import children, environment, marked, open_files, wait_until
from support.runs import PRELUDE, READY, Launcher, Run

STEPS = """
from faultrun import sdk
sdk.start()
sdk.step(life + 1)
train()
"""
_OF_THIS_INCARNATION = re.compile(r"(socket:|pipe:|incarnation_).*")
SLOW_S = 240.0
"""Imports at low priority beside everything else that a test machine does."""


def program(launcher: Launcher, code: str, name: str = "steps.py") -> tuple[str, ...]:
    """A worker that standbys may wait for: the hook needs ``site``."""
    (launcher.folder / name).write_text(PRELUDE + code)
    return (sys.executable, "-u", name)


def ready(run: Run, incarnation: int, *ranks: int) -> list[int]:
    """Wait until the standbys of ``ranks`` are ready; their pids."""
    wanted = set(ranks)

    def all_ready() -> bool:
        said = run.events("StandbyChanged", state="ready", incarnation=incarnation)
        return wanted <= {event["rank"] for event in said}

    wait_until(all_ready, while_runs=run.pid, within_s=SLOW_S, what=f"standbys {ranks}")
    workers = {run.worker(rank) for rank in ranks}
    return [
        pid
        for pid in children(run.pid)
        if pid not in workers
        and any(one.startswith(b"FAULTRUN_STANDBY_CHANNEL=") for one in environment(pid))
    ]


def prints(run: Run, rank: int, incarnation: int) -> None:
    """Wait until the worker is in its main loop; torch takes its time."""
    wait_until(
        lambda: f"{READY}\n" in run.log(rank, incarnation),
        while_runs=run.pid,
        within_s=SLOW_S,
        what=f"rank {rank} of incarnation {incarnation}",
    )


def held(pid: int) -> Counter[str] | None:
    """What its descriptors are of; None while it reads in /proc, which takes some for a moment."""
    kept = open_files(pid).values()
    passing = any(one == "/proc" or one.startswith("/proc/") for one in kept)
    return None if passing else Counter(_OF_THIS_INCARNATION.sub(r"\1", one) for one in kept)


def holds_no_more(pid: int, than: Counter[str]) -> bool:
    now = held(pid)
    return now is not None and now <= than


def test_every_restart_is_warm_and_nothing_piles_up(launcher: Launcher) -> None:
    options = ("--worker_num=2", "--standby=2", "--backoff=10ms..20ms", "--max_restarts=9")
    run = launcher.command(*options, *program(launcher, STEPS))
    first: Counter[str] = Counter()
    processes = []
    for life in range(4):
        run.trains(range(2), incarnation=life)
        ready(run, life, 0, 1)
        assert [event["standby"] for event in run.events("WorkerStarted", incarnation=life)] == [life > 0] * 2
        first = first or wait_until(lambda: held(run.pid), while_runs=run.pid, what="no look into /proc")
        wait_until(partial(holds_no_more, run.pid, first), while_runs=run.pid, what=f"no more than {first}")
        processes.append(len(marked(launcher.mark)))
        run.kill(life % 2)
    run.trains(range(2), incarnation=4)
    assert len(set(processes)) == 1, processes
    run.signal(signal.SIGTERM)
    assert run.ends() == 143
    assert not run.events("StandbyChanged", state="lost")


def test_one_that_was_stopped_costs_its_rank_a_cold_start_and_the_run_nothing(launcher: Launcher) -> None:
    run = launcher.command("--worker_num=2", "--standby=2", *program(launcher, STEPS))
    run.trains(range(2))
    for pid in ready(run, 0, 0, 1):
        os.kill(pid, signal.SIGSTOP)
    run.kill(1)
    run.trains(range(2), incarnation=1)
    assert [event["standby"] for event in run.events("WorkerStarted", incarnation=1)] == [False, False]
    assert len(run.events("StandbyChanged", state="lost", incarnation=1)) == 2
    run.signal(signal.SIGTERM)
    assert run.ends() == 143


def test_without_the_wish_there_is_none_and_one_that_cannot_be_granted_is_said(launcher: Launcher) -> None:
    run = launcher.command("--standby=none", *program(launcher, "say('done')"))
    assert run.ends() == 0
    assert not run.events("StandbyChanged")
    run = launcher.command("--standby=2", "--log_dir=other", "bash", "-c", "exit 0")
    assert run.ends() == 0
    assert "no standbys: bash is no Python command that a standby can wait in" in run.text.replace(
        "/usr/bin/", ""
    )


TORCH = """
import sys
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from faultrun import sdk
torch.set_num_threads(1)
dist.init_process_group("gloo")
net = DistributedDataParallel(torch.nn.Linear(4, 4))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
sdk.start()
for step in range(1, 4):
    net(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    sdk.step(step)
say("weights", float(sum(p.detach().sum() for p in net.parameters())) != 0.0, len(sys.argv))
train()
"""


@pytest.mark.torch
def test_torch_trains_on_in_standbys(launcher: Launcher) -> None:
    run = launcher.command(
        "--framework=torch",
        "--worker_num=2",
        "--standby=2",
        *program(launcher, TORCH),
        environ={"OMP_NUM_THREADS": "1"},
    )
    for life in range(2):
        for rank in range(2):
            prints(run, rank, life)
            assert "weights True 1\n" in run.log(rank, life)
        if life == 0:
            ready(run, 0, 0, 1)
            run.kill(1)
    assert [event["standby"] for event in run.events("WorkerStarted", incarnation=1)] == [True, True]
    run.signal(signal.SIGTERM)
    assert run.ends() == 143
