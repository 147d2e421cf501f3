"""The built-in scheduler in a run: it serves the real MindSpore; what it cannot serve, MindSpore's does."""

import sys

import pytest

from support.machine.processes import environment, marked, wait_until
from support.places import TESTS
from support.runs import Launcher, stand_in_scheduler

RING = TESTS / "support" / "mindspore_ring.py"
PATIENCE_S = 240.0

STRANGE = """
import socket
def meet(name):
    to = (os.environ["MS_SCHED_HOST"], int(os.environ["MS_SCHED_PORT"]))
    link = socket.create_connection(to, timeout=60)
    head = b"RPC0" + b"".join(size.to_bytes(4, "big") for size in (len(name), 0, 0, 0))
    link.sendall(head + name)
    return link
"""
"""Workers that speak the protocol, as far as it goes."""


@pytest.mark.mindspore
@pytest.mark.timeout(600)
def test_the_real_mindspore_meets_late_dies_meets_again_and_leaves_in_order(launcher: Launcher) -> None:
    words = ("--framework=mindspore", "--worker_num=2", "--ms_scheduler=builtin", "--backoff=0s")
    run = launcher.command(
        *words, "--max_restarts=9", sys.executable, str(RING), "meeting:0", "dies:1", "late:0"
    )
    assert run.ends(PATIENCE_S) == 0, run.text
    formed = [line["incarnation"] for line in run.events("ClusterFormed")]
    last = run.events("PlanAdopted")[-1]["incarnation"]
    assert len(formed) >= 2 and formed[0] > 0 and formed[-1] == last  # MindSpore crashes in some, by itself
    assert run.events("SchedulerFailed") == run.events("HelperExit") == []
    assert "native" not in run.text
    for rank in range(2):
        assert f"rank {rank} of 2: sum 3\n" in run.log(rank, last)
    assert "the cluster has formed" in (run.log_dir / "scheduler.log").read_text()


def test_an_unknown_message_brings_mindspores_scheduler_for_the_rest_of_the_run(launcher: Launcher) -> None:
    stand_in_scheduler(launcher.folder)
    code = STRANGE + "if life == 0:\n    link = meet(b'13')\n    train()\nelif life == 1:\n    train()\n"
    run = launcher.run(code, "--framework=mindspore", "--ms_scheduler=builtin", "--max_restarts=1")
    run.trains(range(2), incarnation=1)
    assert "a message called b'13'; MindSpore's own scheduler process serves the rest of the run" in run.text
    assert "not counted" in run.card(1)
    assert sum(b"MS_ROLE=MS_SCHED" in environment(pid) for pid in marked(launcher.mark)) == 1
    log = run.log_dir / "incarnation_1" / "scheduler.log"
    wait_until(lambda: "stand-in scheduler MS_SCHED" in log.read_text(), while_runs=run.pid, what="its word")
    run.kill(1)
    assert run.ends() == 0
    assert len(run.events("SchedulerFailed")) == 1
    # the last life may be over before its scheduler has said a word
    assert (run.log_dir / "incarnation_2" / "scheduler.log").exists()
