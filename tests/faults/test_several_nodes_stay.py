"""A rank dies on one of two hosts, and the others of both keep their processes."""

import sys
from pathlib import Path

import pytest

from support.several_nodes import Job, job

pytestmark = [pytest.mark.slow, pytest.mark.torch]

TRAIN = Path(__file__).parent.parent / "sdk" / "scripts" / "train_stay.py"
STEPS = 24


def trained(folder: Path, *kill: str) -> tuple[Job, list[str]]:
    """Four ranks on two hosts, to their end; what each ended with, to the bit."""
    out = folder / "out"
    out.mkdir(parents=True)
    program = (sys.executable, "-u", str(TRAIN), str(STEPS), "ddp", *kill)
    words = ("--standby=none",)
    with job(folder, "a", "b", program=program, framework="torch", per_node=2, words=words) as one:
        environ = {"OUT": str(out), "CKPT": str(folder / "ck"), "GLOO_SOCKET_IFNAME": "eth0"}
        for name in "ab":
            one.start_as(name, environ=environ)
        assert [one.run(name).ends(120) for name in "ab"] == [0, 0], one.run("a").text + one.run("b").text
        return one, [(out / f"final_{rank}").read_text() for rank in range(4)]


def test_a_death_costs_no_other_rank_of_either_host_its_process_and_no_bit(tmp_path: Path) -> None:
    _, undisturbed = trained(tmp_path / "undisturbed")
    one, ends = trained(tmp_path / "killed", "kill-3-8-backward", "kill-0-16-update")
    assert ends == undisturbed
    for name in "ab":
        run = one.run(name)
        assert [line["plan"]["kept"] for line in run.events("PlanAdopted")] == [[], [0, 1, 2], [1, 2, 3]]
    started = {
        (line["incarnation"], line["rank"]) for n in "ab" for line in one.run(n).events("WorkerStarted")
    }
    assert started == {(0, 0), (0, 1), (0, 2), (0, 3), (1, 3), (2, 0)}
