"""Whole runs over several hosts whose network, disks, clocks, programs or ports are not as they should be."""

import shutil
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from support.machine.clocks import an_hour_ahead
from support.machine.processes import wait_until
from support.machine.small_disk import fill, small_disk
from support.nodes.hosts import Host
from support.nodes.several_nodes import Job, job
from support.runs import PRELUDE

pytestmark = pytest.mark.slow

TAKEN = 29777
NOBODY_IS_LOST = "--lease_ttl=30s"
SAVES = """
import json, time
from faultrun import sdk
def write(path):
    with open(path, "w") as file:
        json.dump(state, file)
point = sdk.resume()
state = json.load(open(point.path)) if point else {"step": 0}
first = state["step"]
sdk.start(save=write, directory=sys.argv[1], name="steps.json")
for step in range(first + 1, first + 10):
    with sdk.updating():
        state["step"] = step
    sdk.step(step)
"""
SHARDED = SAVES.replace(
    "directory=sys.argv[1]", "directory=sdk.Folder(directory=sys.argv[1], replica_group=(rank,))"
)


def counted(one: Job, name: str, incarnation: int) -> int:
    """The restarts that count against ``--max_restarts``, by the plan of this incarnation."""
    plan: dict[str, Any] = one.run(name).event("PlanAdopted", incarnation=incarnation)["plan"]
    return len(plan["ledger"]["restarts"])


def test_clocks_an_hour_apart_a_taken_port_and_a_node_with_another_script(tmp_path: Path) -> None:
    ahead = an_hour_ahead(tmp_path)
    if ahead.refused:
        pytest.skip(f"all clocks are the same here: {ahead.refused}")
    script = (
        SAVES
        + """
say("from", first, "at port", os.environ["MASTER_PORT"])
say("clocks", time.time(), time.monotonic())
train_in_the_first_life()
"""
    )
    train, folder = tmp_path / "train.py", str(tmp_path / "ck")
    words = (f"--checkpoint_dir={folder}", f"--master_port={TAKEN}", NOBODY_IS_LOST)
    program = (sys.executable, str(train), folder)
    with (
        job(tmp_path, "a", "b", "c", script=script, program=program, words=words) as one,
        ExitStack() as stack,
    ):
        for name in "ab":
            stack.enter_context(listening(one.host(name), TAKEN))
        one.start("a")
        one.start_as("b", under=ahead.under, environ=dict(ahead.environ))
        one.trains("a", "b")

        train.write_text("pass")
        one.start("c")
        assert one.run("c").ends() == 64
        assert "node c was started with another script" in one.run("c").text
        train.write_text(PRELUDE + script)

        one.run("a").kill(one.rank_on("a"))
        assert [one.run(name).ends() for name in "ab"] == [0, 0]
        logs = {name: one.run(name).log(one.rank_on(name, 1), 1) for name in "ab"}
        first, second = (float(log.split("clocks ")[1].split()[0]) for log in logs.values())
        assert second - first > 3000, "the test shows nothing where their clocks agree"
        port = one.run("a").event("GoGiven", incarnation=1)["master_port"]
        assert port != TAKEN
        assert all(f"from 9 at port {port}\n" in log for log in logs.values()), logs
        assert f"port {TAKEN} of" in one.run("a").text + one.run("b").text
        assert counted(one, "a", 1) == 1


def test_a_full_disk_refuses_the_save_of_a_shard_and_then_costs_its_node_its_place(tmp_path: Path) -> None:
    program = (sys.executable, str(tmp_path / "train.py"), "ck")
    words = ("--checkpoint_dir=ck", NOBODY_IS_LOST)
    logs, saves = tmp_path / "logs" / "node_b", tmp_path / "b" / "ck"
    with ExitStack() as stack:
        for folder in (logs, saves):
            stack.enter_context(small_disk(folder))
        script = SHARDED + "say('from', first)\ntrain()\n"
        one = stack.enter_context(job(tmp_path, "a", "b", "c", script=script, program=program, words=words))
        one.start("a", "b")
        one.trains("a", "b")
        for name in "ab":
            one.run(name).signal(signal.SIGTERM)
        assert [one.run(name).ends() for name in "ab"] == [143, 143]

        one.start("a", "b")
        one.trains("a", "b", incarnation=1)
        rank = one.rank_on("a", 1)
        points = {name: one.run(name).event("RecoveryPointChosen", incarnation=0)["point"] for name in "ab"}
        assert [[file["rank"] for file in points[name]["files"]] for name in "ab"] == [[rank], [1 - rank]]
        assert "from 9\n" in one.run("b").log(1 - rank, 1), "each has its own shard of one state"
        shutil.copytree(saves, tmp_path / "c" / "ck")
        one.start("c")
        wait_until(lambda: "spare of run job42" in one.run("c").text, what="a spare that knows the plan")
        fill(logs)
        fill(saves)
        one.run("a").kill(rank)
        assert one.run("b").ends() == 71
        assert "journal not written: No space left on device" in one.run("b").text
        lack = f"No space left on device in {logs} (df -h)"
        assert f"{lack}; the other nodes go on; exit code 71" in one.run("b").text
        one.trains("a", "c", incarnation=3)
        assert one.rank_on("c", 3) == 1 - rank
        assert "from 9\n" in one.run("c").log(1 - rank, 3), "the shard that somebody had copied for it"
        assert counted(one, "a", 3) == 2, "or a full disk that all share would take one spare after the other"
        card = (one.run("a").log_dir / "incident_1.txt").read_text()
        assert f"saved     nothing: rank {1 - rank}: [Errno 28] No space left on device\n" in card
        assert "step 9, lost 9 steps\n" in card
        card = (one.run("a").log_dir / "incident_2.txt").read_text()
        assert card.startswith(f"incident 2  rank {1 - rank} of 2 could not be started")
        assert lack in card
        assert f"place     node c takes the place of node b: rank {1 - rank}\n" in card
        for name in "ac":
            one.run(name).signal(signal.SIGTERM)
        assert [one.run(name).ends() for name in "ac"] == [143, 143]


@contextmanager
def listening(host: Host, port: int) -> Iterator[None]:
    """Somebody else has this port of the host."""
    with host.inside():
        taken = socket.create_server((host.address, port))
    with taken:
        yield
