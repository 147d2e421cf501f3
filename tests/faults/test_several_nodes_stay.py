"""A rank dies on one of two hosts, and the others of both keep their processes."""

import sys
from pathlib import Path

import pytest

from support.several_nodes import Job, job

pytestmark = [pytest.mark.slow, pytest.mark.torch]

TRAIN = Path(__file__).parent.parent / "sdk" / "scripts" / "train_stay.py"
STEPS = 20


def trained(folder: Path, *kills: str) -> tuple[Job, list[str]]:
    """Four ranks on two hosts, to their end; what each ended with, to the bit."""
    out = folder / "out"
    out.mkdir(parents=True)
    program = (sys.executable, "-u", str(TRAIN), str(STEPS), "ddp", *kills)
    # A newcomer starts cold, and the machine may be slow.
    words = ("--standby=none", "--rejoin_timeout=120s")
    with job(folder, "a", "b", program=program, framework="torch", per_node=2, words=words) as one:
        environ = {"OUT": str(out), "CKPT": str(folder / "ck"), "GLOO_SOCKET_IFNAME": "eth0"}
        for name in "ab":
            one.start_as(name, environ=environ)
        ends = [one.run(name).ends(240) for name in "ab"]
        assert ends == [0, 0], one.run("a").text + one.run("b").text
    return one, [(out / f"final_{rank}").read_text() for rank in range(4)]


def test_a_death_costs_no_other_rank_of_either_host_its_process_and_no_bit(tmp_path: Path) -> None:
    """One on each host: first where no rank 0 is, then rank 0 beside the store that all meet over."""
    _, undisturbed = trained(tmp_path / "undisturbed")
    one, ends = trained(tmp_path / "killed", "kill-3-8-backward", "kill-0-14-update")
    assert ends == undisturbed
    for name in "ab":
        run = one.run(name)
        assert [line["plan"]["kept"] for line in run.events("PlanAdopted")] == [[], [0, 1, 2], [1, 2, 3]]
        assert "incarnation 1: rank 3 started again, 3 workers stayed" in run.text
        assert run.card(1) == one.run("a").card(1)
    assert "resume    the memory of ranks 0 1 2, which stayed" in one.run("a").card(1)
    lines = [(line["incarnation"], line["rank"]) for n in "ab" for line in one.run(n).events("WorkerStarted")]
    assert sorted(lines) == [(0, 0), (0, 1), (0, 2), (0, 3), (1, 3), (2, 0)]
    pids = [
        {line.split()[1] for line in (tmp_path / "killed" / "out" / f"steps_{rank}").read_text().splitlines()}
        for rank in range(4)
    ]
    assert [len(one) for one in pids] == [2, 1, 1, 2]
