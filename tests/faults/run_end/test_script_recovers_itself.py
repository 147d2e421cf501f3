"""Workers with torchft's exit codes under the real supervisor: a host that says "again" is alone in it."""

import os
import signal
import sys

from support.machine.processes import wait_until
from support.runs import PRELUDE, READY, Launcher, Run

PROGRAM = """
from faultrun import sdk
sdk.start()
def lost():
    say("a peer is lost")
sdk.on_peer_lost(lost)
say("host", os.environ["FTFSDP_HOST_INDEX"], "of", os.environ["FTFSDP_RUN_ID"])
signal.signal(signal.SIGUSR1, lambda *_: sys.exit(1))
signal.signal(signal.SIGUSR2, lambda *_: sys.exit(3))
sdk.step(life + 1)
train()
"""


def test_1_and_a_kill_start_that_rank_again_alone_and_3_ends_the_run(launcher: Launcher) -> None:
    script = launcher.folder / "train.py"
    script.write_text(PRELUDE + PROGRAM)
    options = ("--worker_num=3", "--worker_exit_codes=torchft", "--rdzv-id=job7", "--standby=none")
    run = launcher.command(*options, "--max_restarts=9", sys.executable, "-u", str(script)).trains(range(3))
    run.event("FirstStep")
    first = [run.worker(rank) for rank in range(3)]
    os.kill(first[1], signal.SIGUSR1)
    trains_again(run, 1, incarnation=1)
    for rank in (0, 2):
        heard(run, rank, times=1)
    run.kill(2)
    trains_again(run, 2, incarnation=2)
    assert run.worker(0) == first[0]
    assert run.worker(1) != first[1]
    heard(run, 0, times=2)
    heard(run, 1, times=1)
    told = {line for rank in range(3) for line in run.log(rank).splitlines() if line.startswith("host")}
    assert len(told) == 1, "the run id stays as long as somebody lives"
    assert "in the training's own way: ranks 0 2 stayed" in run.card(1)
    os.kill(run.worker(1), signal.SIGUSR2)
    assert run.ends() == 3
    assert "rank 1 ended with 3: do not start me again (--worker_exit_codes=torchft)" in run.text


def trains_again(run: Run, rank: int, incarnation: int) -> None:
    run.event("WorkerStarted", rank=rank, incarnation=incarnation)
    wait_until(lambda: run.log(rank).count(f"{READY}\n") == 2, what=f"rank {rank} in its second life")


def heard(run: Run, rank: int, times: int) -> None:
    wait_until(lambda: run.log(rank).count("a peer is lost\n") == times, what="the word of each death")
