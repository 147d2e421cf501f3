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

FOR_EACH_RANK = """
import time

here = sys.argv[1]
open(os.path.join(here, f"state-1-rank-{rank}.bin"), "wb").write(b"x")
while life == 0 and not os.path.exists(os.path.join(here, f"state-1-rank-{1 - rank}.bin")):
    time.sleep(0.01)
say("saved")
train()
"""

FAILS_ON_B = """
import time
from faultrun import sdk

folder = sys.argv[1]
with open(os.path.join(folder, f"up_{life}_{rank}"), "w") as up:
    up.write(open(os.environ["RANK_TABLE_FILE"]).read())
while life < 2 and not os.path.exists(os.path.join(folder, f"up_{life}_{1 - rank}")):
    time.sleep(0.01)
sdk.start()
sdk.step(10 * life + 1)
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


FAILS_BY_TURNS = """
import time
from faultrun import sdk

here = os.path.basename(os.getcwd())
open(f"../up_{life}_{rank}", "w").close()
while not (os.path.exists(f"../up_{life}_{1 - rank}") and os.path.exists("../spare_is_there")):
    time.sleep(0.01)
sdk.start()
sdk.step(10 * life + 1)
if here == ("b" if life < 2 else "c" if life < 4 else ""):
    sys.exit(3)
if life < 4:
    train()
sdk.done()
"""


def trained_by(run: Run, nodes: int) -> bool:
    """Whether as many nodes have done a step."""
    plans = {line["incarnation"]: line["plan"]["topology"]["nodes"] for line in run.events("PlanAdopted")}
    return any(len(plans[line["incarnation"]]) == nodes for line in run.events("FirstStep"))


def cards_of(one: Job, name: str) -> list[Path]:
    """The cards of all incidents on this host."""
    return list(one.run(name).log_dir.glob("incident_*.txt"))


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
        cards = {name: "".join(path.read_text() for path in cards_of(one, name)) for name in left}
        assert {grown in told for told in cards.values()} == {True}
    is_the_same_training(shared)


def test_with_a_file_for_each_rank_it_waits_and_is_not_begun_anew_by_those_who_know_of_none(
    tmp_path: Path,
) -> None:
    shared = tmp_path / "ck"
    shared.mkdir()
    words = (
        *("--nnodes=1:2", "--node_wait=6s", f"--checkpoint_dir={shared}", "--resume_arg=--from={checkpoint}"),
        r"--checkpoint_pattern=state-(?P<step>\d+)-rank-(?P<rank>\d+)\.bin",
    )
    with job(tmp_path, "a", "b", script=FOR_EACH_RANK, words=words) as one:
        one.program = (*one.program, str(shared))
        one.start("a", "b")
        for name in "ab":
            one.run(name).said(one.rank_on(name), "saved")
        seen = one.run("a").event("SaveSeen")["path"]
        one.host("b").kill()
        assert one.run("a").ends() == 69
        why = "(1 node cannot go on: "
        assert why in one.run("a").text
        assert " is one of a file for each rank, and nothing says that these are alike)" in one.run("a").text
        for name in "ab":
            one.start_as(name, f"--log_dir={tmp_path / 'later'}")
        assert [one.run(name).ends() for name in "ab"] == [65, 65]
        for name in "ab":
            assert "no checkpoint of this run is known to node" in one.run(name).text
            assert f"  because: it had {shared}/state-1-rank-" in one.run(name).text
        assert str(seen).startswith(f"{shared}/state-1-rank-")


def test_of_a_fixed_number_a_spare_has_the_place_of_a_host_that_fails_twice_and_a_last_one_keeps_its_own(
    tmp_path: Path,
) -> None:
    (tmp_path / "ck").mkdir()
    words = ("--backoff=10ms..20ms", "--max_restarts=9", f"--checkpoint_dir={tmp_path / 'ck'}")
    program = (sys.executable, str(tmp_path / "train.py"))
    with job(tmp_path, "a", "b", "c", script=FAILS_BY_TURNS, program=program, words=words) as one:
        one.start("a", "b")
        one.run("b").event("IncarnationStarted")
        one.start("c")
        wait_until(lambda: "spare of run" in one.run("c").text, what="a spare")
        (tmp_path / "spare_is_there").touch()
        assert [one.run(name).ends() for name in "abc"] == [0, 0, 0]
        first, *others = plans_of(one, "a")
        second = first.replace("b", "c")
        assert others == [first, second, second, second]
        assert plans_of(one, "b") == [first, first], "it really gets no rank"
        why = "failed 2 times in a row while others worked"
        for name in "ac":
            assert f"  workers   node b is set aside: its ranks {why}" in one.run(name).card(2)
            assert f"; node c keeps its place (its ranks {why}): no spare was there" in one.run(name).card(4)
        assert f"this node gets no rank as long as others can: its ranks {why}" in one.run("b").text


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
