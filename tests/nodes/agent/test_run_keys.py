"""A run's keys as values, in a real etcd."""

from collections.abc import Iterator

import pytest

from faultrun.model.observed.node_fact import NodeStatus
from faultrun.model.plan import Ledger, Plan, Reason
from faultrun.model.spec.nodes_spec import EtcdAccess
from faultrun.model.topology import BootId, NodeId, RunId, Topology
from faultrun.nodes.agent.run_keys import ROOT, RunKeys
from faultrun.nodes.etcd.answers import EtcdReplaced, Json
from faultrun.nodes.etcd.gateway import WITHIN_S, Answered, Gateway
from faultrun.nodes.etcd.lease import grant
from faultrun.nodes.etcd.store import PrefixState, WriteOutcome, read
from faultrun.nodes.etcd.transactions import Committed, GuardFailed
from faultrun.nodes.values.membership import (
    BODIES,
    PLAN_KEY,
    ROSTERS,
    SMALL_BODIES,
    CommonKeys,
    alarm_key,
    node_key,
)
from faultrun.nodes.values.roster import Alarm, PlanHeader, PlanPhase, Roster, RosterEntry, Statement
from faultrun.nodes.values.transaction import Absent, NothingNewer, Put, StoredValue, Transaction, Unchanged
from support.nodes.etcd_cluster import one_etcd
from support.nodes.node_facts import node_fact

A, BOOT = NodeId("a"), BootId("boot")
HEADER = PlanHeader(incarnation=3, phase=PlanPhase.GO, roster="r", body="b", run_s=4.5)
ALARM = Alarm(incarnation=3, node=A, why="rank 1 was killed")
ROSTER = Roster(entries=(RosterEntry(node=A, slots=2, boot=BOOT, peer_addr="10.0.0.1:7"),))
PLAN = Plan(
    incarnation=3,
    topology=Topology(nodes=()),
    reason=Reason.FIRST,
    point=None,
    start_at_s=4.5,
    ledger=Ledger(),
)


class ReadsOn(Gateway):
    """A watch of ``keys`` reads what was written since, while the answer is on its way."""

    keys: RunKeys

    def ask(self, path: str, body: Json, *, within_s: float = WITHIN_S) -> Answered:
        answered = super().ask(path, body, within_s=within_s)
        self.keys.common(PrefixState(keys={}, revision=int(answered.result["header"]["revision"]) + 1))
        return answered


def test_a_store_that_goes_on_while_it_answers_has_not_gone_back_in_time(gateway: Gateway) -> None:
    late = ReadsOn(EtcdAccess(endpoints=(gateway.current,)), attempt_s=20.0)
    late.keys = RunKeys(late, RunId("late"))
    late.keys.same_store()
    with pytest.raises(EtcdReplaced, match="gone back in time"):
        late.keys.same_store()
    late.close()


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with one_etcd(tmp_path_factory.mktemp("etcd")) as alone:
        gateway = Gateway(EtcdAccess(endpoints=(alone.endpoint,)), attempt_s=20.0)
        yield gateway
        gateway.close()


@pytest.fixture
def run_id(request: pytest.FixtureRequest) -> RunId:
    return RunId(request.node.name)


@pytest.fixture
def keys(gateway: Gateway, run_id: RunId) -> RunKeys:
    return RunKeys(gateway, run_id)


def written(keys: RunKeys, key: str, value: StoredValue, *, lease: int = 0) -> WriteOutcome:
    put = Put(key=key, value=value, leased=bool(lease))
    return keys.commit(Transaction(what="test", compares=(Absent(key=key),), then=(put,)), lease)


def common(keys: RunKeys, gateway: Gateway, run_id: RunId) -> CommonKeys:
    found = keys.common(read(gateway, f"{ROOT}/{run_id}/all/"))
    assert found is not None
    return found


def test_what_all_nodes_watch_is_read_as_written(keys: RunKeys, gateway: Gateway, run_id: RunId) -> None:
    assert common(keys, gateway, run_id).header is None
    first = written(keys, PLAN_KEY, HEADER)
    written(keys, alarm_key(3), ALARM)
    found = common(keys, gateway, run_id)
    assert isinstance(first, Committed)
    assert (found.header, found.header_changed, found.alarms) == (HEADER, first.revision, (ALARM,))
    assert isinstance(written(keys, PLAN_KEY, HEADER), GuardFailed)


def test_a_statement_has_the_lease_that_it_ends_with(keys: RunKeys, gateway: Gateway, run_id: RunId) -> None:
    fact = node_fact(node=A, boot=BOOT, at_s=1.0, incarnation=-1, status=NodeStatus.JOINED)
    lease = grant(gateway, 30.0).lease
    written(keys, node_key(A, BOOT), Statement(fact=fact, peer_addr="10.0.0.1:7"), lease=lease)
    nodes = keys.nodes(read(gateway, f"{ROOT}/{run_id}/node/"))
    assert nodes is not None
    assert [(one.statement.fact, one.lease) for one in nodes.stated] == [(fact, lease)]
    assert keys.others_are_here(NodeId("b"))
    assert not keys.others_are_here(A)


def test_a_large_part_is_fetched_by_its_name_or_is_not_there(keys: RunKeys) -> None:
    written(keys, f"{ROSTERS}r", ROSTER)
    assert keys.fetch(f"{ROSTERS}r") == ROSTER
    assert keys.fetch(f"{ROSTERS}other") is None


def test_a_small_plan_is_read_with_what_all_watch_and_a_large_one_by_its_name(
    keys: RunKeys, gateway: Gateway, run_id: RunId
) -> None:
    written(keys, f"{SMALL_BODIES}b", PLAN)
    written(keys, f"{BODIES}other", PLAN)
    watched = read(gateway, f"{ROOT}/{run_id}/all/")
    assert keys.small_parts(watched) == {f"{BODIES}b": PLAN}
    assert keys.small_parts(None) == {}
    assert keys.fetch(f"{BODIES}other") == PLAN
    assert keys.everything().parts == {f"{BODIES}b": PLAN, f"{BODIES}other": PLAN}


def test_guards_hold_what_they_say(keys: RunKeys, gateway: Gateway, run_id: RunId) -> None:
    written(keys, PLAN_KEY, HEADER)
    found = common(keys, gateway, run_id)
    for compare, outcome in (
        (Unchanged(key=PLAN_KEY, changed=found.header_changed + 1), GuardFailed),
        (NothingNewer(key="all/", revision=found.header_changed - 1), GuardFailed),
        (NothingNewer(key="all/", revision=found.header_changed), Committed),
    ):
        put = Put(key=alarm_key(3), value=ALARM)
        done = keys.commit(Transaction(what="test", compares=(compare,), then=(put,)), 0)
        assert isinstance(done, outcome)


def test_what_nobody_of_us_wrote_is_as_if_it_were_not(keys: RunKeys, gateway: Gateway, run_id: RunId) -> None:
    written(keys, PLAN_KEY, ALARM)
    found = common(keys, gateway, run_id)
    assert found.header is None
    assert found.header_changed > 0
