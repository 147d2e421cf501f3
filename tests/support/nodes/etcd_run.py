"""A run of two nodes and a spare as etcd knows it: its keys and values, and how a test puts them there."""

from faultrun.model.checkpoint import Kind, RecoveryPoint, Shared
from faultrun.model.observed.node_fact import NodeStatus
from faultrun.model.plan import Ledger, Plan, Reason, Restart
from faultrun.model.topology import BootId, NodeId, RunId, Topology
from faultrun.nodes.agent.run_keys import RunKeys
from faultrun.nodes.etcd.gateway import Gateway
from faultrun.nodes.values import membership
from faultrun.nodes.values.roster import Leadership, PlanHeader, PlanPhase, Roster, RosterEntry, Statement
from faultrun.nodes.values.transaction import Put, StoredValue, Transaction
from support.nodes.node_facts import node_fact


def entry(name: str, address: str) -> RosterEntry:
    """A node with two places and its supervisor at ``address``."""
    return RosterEntry(node=NodeId(name), slots=2, boot=BootId(f"boot-{name}"), peer_addr=f"{address}:4000")


def statement(name: str, address: str, status: NodeStatus) -> tuple[str, Statement]:
    """What it has said last, under its key."""
    boot = BootId(f"boot-{name}")
    fact = node_fact(node=NodeId(name), boot=boot, at_s=0, incarnation=3, status=status, addr=address)
    return membership.node_key(NodeId(name), boot), Statement(fact=fact, peer_addr=f"{address}:4000")


def job42() -> dict[str, StoredValue]:
    """Two nodes of a run, of which one is lost, and a spare."""
    point = RecoveryPoint(
        path="/ckpt/55",
        kind=Kind.PERIODIC,
        global_step=55,
        epoch=None,
        step_in_epoch=None,
        files=(),
        source=Shared(),
    )
    plan = Plan(
        incarnation=3,
        topology=Topology(nodes=()),
        reason=Reason.FAULT,
        point=point,
        start_at_s=0,
        ledger=Ledger(restarts=(Restart(at_s=1, step=5),), incidents=3, total_restarts=2, high_step=60),
    )
    header = PlanHeader(
        incarnation=3,
        phase=PlanPhase.GO,
        roster="r",
        body="b",
        run_s=40.0,
        master_addr="10.0.0.1",
        master_port=29500,
    )
    return {
        f"{membership.ROSTERS}r": Roster(entries=(entry("a", "10.0.0.1"), entry("b", "10.0.0.2"))),
        f"{membership.BODIES}b": plan,
        membership.PLAN_KEY: header,
        membership.COORDINATOR_KEY: Leadership(node=NodeId("a"), boot=BootId("boot-a"), waits="node b"),
        **dict(
            [statement("a", "10.0.0.1", NodeStatus.RUNNING), statement("c", "10.0.0.3", NodeStatus.JOINED)]
        ),
    }


def write(gateway: Gateway, run_id: str, values: dict[str, StoredValue]) -> None:
    """Put them all, as the members of that run would."""
    puts = tuple(Put(key=key, value=value) for key, value in values.items())
    RunKeys(gateway, RunId(run_id)).commit(Transaction(what="a run", compares=(), then=puts), 0)
