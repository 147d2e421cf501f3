"""A run of several nodes, shown from a real etcd: by its name, among others, and when nothing is there."""

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from benchmarks.harness.long_journal import Shape, write_journal
from click.testing import CliRunner

from faultrun.cli import app
from faultrun.errors import FaultrunError
from faultrun.model.exits import Signaled
from faultrun.model.incident import Aftermath, Cause, Incident
from faultrun.model.plan import Plan
from faultrun.model.spec.nodes_spec import EtcdAccess
from faultrun.model.spec.run_settings import RunSettings
from faultrun.model.spec.run_spec import RestartPolicy
from faultrun.model.topology import NodeId
from faultrun.nodes.agent import run_keys
from faultrun.nodes.etcd.gateway import Gateway
from faultrun.nodes.etcd.store import read, transact
from faultrun.nodes.etcd.transactions import GuardedWrite
from faultrun.nodes.values import membership
from faultrun.nodes.values.roster import PlanHeader, PlanPhase
from faultrun.nodes.values.transaction import Delete, StoredValue
from support.machine.free_port import free_port
from support.nodes.etcd_cluster import one_etcd
from support.nodes.etcd_run import job42, write
from support.runs import FAULTRUN

pytestmark = pytest.mark.long


SHOWN = """\
run job42  running  incarnation 3  4 ranks on 2 nodes
  coordinator a
  waits for   node b
  began       after a fault
  resumed     step 55   /ckpt/55
  workers at  10.0.0.1:29500
  restarts    2 so far; 1 of them count against --max_restarts
  incidents   3
  etcd        {endpoint}
  node  state  says     ranks  address   boot
  a     alive  running  0-1    10.0.0.1  boot-a
  b     lost            2-3    10.0.0.2  boot-b
  c     spare  joined          10.0.0.3  boot-c
"""

CARD = """\
incident 3  rank 1 of 4 killed by SIGKILL at step 60   failed first; ranks 0 2 3 stopped because of it
  cause     out of memory: OOM <b>
  resume    /ckpt/55   step 55, lost 5 steps
  restart   restarting now; 4 of 5 left this hour
"""
BODY = f"{membership.BODIES}b"
KILLED = Incident(
    number=3, incarnation=2, at_s=5, cause=Cause.SIGNAL, rank=1, status=Signaled(signum=9),
    followers=(0, 2, 3), explanation="out of memory: OOM <b>", node=NodeId("a"), step=60,
)  # fmt: skip


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """An etcd that knows job42 alone."""
    with one_etcd(tmp_path_factory.mktemp("etcd")) as member:
        gateway = Gateway(EtcdAccess(endpoints=(member.endpoint,)), attempt_s=20.0)
        write(gateway, "job42", job42())
        gateway.close()
        yield member.endpoint


def said(*words: str) -> str:
    done = CliRunner().invoke(
        app.program(), list(words), "faultrun", catch_exceptions=False, standalone_mode=False
    )
    return done.stdout


def refused(*words: str) -> FaultrunError:
    with pytest.raises(FaultrunError) as caught:
        app.program().main(list(words), "faultrun", standalone_mode=False)
    assert len(str(caught.value).splitlines()) == 3
    return caught.value


def test_the_whole_run_is_shown_with_nothing_but_the_endpoint(endpoint: str) -> None:
    shown = SHOWN.format(endpoint=endpoint)
    assert said("status", f"--rdzv-endpoint={endpoint}", "--rdzv-id=job42") == shown
    assert said("status", f"--rdzv_endpoint={endpoint}") == shown


def test_json_has_everything(endpoint: str) -> None:
    data = json.loads(said("status", f"--rdzv-endpoint={endpoint}", "--json"))
    assert (data["schema"], data["run_id"], data["incarnation"], data["ended"]) == (1, "job42", 3, None)
    spent = data["spent"]
    assert (spent["restarts"], spent["counted"], spent["incidents"], spent["high_step"]) == (2, 1, 3, 60)
    assert (spent["allowed"], spent["left"], data["restarts_left"], data["last_incident"]) == (None,) * 4
    lost = data["nodes"][1]
    assert (lost["node"], lost["state"], lost["ranks"], lost["arrived"]) == ("b", "lost", [2, 3], 0)
    assert [one["arrived"] for one in data["nodes"]] == [1, 0, 2]


def test_the_card_of_an_incident_lies_with_the_nodes(endpoint: str) -> None:
    at = f"--rdzv-endpoint={endpoint}"
    first, *places = said("incident", at).splitlines()
    assert first == "incident 3 of run job42: the card, incident_3.txt, lies with its nodes"
    assert places == ["  node a (10.0.0.1): LOG_DIR/node_a", "  node b (10.0.0.2): LOG_DIR/node_b"]
    assert said("incident", "2", at).startswith("incident 2 of run job42")
    later = refused("incident", "4", at)
    assert later.because == "its plan counts 3; what failed since is known to its nodes alone"
    assert later.hint.startswith("faultrun incident --log_dir=DIR: node a (10.0.0.1): LOG_DIR/node_a; node b")


@contextmanager
def another(endpoint: str, run_id: str, **changed: StoredValue) -> Iterator[Gateway]:
    """A run of that name beside job42, with some keys ``changed``; gone afterwards."""
    gateway = Gateway(EtcdAccess(endpoints=(endpoint,)), attempt_s=20.0)
    write(gateway, run_id, {**job42(), **changed})
    try:
        yield gateway
    finally:
        prefix = f"{run_keys.ROOT}/{run_id}/"
        transact(gateway, GuardedWrite(then=tuple(Delete(key=key) for key in read(gateway, prefix).keys)))
        gateway.close()


def told(log_dir: Path) -> dict[str, StoredValue]:
    """The plan of job42, with what its nodes tell of incident 3, and where their folders are."""
    plan = job42()[BODY]
    assert isinstance(plan, Plan)
    settings = RunSettings(policy=RestartPolicy(max_restarts=5), log_dir=str(log_dir))
    return {BODY: replace(plan, aftermath=Aftermath(incident=KILLED), settings=settings)}


def test_the_newest_card_and_the_rest_of_the_budget_are_in_the_plan(endpoint: str, tmp_path: Path) -> None:
    at = (f"--rdzv-endpoint={endpoint}", "--rdzv-id=told")
    with another(endpoint, "told", **told(tmp_path)):
        assert said("incident", *at) == said("incident", "3", *at) == CARD
        first, *places = said("incident", "2", *at).splitlines()
        assert first == "incident 2 of run told: the card, incident_2.txt, lies with its nodes"
        assert places[0] == f"  node a (10.0.0.1): {tmp_path}/node_a"
        data = json.loads(said("status", *at, "--json"))
        assert (data["restarts_left"], data["last_incident"]) == (
            4,
            {"number": 3, "headline": CARD.splitlines()[0]},
        )


def test_the_report_is_of_what_etcd_knows_and_says_what_it_lacks(endpoint: str, tmp_path: Path) -> None:
    at = (f"--rdzv-endpoint={endpoint}", "--rdzv-id=told")
    with another(endpoint, "told", **told(tmp_path)):
        page = tmp_path / "page.html"
        assert said("report", *at, f"--html={page}").startswith(str(page))
        shown = page.read_text()
        for text in (
            "2 so far; 4 of 5 left in 1h",
            '<td role="cell" data-is="state">lost</td>',
            "OOM &lt;b&gt;",
        ):
            assert text in shown
        assert f"<li>node b (10.0.0.2): {tmp_path}/node_b</li>" in shown
        text = said("report", *at, "--markdown")
        assert text.startswith("# Run told\n\nrunning incarnation 3")
        assert "steps, checkpoints, logs and earlier incidents are in the nodes' journals alone" in text
        assert json.loads(said("report", *at, "--json"))["card"] == CARD.splitlines()
        assert refused("report", *at, "--assume=notice=2h").because == (
            "it needs a node's journal, and none can be read from here"
        )


def test_where_a_folder_of_the_run_can_be_read_the_report_and_every_card_are_from_there(
    endpoint: str, tmp_path: Path
) -> None:
    at = (f"--rdzv-endpoint={endpoint}", "--rdzv-id=told")
    folder = tmp_path / "node_b"
    folder.mkdir()
    write_journal(folder / "journal.jsonl", Shape(events=300, workers=2, incidents=2))
    (folder / "run.json").write_text(json.dumps({"run_id": "told"}))
    (folder / "incident_2.txt").write_text("incident 2  as node b wrote it\n")
    with another(endpoint, "told", **told(tmp_path)):
        assert said("incident", "2", *at) == "incident 2  as node b wrote it\n"
        data = json.loads(said("report", *at, "--json"))
        assert (data["run_id"], data["incidents_total"]) == ("told", 2)
        (folder / "run.json").write_text(json.dumps({"run_id": "another"}))
        assert "incarnations" not in json.loads(said("report", *at, "--json"))


def test_watching_says_what_changes_until_the_run_has_ended(endpoint: str) -> None:
    header = job42()[membership.PLAN_KEY]
    assert isinstance(header, PlanHeader)
    watching = (*FAULTRUN, "status", "--watch", "--interval=0.1")
    with (
        another(endpoint, "told") as gateway,
        subprocess.Popen(
            (*watching, f"--rdzv-endpoint={endpoint}", "--rdzv-id=told"), stdout=subprocess.PIPE, text=True
        ) as watch,
    ):
        assert watch.stdout is not None
        first = watch.stdout.readline()
        assert first.startswith("told  running  incarnation 3  4 ranks on 2 nodes  1 of 2 alive  1 spare")
        end = replace(header, phase=PlanPhase.FINISHED, exit_code=0, why="every rank finished")
        write(gateway, "told", {membership.PLAN_KEY: end})
        assert watch.stdout.readline().startswith("told  ended with exit code 0: every rank finished")
        assert (watch.stdout.read(), watch.wait(30)) == ("", 0)


def test_an_unknown_run_is_answered_with_those_that_are_known(endpoint: str) -> None:
    error = refused("status", f"--rdzv-endpoint={endpoint}", "--rdzv-id=job43")
    assert error.exit_code == 69
    assert (error.because, error.hint) == ("it knows job42", "--rdzv-id=job42")
    with another(endpoint, "told"):
        assert refused("status", f"--rdzv-endpoint={endpoint}").because == "etcd knows job42, told"


def test_etcd_that_is_not_there_is_named() -> None:
    nowhere = f"127.0.0.1:{free_port()}"
    error = refused("status", f"--rdzv-endpoint={nowhere}", "--rdzv-id=job42")
    assert error.exit_code == 69
    assert nowhere in error.what


def test_a_plan_of_which_a_part_cannot_be_read_is_not_shown_as_another(endpoint: str) -> None:
    values = job42()
    del values[f"{membership.BODIES}b"]
    gateway = Gateway(EtcdAccess(endpoints=(endpoint,)), attempt_s=20.0)
    write(gateway, "newer", values)
    error = refused("status", f"--rdzv-endpoint={endpoint}", "--rdzv-id=newer")
    prefix = f"{run_keys.ROOT}/newer/"
    transact(gateway, GuardedWrite(then=tuple(Delete(key=key) for key in read(gateway, prefix).keys)))
    gateway.close()
    assert error.exit_code == 69
    assert error.because == "its plan was written by another version of faultrun"


def test_what_only_a_log_dir_can_tell_is_refused() -> None:
    assert refused("status", "--assume=x", "--rdzv-endpoint=e0").what.startswith("--assume does not go with")
    assert refused("incident", "--log_dir=x", "--rdzv-endpoint=e0").what.startswith("--log_dir does not")
    assert refused("status", "--rdzv-id=job42").because.startswith("it goes with --rdzv-endpoint")
