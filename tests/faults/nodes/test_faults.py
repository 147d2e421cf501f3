"""Whole runs over several hosts whose network, disks, clocks, programs or ports are not as they should be."""

import os
import shutil
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from support.checkpoints.ckpt_bytes import save
from support.machine.clocks import an_hour_ahead
from support.machine.processes import let_go, lives, wait_until
from support.machine.small_disk import fill, small_disk
from support.nodes.hosts import Host
from support.nodes.several_nodes import STORE, Job, job
from support.runs import HELD_SAVE, PRELUDE

pytestmark = pytest.mark.slow

TAKEN = 29777
NOBODY_IS_LOST = "--lease_ttl=30s"
A_BUSY_MACHINE_KEEPS = "--lease_ttl=5s"
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
TRAINS = "train()\n"
HELD = (
    HELD_SAVE
    + """
if life == 0:
    signal.signal(signal.SIGTERM, held_save)
train()
"""
)


def counted(one: Job, name: str, incarnation: int) -> int:
    """The restarts that count against ``--max_restarts``, by the plan of this incarnation."""
    plan: dict[str, Any] = one.run(name).event("PlanAdopted", incarnation=incarnation)["plan"]
    return len(plan["ledger"]["restarts"])


def its_place_goes(one: Job, name: str, *, to: str, incarnation: int) -> None:
    """Wait until ``to`` trains for ``name``, whose worker must be dead by then."""
    rank = one.rank_on(name, incarnation)
    pid = one.run(name).worker(rank)
    one.run(to).event("WorkerStarted", incarnation=incarnation + 1, rank=rank)
    assert not lives(pid)
    one.run(name).event("MembershipLost", incarnation=incarnation)


def test_what_is_lost_one_way_is_charged_to_nobody_and_never_has_two_train(tmp_path: Path) -> None:
    with job(tmp_path, "a", "b", "c", script=TRAINS, words=(A_BUSY_MACHINE_KEEPS,)) as one:
        store, network = one.host(STORE), one.network
        one.trains_with_a_spare("a", "b", spare="c")

        network.lose(one.host("a"), to=one.host("b"))
        one.run("a").kill(one.rank_on("a"))
        one.trains("a", "b", incarnation=1)

        network.lose(one.host("b"), to=store)
        its_place_goes(one, "b", to="c", incarnation=1)
        one.trains("a", "c", incarnation=2)
        network.heal()
        wait_until(lambda: "spare of run" in one.run("b").text, what="b as a spare")

        network.lose(store, to=one.host("a"))
        its_place_goes(one, "a", to="b", incarnation=2)
        one.trains("b", "c", incarnation=3)

        network.lose(one.host("b"), to=one.host("c"))
        workers = [one.run(name).worker(one.rank_on(name, 3)) for name in "bc"]
        store.freeze()
        for name in "bc":
            one.run(name).event("MembershipLost", incarnation=3)
        # It is told before the first dies.
        wait_until(lambda: not any(lives(pid) for pid in workers), what="the end of what was fenced")
        store.thaw()
        one.trains("b", "c", incarnation=4)
        assert counted(one, "b", 4) == 1, "only the rank that was killed"
        card = (one.run("b").log_dir / "incident_4.txt").read_text()
        assert "not counted" in card
        assert "SIGKILL" not in card, "it was our own"


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


def test_a_lost_node_is_back_before_the_others_have_saved_and_a_spare_comes_late(tmp_path: Path) -> None:
    with job(tmp_path, "a", "b", "c", script=HELD, words=("--grace=60s", A_BUSY_MACHINE_KEEPS)) as one:
        one.start("a", "b")
        one.trains("a", "b")
        rank = one.rank_on("a")
        pipe = tmp_path / "a" / f"let_go_{rank}"
        os.mkfifo(pipe)
        one.host("b").kill()
        one.run("a").said(rank, "saving")
        one.start("b")
        wait_until(lambda: len(one.run("b").events("RunStarted")) == 2, what="b again")
        let_go(pipe)
        one.trains("a", "b", incarnation=1)
        (card,) = {(one.run(name).log_dir / "incident_1.txt").read_text() for name in "ab"}
        assert card.startswith(
            f"incident 1  node b was lost   rank {1 - rank} died with it; rank {rank} stop"
        )
        assert "not counted" in card

        one.host("b").kill()
        wait_until(lambda: "waiting for b, until" in one.run("a").text, what="a word of the wait")
        one.start("c")
        one.trains("a", "c", incarnation=2)

        one.run("c").signal(signal.SIGTERM)
        assert one.run("c").ends() == 143
        one.run("a").event("GaspRequested", incarnation=2)
        one.run("a").signal(signal.SIGTERM)
        assert one.run("a").ends() == 143
        assert "no save was reported; exit code 143, 2 restarts" in one.run("a").text


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


def test_a_node_that_found_only_a_torn_save_while_another_still_saved_does_not_end_the_run(
    tmp_path: Path,
) -> None:
    saves = tmp_path / "ck"
    program = (sys.executable, str(tmp_path / "train.py"), str(saves))
    held = SAVES.replace(
        "def write(path):",
        "def write(path):\n    if life == 0:\n        say('saving')\n        open(f'let_go_{rank}').read()",
    )
    words = (f"--checkpoint_dir={saves}", "--grace=60s", NOBODY_IS_LOST)
    with job(
        tmp_path, "a", "b", script=held + "say('from', first)\ntrain()\n", program=program, words=words
    ) as one:
        one.start("a", "b")
        one.trains("a", "b")
        rank = one.rank_on("a")
        os.mkfifo(tmp_path / "a" / f"let_go_{rank}")
        torn = save(saves / "step_3.pt", b"PK\x03\x04" + bytes(100))
        one.run("b").kill(1 - rank)
        one.run("a").said(rank, "saving")
        refused = one.run("b").event("NothingWhole")["refused"]
        assert [refusal["path"] for refusal in refused] == [str(torn)]
        let_go(tmp_path / "a" / f"let_go_{rank}")
        one.trains("a", "b", incarnation=1)
        for name in "ab":
            one.run(name).said(one.rank_on(name, 1), "from 9", 1)
            one.run(name).signal(signal.SIGTERM)
        assert [one.run(name).ends() for name in "ab"] == [143, 143]


@contextmanager
def listening(host: Host, port: int) -> Iterator[None]:
    """Somebody else has this port of the host."""
    with host.inside():
        taken = socket.create_server((host.address, port))
    with taken:
        yield
