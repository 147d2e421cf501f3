"""Hosts are lost for good and the others go on without; hosts come back, and get no rank where they fail."""

import json
import sys
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from support.checkpoints.platform_files import table_v1
from support.machine.processes import wait_until
from support.nodes.several_nodes import Job, job
from support.places import TESTS
from support.runs import Run
from support.same_training import is_the_same_training

pytestmark = pytest.mark.slow

SHRINKS = TESTS / "faults" / "scripts" / "shrinks.py"
OF_MINDSPORE = TESTS / "faults" / "scripts" / "shrinks_mindspore.py"
SLOW_S = 300.0
"""Two starts of torch on a machine that is busy."""


FAILS_ON_B = """
import time
from faultrun import sdk

folder = sys.argv[1]
with open(os.path.join(folder, f"up_{life}_{rank}"), "w") as up:
    up.write(open(os.environ["RANK_TABLE_FILE"]).read())
while life < 2 and not os.path.exists(os.path.join(folder, f"up_{life}_{1 - rank}")):
    time.sleep(0.01)
sdk.start()
sdk.step(max(1, 10 * life - 9))
if life < 2 and os.path.basename(os.getcwd()) == "b":
    sys.exit(3)
if life < 2:
    train()
step = 0
while os.environ["WORLD_SIZE"] == "1":
    step += 1
    sdk.step(100 + step)
    time.sleep(0.05)
    if step % 20 == 0:
        with open(os.path.join(folder, "part"), "w") as file:
            file.write("x")
        os.replace(os.path.join(folder, "part"), os.path.join(folder, "ck", f"step-{100 + step}.bin"))
sdk.done()
"""


def trained_by(run: Run, nodes: int) -> bool:
    """Whether as many nodes have done a step."""
    plans = {line["incarnation"]: line["plan"]["topology"]["nodes"] for line in run.events("PlanAdopted")}
    return any(len(plans[line["incarnation"]]) == nodes for line in run.events("FirstStep"))


def plans_of(one: Job, name: str) -> list[str]:
    """The nodes of each incarnation that this one took part in."""
    plans = [line["plan"]["topology"]["nodes"] for line in one.run(name).events("PlanAdopted")]
    return ["".join(seat["node"] for seat in plan) for plan in plans]


def table_of(*addresses: str) -> dict[str, Any]:
    """A rank table of one device on each of these hosts."""
    table = table_v1(*([1] * len(addresses)))
    for server, address in zip(table["server_list"], addresses, strict=True):
        server["server_id"] = address
    return table


@pytest.mark.parametrize(
    ("framework", "script", "rank", "step"),
    [
        pytest.param("torch", SHRINKS, 1, 3, marks=pytest.mark.torch),
        pytest.param(
            "mindspore", OF_MINDSPORE, 0, 2, marks=[pytest.mark.mindspore, pytest.mark.timeout(900)]
        ),
    ],
)
def test_without_a_lost_host_and_with_it_again_it_is_the_same_training(
    tmp_path: Path, framework: str, script: Path, rank: int, step: int
) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    words = ("--nnodes=2:3", "--node_wait=12s", f"--checkpoint_dir={shared / 'ck'}", "--standby=none")
    program = (sys.executable, str(script), str(shared))
    with job(tmp_path, "a", "b", "c", program=program, framework=framework, words=words) as one:
        gloo = {"GLOO_SOCKET_IFNAME": "eth0"}
        for name in "abc":
            one.start_as(name, environ=gloo)
        wait_until((shared / "can_be_killed").exists, within_s=SLOW_S, what=f"step {step + 1}")
        lost = next(name for name in "abc" if one.rank_on(name) == rank)
        left = "".join(name for name in "abc" if name != lost)
        order = plans_of(one, lost)[0]
        one.host(lost).kill()
        small = one.run(left[0])
        wait_until(lambda: trained_by(small, 2) or None, within_s=SLOW_S, what="two hosts")
        card = small.card(1)
        assert f"  workers   2 of 3 nodes, without node {lost}: it was lost" in card
        assert f"step {step}, lost 0 steps" in card, (
            "who lost its peer waits for the end of the lease, and saves"
        )
        one.start_as(lost, environ=gloo)
        assert [one.run(name).ends(SLOW_S) for name in "abc"] == [0, 0, 0]
        sizes = [nodes for nodes, _ in groupby(plans_of(one, left[0]))]
        assert sizes == [order, order.replace(lost, ""), order], "MindSpore may crash in between"
        grown = f"node {lost} is here: 1 node more"
        cards = {
            name: "".join(path.read_text() for path in one.run(name).log_dir.glob("incident_*.txt"))
            for name in left
        }
        assert {grown in told for told in cards.values()} == {True}
    is_the_same_training(shared)


def test_a_host_that_fails_twice_gets_no_rank_until_its_check_passes(tmp_path: Path) -> None:
    well = tmp_path / "well"
    words = (
        *("--nnodes=1:2", f"--health_check=until test -e {well}; do sleep 0.1; done", "--backoff=10ms..20ms"),
        *(f"--checkpoint_dir={tmp_path / 'ck'}", r"--checkpoint_pattern=step-(?P<step>\d+)\.bin"),
    )
    (tmp_path / "ck").mkdir()
    program = (sys.executable, str(tmp_path / "train.py"), str(tmp_path))
    with job(tmp_path, "a", "b", script=FAILS_ON_B, program=program, words=words) as one:
        addresses = {name: one.host(name).address for name in "ab"}
        whole = table_of(*addresses.values())
        (tmp_path / "hccl.json").write_text(json.dumps(whole))
        one.words = (*words, f"--rank_table_file={tmp_path / 'hccl.json'}")
        for name in "ba":
            one.start_as(name, environ={"XDL_IP": addresses[name]})
        one.run("a").event("FirstStep", incarnation=2)
        why = "its ranks failed 2 times in a row while others worked"
        assert f"  workers   1 of 2 nodes, without node b: {why}" in one.run("a").card(2)
        one.run("b").event("OwnNodeAside")
        wait_until((one.run("b").log_dir / "incident_2.txt").exists, what="its own card")
        assert one.run("b").card(2) == one.run("a").card(2)
        well.touch()
        assert [one.run(name).ends(SLOW_S) for name in "ab"] == [0, 0]
        assert plans_of(one, "a") == ["ab", "ab", "a", "ab"], "as the rank table has them"
        assert plans_of(one, "b") == ["ab", "ab", "ab"]
        seen = [json.loads((tmp_path / f"up_{life}_0").read_text()) for life in range(4)]
        assert seen == [whole, whole, table_of(addresses["a"]), whole]
