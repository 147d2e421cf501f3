"""MindSpore over several hosts: one scheduler for all ranks, wherever that is, and no bit is lost."""

import re
import socket
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from support.machine.processes import wait_until
from support.nodes.several_nodes import Job, job
from support.places import TESTS
from support.runs import Launcher, Run

pytestmark = pytest.mark.slow

TRAIN = TESTS / "faults" / "scripts" / "nodes_mindspore.py"
PATIENCE_S = 240.0
TAKEN = 29_777
LEASE = "--lease_ttl=10s"
"""Four Pythons that start at once keep a small machine from etcd for seconds; each test loses one host."""


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
