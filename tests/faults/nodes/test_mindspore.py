"""MindSpore over several hosts: one scheduler for all ranks, wherever that is, and no bit is lost."""

import json
import os
import re
import signal
import socket
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from support.machine.processes import wait_until
from support.nodes.several_nodes import Job, job
from support.places import TESTS
from support.runs import LIGHT_PYTHON, Launcher, Run

pytestmark = pytest.mark.slow

TRAIN = TESTS / "faults" / "scripts" / "nodes_mindspore.py"
PATIENCE_S = 240.0
TAKEN = 29_777
LEASE = "--lease_ttl=10s"
"""Four Pythons that start at once keep a small machine from etcd for seconds; each test loses one host."""

STRANGE = """
import socket
say("heartbeats", "off" if "MS_DISABLE_HEARTBEAT" in os.environ else "on")
if life == 0 and rank == 3:
    link = socket.create_connection((os.environ["MS_SCHED_HOST"], int(os.environ["MS_SCHED_PORT"])))
    link.sendall(b"RPC0" + b"".join(size.to_bytes(4, "big") for size in (2, 0, 0, 0)) + b"13")
train()
"""
"""The worker that is furthest from the scheduler asks it something that nobody knows."""

STAND_IN = {
    "__init__.py": "def set_device(name): pass\n",
    "communication.py": """
import os, signal
def init():
    print("stand-in scheduler at", os.environ["MS_SCHED_HOST"], os.environ["MS_ROLE"], flush=True)
    while True:
        signal.pause()
""",
}
"""What MindSpore's scheduler process imports, from its working directory."""


def starts(one: Job, incarnation: int, names: Sequence[str]) -> dict[int, str]:
    """Which of these hosts has each of four ranks, once all of them are as far as they shall come."""

    def ready() -> dict[int, str] | None:
        found = {
            int(line["rank"]): name
            for name in names
            for line in one.run(name).events("WorkerStarted", incarnation=incarnation)
        }
        here = [rank for rank, name in found.items() if "ready\n" in one.run(name).log(rank, incarnation)]
        return found if len(here) == 4 else None

    return wait_until(
        ready, within_s=PATIENCE_S, what=f"four ranks that are ready in incarnation {incarnation}"
    )


def losses(*logs: str) -> dict[int, str]:
    """By step; each is there once."""
    found = [
        (int(step), loss)
        for step, loss in re.findall(r"^step (\d+) loss (\S+)$", "".join(logs), re.MULTILINE)
    ]
    assert len(dict(found)) == len(found)
    return dict(found)


def undisturbed(launcher: Launcher) -> list[dict[int, str]]:
    """The losses of each of four ranks on one node that nothing befell."""
    checkpoints = launcher.folder / "undisturbed"
    checkpoints.mkdir()
    run = launcher.command("--framework=mindspore", "--worker_num=4", str(TRAIN), str(checkpoints))
    assert run.ends(PATIENCE_S) == 0, run.text
    return [losses(run.log(rank)) for rank in range(4)]


def scheduler_of(one: Job, name: str) -> list[int]:
    """MindSpore's scheduler processes on a host."""
    found = []
    for pid in one.host(name).pids:
        try:
            environ = Path(f"/proc/{pid}/environ").read_bytes()
        except OSError:
            continue
        if b"MS_ROLE=MS_SCHED\0" in environ:
            found.append(pid)
    return found


def card(run: Run, number: int) -> str:
    """The card, once it is written."""
    path = run.log_dir / f"incident_{number}.txt"
    return wait_until(lambda: path.read_text() if path.exists() else None, what=f"card {number}")


@pytest.mark.mindspore
@pytest.mark.timeout(900)
def test_a_rank_and_then_the_host_of_the_scheduler_are_lost_and_no_bit_with_them(
    tmp_path: Path, launcher: Launcher
) -> None:
    reference = undisturbed(launcher)
    checkpoints = tmp_path / "ck"
    checkpoints.mkdir()
    words = (
        f"--checkpoint_dir={checkpoints}",
        f"--master_port={TAKEN}",
        "--hang_timeout=off",
        "--backoff=0s",
        LEASE,
    )
    program = (str(TRAIN), str(checkpoints), "13", "22")
    told: dict[str, Any] = {"framework": "mindspore", "per_node": 2, "words": words}
    with job(tmp_path, "a", "b", "c", program=program, **told) as one, ExitStack() as stack:
        for name in "abc":
            with one.host(name).inside():
                taken = stack.enter_context(socket.create_server((one.host(name).address, TAKEN)))
        one.start("a", "b")
        for name in "ab":
            one.run(name).event("IncarnationStarted")
        one.start("c")
        where = starts(one, 0, "ab")
        assert taken.fileno() >= 0
        serves = where[0]
        one.run(serves).kill(1)
        assert starts(one, 1, "ab") == where
        one.network.power_off(one.host(serves))
        (stays,) = {"a", "b"} - {serves}
        assert [one.run(name).ends(PATIENCE_S) for name in (stays, "c")] == [0, 0]

        for name in "ab":
            assert f"port {TAKEN} of {one.host(name).address} is taken; using another" in one.run(name).text
        served = {name: sorted(scheduler_logs(one.run(name))) for name in "abc"}
        assert served == {serves: [0, 1], stays: [], "c": [2]}
        assert card(one.run(stays), 1) == card(one.run(serves), 1)
        assert "saved step 12 in" in card(one.run(stays), 1)
        assert card(one.run(stays), 2) == card(one.run("c"), 2)
        assert f"incident 2  node {serves} was lost at step 21" in card(one.run("c"), 2)
        assert f"node c takes the place of node {serves}: ranks 0 1" in card(one.run("c"), 2)
        for rank, name in where.items():
            last = one.run("c" if name == serves else stays)
            lives = [one.run(name).log(rank, 0), one.run(name).log(rank, 1), last.log(rank, 2)]
            assert [min(losses(text)) for text in lives] == [1, 13, 22]
            assert losses(*lives) == reference[rank]


def scheduler_logs(run: Run) -> list[int]:
    """The incarnations that our own scheduler served there, to the end of ``init()``."""
    logs = run.log_dir.glob("incarnation_*/scheduler.log")
    return [
        int(log.parent.name.rpartition("_")[2]) for log in logs if "the cluster has formed" in log.read_text()
    ]


def test_who_serves_is_agreed_on_and_a_scheduler_that_dies_is_named_on_every_host(tmp_path: Path) -> None:
    for name in "abc":
        package = tmp_path / name / "mindspore"
        package.mkdir(parents=True)
        for file, text in STAND_IN.items():
            (package / file).write_text(text)
    program = (*LIGHT_PYTHON, str(tmp_path / "train.py"))
    told: dict[str, Any] = {
        "framework": "mindspore",
        "per_node": 2,
        "words": ("--ms_scheduler=builtin", "--backoff=0s", LEASE),
    }
    with job(tmp_path, "a", "b", "c", script=STRANGE, program=program, **told) as one:
        one.start("a", "b")
        for name in "ab":
            one.run(name).event("IncarnationStarted")
        one.start("c")
        where = starts(one, 1, "ab")
        serves = where[0]
        (stays,) = {"a", "b"} - {serves}
        for name in "ab":
            assert "a message called b'13'; MindSpore's own scheduler process serves" in one.run(name).text
            assert card(one.run(name), 1).startswith(
                "incident 1  all workers stopped to change the scheduler"
            )
        assert one.run(where[3]).log(3, 0).startswith("heartbeats off")
        for rank, name in where.items():
            assert one.run(name).log(rank, 1).startswith("heartbeats on")
        assert scheduler_of(one, stays) == []

        (scheduler,) = scheduler_of(one, serves)
        os.kill(scheduler, signal.SIGKILL)
        starts(one, 2, "ab")
        for name in "ab":
            headline, _, cause, *_ = card(one.run(name), 2).splitlines()
            assert headline.startswith(f"incident 2  scheduler of node {serves} killed by SIGKILL")
            assert f"scheduler of node {serves} (pid {scheduler})" in cause

        one.network.power_off(one.host(serves))
        where = starts(one, 3, (stays, "c"))
        assert where[0] == "c"
        log = one.run("c").log_dir / "incarnation_3" / "scheduler.log"
        at = f"stand-in scheduler at {one.host('c').address} MS_SCHED"
        wait_until(lambda: at in log.read_text(), while_runs=one.run("c").pid, what="the spare's scheduler")
        plan = one.run("c").event("PlanAdopted", incarnation=3)["plan"]
        assert (plan["native_scheduler"], len(plan["ledger"]["restarts"])) == (True, 1), json.dumps(plan)
        assert "faultrun: MindSpore's own scheduler process serves the rest of the run\n" in one.run("c").text
