"""What the keys of several nodes mean to somebody who looks: who is there, who is lost, what comes next."""

import io
from dataclasses import replace

import pytest
from rich.console import Console

from faultrun.model.exits import Signaled
from faultrun.model.incident import Aftermath, Cause, Incident
from faultrun.model.observed.elastic import NodeAside, SlotLedger, Vacant
from faultrun.model.observed.node_fact import NodeStatus
from faultrun.model.plan import Ledger, Plan, Reason, Restart
from faultrun.model.spec.run_settings import RunSettings
from faultrun.model.spec.run_spec import RestartPolicy
from faultrun.model.topology import BootId, NodeId, Topology
from faultrun.nodes.values.membership import BODIES, ROSTERS, CommonKeys, KnownKeys, NodeKeys, Stated
from faultrun.nodes.values.roster import (
    Alarm,
    Leadership,
    PlanHeader,
    PlanPhase,
    Roster,
    RosterEntry,
    Statement,
)
from faultrun.nodes.view import nodes_status
from faultrun.observe.status.screen import fitted
from faultrun.observe.status.status import AgreedState, RunStatus, document
from faultrun.observe.status.words import brief, lines, where_files_are
from support.nodes.node_facts import fact_with, node_fact

HEADER = PlanHeader(incarnation=2, phase=PlanPhase.GO, roster="r", body="b", run_s=40.0)
PLAN = Plan(
    incarnation=2,
    topology=Topology(nodes=()),
    reason=Reason.FAULT,
    point=None,
    start_at_s=0,
    ledger=Ledger(restarts=(Restart(at_s=1, step=5),), incidents=3, total_restarts=2),
)

KILLED = Incident(
    number=3, incarnation=1, at_s=5, cause=Cause.SIGNAL, rank=1, status=Signaled(signum=9),
    followers=(0, 2, 3), explanation="killed by SIGKILL", node=NodeId("a"), step=60,
)  # fmt: skip
TOLD = replace(
    PLAN,
    aftermath=Aftermath(incident=KILLED),
    settings=RunSettings(policy=RestartPolicy(max_restarts=5), log_dir="/shared/logs"),
    ledger=replace(PLAN.ledger, high_step=60),
)


def entry(name: str) -> RosterEntry:
    return RosterEntry(node=NodeId(name), slots=2, boot=BootId(f"boot-{name}"), peer_addr=f"[fd00::{name}]:7")


def stated(name: str, created: int, boot: str = "", status: NodeStatus = NodeStatus.RUNNING) -> Stated:
    fact = node_fact(
        node=NodeId(name), boot=BootId(boot or f"boot-{name}"), at_s=0, incarnation=2, status=status
    )
    said = Statement(fact=replace(fact, addr=f"10.0.0.{created}"), peer_addr="")
    return Stated(statement=said, created=created, changed=created, lease=1)


def seen(
    header: PlanHeader | None,
    *here: Stated,
    alarms: tuple[Alarm, ...] = (),
    members: str = "ab",
    plan: Plan = PLAN,
) -> RunStatus:
    leader = Leadership(node=NodeId("a"), boot=BootId("boot-a"), waits="node b")
    common = CommonKeys(revision=9, header=header, coordinator=leader, alarms=alarms)
    roster = Roster(entries=tuple(map(entry, members)))
    parts: dict[str, Roster | Plan] = {f"{ROSTERS}r": roster, f"{BODIES}b": PLAN, f"{BODIES}p": plan}
    return nodes_status(
        "job42", ("e0:2379",), KnownKeys(common=common, nodes=NodeKeys(revision=9, stated=here), parts=parts)
    )


def agreed(status: RunStatus) -> AgreedState:
    assert status.agreed is not None
    return status.agreed


def test_a_member_without_a_statement_is_lost_and_its_next_supervisor_is_a_spare() -> None:
    status = seen(HEADER, stated("b", 4, boot="another"), stated("a", 3))
    assert [(one.node, one.state, one.ranks, one.arrived) for one in status.nodes] == [
        ("a", "alive", (0, 1), 1),
        ("b", "lost", (2, 3), 0),
        ("b", "spare", None, 2),
    ]
    assert status.nodes[1].address == "fd00::b"
    assert "  waits for   node b" in lines(status)


@pytest.mark.parametrize(
    ("phase", "word"),
    [(PlanPhase.PREPARE, "preparing"), (PlanPhase.GO, "running"), (PlanPhase.LOOK, "looking")],
)
def test_each_phase_of_the_plan_has_a_word(phase: PlanPhase, word: str) -> None:
    assert seen(replace(HEADER, phase=phase)).phase == word


def test_a_run_whose_incarnation_is_over_is_draining() -> None:
    over = Alarm(incarnation=2, node=NodeId("b"), why="rank 3 failed\nlong story")
    status = seen(HEADER, stated("a", 3), alarms=(over,))
    assert status.phase == "draining"
    assert "  over        incarnation 2: rank 3 failed" in lines(status)
    assert seen(HEADER, stated("a", 3), alarms=(replace(over, incarnation=1),)).phase == "running"


def test_nobody_is_lost_in_a_run_that_has_ended() -> None:
    end = replace(HEADER, phase=PlanPhase.FINISHED, exit_code=69, why="node b did not come within 10 min")
    status = seen(end, stated("c", 7))
    assert [one.state for one in status.nodes] == ["left", "left", "waits"]
    assert next(lines(status)) == "run job42  ended with exit code 69: node b did not come within 10 min"


def test_a_run_whose_supervisors_are_all_gone_says_how_it_goes_on() -> None:
    gone = [line for line in lines(seen(HEADER)) if line.startswith("  supervisor ")]
    assert gone == ["  supervisor  no supervisor is running; the same command on each node continues the run"]
    assert not [line for line in lines(seen(HEADER, stated("a", 1))) if line.startswith("  supervisor ")]


def test_before_a_plan_nodes_gather() -> None:
    status = seen(None, stated("a", 3, status=NodeStatus.JOINED))
    assert (status.phase, status.nodes[0].state) == ("gathering", "waits")
    assert document(status)["incarnation"] is None
    assert next(lines(status)) == "run job42  gathering  1 node here, no plan yet"


def test_a_run_that_ended_before_its_first_plan_has_no_incarnation() -> None:
    end = PlanHeader(
        incarnation=-1,
        phase=PlanPhase.FINISHED,
        roster="",
        body="",
        run_s=8.0,
        exit_code=69,
        why="nobody came",
    )
    status = seen(end)
    assert (status.phase, status.world_size, status.nodes) == ("ended", 0, ())
    assert document(status)["incarnation"] is None
    assert not [line for line in lines(status) if line.startswith("  restarts")]


def test_of_many_nodes_the_lost_are_shown_and_the_others_counted() -> None:
    members = "".join(chr(code) for code in range(0x4E00, 0x4E00 + 40))
    here = [stated(name, at) for at, name in enumerate(members[:-1], 1)]
    status = seen(HEADER, *here, members=members)
    shown = list(lines(status))
    assert len([line for line in shown if "alive" in line]) == 23
    assert len([line for line in shown if "lost" in line]) == 1
    assert shown[-1] == "  16 more nodes   (--json has all)"
    assert [*where_files_are(status)][-1] == "32 more nodes: LOG_DIR/node_NAME"


def test_a_node_that_cannot_go_on_says_why() -> None:
    one = stated("a", 3, status=NodeStatus.DRAINED)
    said = replace(one.statement, fact=replace(one.statement.fact, failure=(65, "no whole checkpoint\n...")))
    (row,) = (line for line in lines(seen(HEADER, replace(one, statement=said))) if line.startswith("  a "))
    assert "drained: no whole checkpoint  0-1" in row


def test_a_node_tells_which_of_its_ranks_may_hang_and_where() -> None:
    one = stated("a", 3)
    hangs = "rank 1 may hang after step 41: sleeps (state S); at train.py:57 in forward"
    status = seen(
        HEADER,
        replace(one, statement=replace(one.statement, fact=fact_with(one.statement.fact, hangs=hangs))),
    )
    (row,) = (line for line in lines(status) if line.startswith("  a "))
    assert f"running: {hangs}  0-1" in row
    assert document(status)["nodes"][0]["hangs"] == hangs


def test_the_plan_tells_how_many_restarts_are_left_and_where_the_folders_are() -> None:
    status = seen(replace(HEADER, body="p"), stated("a", 3), plan=TOLD)
    assert "  restarts    2 so far; 4 of 5 left in 1h; all again once training is past step 60" in lines(
        status
    )
    assert "  last fault  incident 3  rank 1 of 4 killed by SIGKILL at step 60   failed first; " in "\n".join(
        lines(status)
    )
    assert next(iter(where_files_are(status))) == "node a (10.0.0.3): /shared/logs/node_a"
    data = document(status)
    assert (data["restarts_left"], data["spent"]["allowed"], data["last_incident"]["number"]) == (4, 5, 3)
    assert "card" not in data


def test_restarts_of_long_ago_are_not_held_against_the_run() -> None:
    later = seen(replace(HEADER, body="p", run_s=4000.0), stated("a", 3), plan=TOLD)
    assert "  restarts    2 so far; 5 of 5 left in 1h" in lines(later)


def test_a_run_that_was_given_up_tells_of_the_incident_that_ended_it() -> None:
    why = "3 of 3 restarts within 1h are used up"
    end = replace(HEADER, phase=PlanPhase.FINISHED, exit_code=137, why=why, body="p", last="f")
    final = replace(TOLD, point=None, aftermath=Aftermath(incident=replace(KILLED, number=4)))
    roster = Roster(entries=tuple(map(entry, "ab")))
    parts: dict[str, Roster | Plan] = {f"{ROSTERS}r": roster, f"{BODIES}p": TOLD, f"{BODIES}f": final}
    known = KnownKeys(common=CommonKeys(revision=9, header=end), parts=parts)
    card = agreed(nodes_status("job42", ("e0:2379",), known)).card
    assert card is not None
    assert (card.incident.number, card.restart, card.why) == (4, None, why)


def test_a_rank_that_failed_is_one_of_those_that_there_were() -> None:
    told = Aftermath(incident=replace(KILLED, rank=4), world_size=6)
    status = seen(replace(HEADER, body="p"), stated("a", 3), plan=replace(TOLD, aftermath=told))
    assert "  last fault  incident 3  rank 4 of 6 killed by SIGKILL at step 60" in "\n".join(lines(status))


def test_one_line_says_who_is_there() -> None:
    status = seen(replace(HEADER, body="p"), stated("a", 3), stated("c", 9), plan=TOLD)
    said = "job42  running  incarnation 2  4 ranks on 2 nodes  1 of 2 alive  1 spare  waits for node b"
    assert brief(status) == f"{said}  3 incidents"


def test_survivors_that_wait_and_those_that_stayed_are_told() -> None:
    kept = replace(TOLD, kept=frozenset({0, 2, 3}))
    alarm = Alarm(incarnation=2, node=NodeId("b"), why="rank 1 fell", stays=True)
    status = seen(replace(HEADER, body="p"), stated("a", 3), stated("b", 4), alarms=(alarm,), plan=kept)
    assert (status.phase, agreed(status).kept) == ("replacing", (0, 2, 3))
    assert "after a fault; ranks 0 2 3 stayed" in "\n".join(lines(status))
    card = agreed(status).card
    assert card is not None
    assert card.kept == (0, 2, 3)


def test_it_is_told_which_nodes_the_run_does_without_and_which_is_set_aside() -> None:
    slots = SlotLedger(
        vacant=(Vacant(seat=1, node=NodeId("d"), incarnation=2, why="it was lost"),),
        nodes=(NodeAside(node=NodeId("c"), incarnation=2, why="its ranks failed 2 times in a row"),),
    )
    header, here = (
        replace(HEADER, body="p"),
        (stated("a", 3), stated("b", 4), stated("c", 5, status=NodeStatus.JOINED)),
    )
    status = seen(header, *here, plan=replace(TOLD, slots=slots))
    words = (
        "2 of 3 nodes, without node d: it was lost; node c is set aside: its ranks failed 2 times in a row; "
        "it gets no rank until its --health_check passes"
    )
    assert [(one.node, one.state) for one in status.nodes] == [("a", "alive"), ("b", "alive"), ("c", "aside")]
    said = here[2].statement
    well = replace(here[2], statement=replace(said, fact=fact_with(said.fact, usable=(0, 1))))
    again = seen(header, *here[:2], well, plan=replace(TOLD, slots=slots))
    assert again.nodes[-1].state == "spare", "its health check has passed"
    assert f"  workers     {words}" in list(lines(status))
    assert document(status)["left_out"] == words
    card = agreed(status).card
    assert card is not None
    assert card.workers == words


def test_the_screen_that_watches_shows_the_nodes_too() -> None:
    console = Console(file=io.StringIO(), width=100, height=30, color_system=None)
    console.print(fitted(seen(HEADER, stated("a", 3)), console))
    assert isinstance(console.file, io.StringIO)
    rows = [line.split() for line in console.file.getvalue().splitlines()]
    assert ["b", "lost", "2-3", "fd00::b", "boot-b"] in rows
    assert ["waits", "for", "node", "b"] in rows


@pytest.mark.parametrize(
    ("cause", "words"),
    [
        (Cause.GROWTH, "to be more"),
        (Cause.PLATFORM, "as the platform asked"),
        (Cause.NODE, "after the loss of a node"),
        (Cause.EXIT, "after a fault"),
    ],
)
def test_only_a_fault_is_called_one(cause: Cause, words: str) -> None:
    told = Aftermath(incident=replace(KILLED, cause=cause))
    status = seen(replace(HEADER, body="p"), stated("a", 3), plan=replace(TOLD, aftermath=told))
    assert f"  began       {words}" in list(lines(status))
    assert document(status)["began_after"] == cause.value
