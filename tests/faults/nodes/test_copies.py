"""A host is lost with a shard that no other rank has: the next node had a copy of it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.lightly import lightly
from support.machine.free_port import free_port
from support.machine.processes import wait_until
from support.nodes.several_nodes import job
from support.places import TESTS

pytestmark = [pytest.mark.slow, pytest.mark.torch]

TRAIN = TESTS / "sdk" / "scripts" / "train_stay.py"
PROGRAM = (sys.executable, "-u", str(TRAIN), "12", "fsdp", "every-1", "copies")
STANDS_AT = 8


def variables(folder: Path) -> dict[str, str]:
    for name in ("out", "ck"):
        (folder / name).mkdir(parents=True)
    return {"OUT": str(folder / "out"), "CKPT": str(folder / "ck")}


def ends(folder: Path) -> list[str]:
    """What each rank ended with, to the bit."""
    return [(folder / "out" / f"final_{rank}").read_text() for rank in range(2)]


def undisturbed(folder: Path) -> list[str]:
    """The same training without faultrun."""
    shared = {**os.environ, **lightly(), **variables(folder), "WORLD_SIZE": "2"}
    shared |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    ranks = [subprocess.Popen(PROGRAM, env={**shared, "RANK": str(rank)}) for rank in range(2)]
    assert [rank.wait(240) for rank in ranks] == [0, 0]
    return ends(folder)


def test_a_shard_that_died_with_its_host_costs_no_more_steps_than_lie_between_copies(tmp_path: Path) -> None:
    """All of the host is killed, its supervisor too, and nothing was ever saved on a disk before."""
    program = (*PROGRAM, f"hang-1-{STANDS_AT}-begin")
    folder = tmp_path / "lost"
    environ = {"GLOO_SOCKET_IFNAME": "eth0", **variables(folder)}
    saves = folder / "ck"
    words = ("--standby=none", "--rejoin_timeout=120s", "--backoff=10ms..20ms", f"--checkpoint_dir={saves}")
    with job(folder, "a", "b", "c", program=program, framework="torch", words=words) as one:
        for name in "ab":
            one.start_as(name, environ=environ)
        one.run("a").event("FirstStep", incarnation=0)
        one.start_as("c", environ=environ)
        one.run("c").event("RunStarted")
        # Whoever enters this step has waited until the next node has its shard as of the last one.
        struck = folder / "out" / f"struck_1_{STANDS_AT}_begin"
        wait_until(struck.exists, within_s=240, what="rank 1 to stand still")
        assert not list(saves.glob("rank_*/*.pt"))
        (lost,) = (name for name in "ab" if one.rank_on(name) == 1)
        one.host(lost).kill()
        (stayed,) = {"a", "b"} - {lost}
        codes = [one.run(name).ends(240) for name in (stayed, "c")]
        assert codes == [0, 0], "".join(one.run(name).text for name in (stayed, "c"))
    run = one.run(stayed)
    saved = {(line["rank"], line["step"], line["memory"]) for line in run.events("GaspSaved")}
    assert (0, STANDS_AT - 1, False) in saved
    assert (1, STANDS_AT - 1, True) in saved
    card = run.card(2)
    assert card == one.run("c").card(2)
    assert "rank 1 by its memory snapshot" in card
    assert "not saved" not in card
    assert f"gasp-step_{STANDS_AT - 1}.pt   step {STANDS_AT - 1}" in card
    assert ends(folder) == undisturbed(tmp_path / "undisturbed")
