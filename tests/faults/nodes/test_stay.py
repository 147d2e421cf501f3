"""A rank dies on one of two hosts, and the others of both keep their processes."""

import sys
from pathlib import Path

import pytest

from examples.codes import undisturbed
from support.machine.processes import wait_until
from support.nodes.several_nodes import Job, job
from support.places import TESTS

pytestmark = [pytest.mark.slow, pytest.mark.torch]

TRAIN = TESTS / "sdk" / "scripts" / "train_stay.py"
STEPS = 24
STANDS = "hang-3-20-begin"
"""The others wait in the collective of that step when the host is lost."""


IMPORTS = ("torch.distributed", "torch.nn.parallel")


def ends(out: Path) -> list[str]:
    """What each of four ranks ended with, to the bit."""
    return [(out / f"final_{rank}").read_text() for rank in range(4)]


def undisturbed_on_one_host(out: Path) -> list[str]:
    """The same of a run without a launcher."""
    out.mkdir()
    environ = {"OUT": str(out), "CKPT": str(out / "ck")}
    undisturbed(TRAIN, str(STEPS), "ddp", imports=IMPORTS, cwd=out, workers=4, environ=environ)
    return ends(out)


def trained(folder: Path, *faults: str) -> tuple[Job, list[str]]:
    """Four ranks on two hosts, to their end, and what they ended with.

    The host of ranks 2 and 3 is lost once one of them ``STANDS``, and a third has their places.
    """
    out = folder / "out"
    out.mkdir(parents=True)
    program = (sys.executable, "-u", str(TRAIN), str(STEPS), "ddp", *faults)
    # A newcomer starts cold, and the machine may be slow.
    words = ("--standby=none", "--rejoin_timeout=120s")
    with job(folder, "a", "b", "c", program=program, framework="torch", per_node=2, words=words) as one:
        environ = {"OUT": str(out), "CKPT": str(folder / "ck"), "GLOO_SOCKET_IFNAME": "eth0"}
        for name in "ab":
            one.start_as(name, environ=environ)
        lost = lose_a_host(one, out, environ)
        left = [name for name in "abc" if name != lost]
        codes = [one.run(name).ends(240) for name in left]
        assert codes == [0, 0], "".join(one.run(name).text for name in left)
    return one, ends(out)


def lose_a_host(one: Job, out: Path, environ: dict[str, str]) -> str:
    """The name of the host that had rank 3."""
    one.run("a").event("FirstStep", incarnation=0)
    one.start_as("c", environ=environ)
    rank = int(STANDS.split("-")[1])
    wait_until(
        (out / f"struck_{STANDS.removeprefix('hang-').replace('-', '_')}").exists,
        within_s=240,
        what=f"rank {rank} to stand still",
    )
    (lost,) = (n for n in "ab" if rank in one.run(n).events("IncarnationStarted", incarnation=0)[0]["ranks"])
    one.host(lost).kill()
    return lost


def test_neither_a_death_nor_a_lost_host_costs_another_rank_its_process_or_a_bit(tmp_path: Path) -> None:
    """A rank of each host, first where no rank 0 is, then rank 0; then the host without it, for a spare."""
    one, found = trained(tmp_path / "killed", "kill-3-8-backward", "kill-0-14-update", STANDS)
    assert found == undisturbed_on_one_host(tmp_path / "undisturbed")
    (stayed,) = (name for name in "ab" if 0 in one.run(name).events("IncarnationStarted")[0]["ranks"])
    (lost,) = {"a", "b"} - {stayed}
    plans = {name: [line["plan"]["kept"] for line in one.run(name).events("PlanAdopted")] for name in "abc"}
    kept = [[], [0, 1, 2], [1, 2, 3], [0, 1]]
    assert plans == {stayed: kept, lost: kept[:3], "c": kept[3:]}
    for name in (stayed, lost):
        run = one.run(name)
        assert "incarnation 1: rank 3 started again, 3 workers stayed" in run.text
        assert run.card(1) == one.run(stayed).card(1)
    assert "resume    the memory of ranks 0 1 2, which stayed" in one.run(stayed).card(1)
    card = one.run(stayed).card(3)
    assert card == one.run("c").card(3)
    assert card.startswith(f"incident 3  node {lost} was lost at step 19   ranks 2 3 died with it\n")
    assert f"place     node c takes the place of node {lost}: ranks 2 3\n" in card
    assert "resume    the memory of ranks 0 1, which stayed" in card
    assert "not counted" in card
    lines = [
        (line["incarnation"], line["rank"]) for n in "abc" for line in one.run(n).events("WorkerStarted")
    ]
    assert sorted(lines) == [(0, 0), (0, 1), (0, 2), (0, 3), (1, 3), (2, 0), (3, 2), (3, 3)]
    pids = [
        {line.split()[1] for line in (tmp_path / "killed" / "out" / f"steps_{rank}").read_text().splitlines()}
        for rank in range(4)
    ]
    assert [len(one) for one in pids] == [2, 1, 2, 3]
