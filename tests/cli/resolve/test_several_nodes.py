"""One of several nodes: who it is, where all agree, and what is refused because it contradicts itself."""

import json
import socket
import sys
from pathlib import Path

import pytest

from faultrun.cli.nodes.agent_setup import asked_of
from faultrun.cli.options.node_addresses import endpoints, lease_ttl
from faultrun.errors import FaultrunError
from faultrun.model.spec.nodes_spec import AgreementSpec, EtcdAccess, OnAgreementLoss
from faultrun.model.spec.run_spec import RunSpec
from faultrun.model.topology import NodeId, node_folder
from faultrun.platforms.this_machine import address_towards
from support.asking import plan, plan_of_several
from support.checkpoints.platform_files import table_v1

HOST = socket.gethostname()
ETCD = ("--nnodes=2", "--rdzv-backend=etcd", "--rdzv-endpoint=127.0.0.1:2379", "--rdzv-id=job7")
ELSEWHERE = "192.0.2.1"


def agreed(*words: str, environ: dict[str, str] | None = None) -> AgreementSpec:
    found = plan_of_several(*words, environ=environ).agreement
    assert found is not None
    return found


def refused(*words: str, environ: dict[str, str] | None = None) -> FaultrunError:
    with pytest.raises(FaultrunError) as caught:
        plan_of_several(*words, environ=environ)
    assert len(str(caught.value).splitlines()) == 3
    return caught.value


def sizes(spec: RunSpec) -> list[int]:
    assert spec.agreement is not None
    assert {seat.node for seat in spec.topology.nodes} == {""}
    return [seat.slots for seat in spec.topology.nodes]


def test_torchruns_line_with_etcd_names_every_member(script: str) -> None:
    words = (
        *("--nnodes=3", "--nproc-per-node=8", "--rdzv-backend=etcd", "--rdzv-id=job42"),
        "--rdzv-endpoint=e0:2379,https://e1,[::1]:2380",
    )
    spec = plan_of_several(*words, script)
    assert sizes(spec) == [8, 8, 8]
    assert spec.slots == 8
    assert spec.run_id == "job42"
    assert spec.node == HOST
    assert spec.agreement == AgreementSpec(
        etcd=EtcdAccess(endpoints=("e0:2379", "e1:2379", "[::1]:2380"), tls=True)
    )


def test_nodes_are_asked_for_one_run_only_with_equal_text_of_the_script_and_arguments(tmp_path: Path) -> None:
    here = tmp_path / "train.py"
    here.write_text("print(1)\n")
    first = asked_of(plan_of_several(*ETCD, str(here)))
    assert asked_of(plan_of_several(*ETCD, str(here))) == first
    assert asked_of(plan_of_several(*ETCD, str(here), "--lr=1")) != first
    here.write_text("print(2)\n")
    assert asked_of(plan_of_several(*ETCD, str(here))) != first
    assert asked_of(plan_of_several(*ETCD, "--max_restarts=7", str(here))) != first
    below = asked_of(plan_of_several(*ETCD, sys.executable, str(here)))
    here.write_text("print(3)\n")
    assert asked_of(plan_of_several(*ETCD, sys.executable, str(here))) != below
    assert asked_of(plan_of_several(*ETCD, "-m", "json.tool")) == asked_of(
        plan_of_several(*ETCD, "-m", "json.tool")
    )


@pytest.mark.parametrize("backend", ["--rdzv-backend=etcd-v2", "--rdzv-backend=ETCD"])
def test_both_of_torchruns_etcds_are_one(script: str, backend: str) -> None:
    found = agreed("--nnodes=2", backend, "--rdzv-endpoint=127.0.0.1", "--rdzv-id=a", script)
    assert found.etcd.endpoints == ("127.0.0.1:2379",)
    assert found.serve_at == ""


def test_several_endpoints_are_etcds_without_a_word_about_it(script: str) -> None:
    found = agreed("--nnodes=2", "--rdzv-endpoint=127.0.0.1:1,127.0.0.1:2", "--rdzv-id=a", script)
    assert found.etcd.endpoints == ("127.0.0.1:1", "127.0.0.1:2")


def test_msruns_line_needs_no_service_the_first_node_serves(script: str, mindspore_script: str) -> None:
    line = ("--worker_num=24", "--local_worker_num=8", "--master_addr=127.0.0.1")
    first, other = (plan_of_several(*line, f"--node_rank={rank}", mindspore_script) for rank in (0, 1))
    assert sizes(first) == [8, 8, 8]
    assert first.agreement == AgreementSpec(
        etcd=EtcdAccess(endpoints=("127.0.0.1:8118",)), node_rank=0, serve_at="127.0.0.1:8118"
    )
    assert other.agreement == AgreementSpec(etcd=EtcdAccess(endpoints=("127.0.0.1:8118",)), node_rank=1)
    assert (first.run_id, other.run_id) == ("127.0.0.1-8118", "127.0.0.1-8118")
    assert (first.node, other.node) == (f"{HOST}-0", f"{HOST}-1")
    assert agreed(*line, "--node_rank=1", script).etcd.endpoints == ("127.0.0.1:29500",)


@pytest.mark.parametrize(("rank", "name"), [(0, HOST), (1, f"{HOST}-1"), (2, f"{HOST}-2")])
@pytest.mark.parametrize("first", ["leader", "log_dir"])
def test_nodes_of_one_machine_have_names_of_their_own(
    rank: int, name: str, first: str, tmp_path: Path, script: str
) -> None:
    line = ("--nnodes=3", f"--node_rank={rank}", f"--log_dir={tmp_path}")
    if first == "leader":
        named = f"--master_addr={address_towards(ELSEWHERE)}"
    else:
        named = f"--rdzv-endpoint=http://{ELSEWHERE}:2379"
        (folder := tmp_path / node_folder(NodeId(HOST))).mkdir()
        (folder / "run.json").write_text(json.dumps({"spec": {"agreement": {"node_rank": 0}}}))
    assert plan_of_several(*line, named, "--rdzv-id=a", script).node == name


def test_the_port_that_is_named_is_etcds_where_the_first_node_serves_else_the_workers(script: str) -> None:
    line = ("--nnodes=2", "--node_rank=0", "--master_addr=127.0.0.1", "--master_port=4711")
    spec = plan_of_several(*line, script)
    assert spec.agreement is not None
    assert spec.agreement.serve_at == "127.0.0.1:4711"
    assert spec.rendezvous.port is None
    assert plan_of_several(*ETCD, "--master_port=4711", script).rendezvous.port == 4711


def test_torchruns_c10d_names_the_host_that_serves(script: str) -> None:
    line = ("--nnodes=2", "--rdzv-backend=c10d")
    there = agreed(*line, f"--rdzv-endpoint={ELSEWHERE}:29400", script)
    assert (there.serve_at, there.etcd.endpoints) == ("", (f"{ELSEWHERE}:29400",))
    usual = agreed(*line, f"--rdzv-endpoint={ELSEWHERE}", script)
    assert usual.etcd.endpoints == (f"{ELSEWHERE}:29400",)
    here = agreed(*line, "--rdzv-endpoint=localhost", "--node_rank=0", script)
    assert here.serve_at == "127.0.0.1:29400"
    told = agreed(*line, f"--rdzv-endpoint={ELSEWHERE}", "--rdzv-conf=is_host=true", script)
    assert told.serve_at.endswith(":29400")


def test_a_host_that_is_a_service_is_served_at_every_address(script: str) -> None:
    found = agreed("--nnodes=2", "--node_rank=0", f"--master_addr={ELSEWHERE}", script)
    assert found.serve_at in ("[::]:29500", "0.0.0.0:29500")


def test_workers_meet_at_the_address_that_the_others_see(script: str) -> None:
    assert plan_of_several(*ETCD, script).rendezvous.master_addr == "127.0.0.1"
    local = plan_of_several(*ETCD, "--local-addr=127.0.0.2", script)
    assert local.rendezvous.master_addr == "127.0.0.2"
    assert "is not an address of this machine" in refused(*ETCD, f"--local-addr={ELSEWHERE}", script).because


def test_how_long_each_waits_for_whom_is_told(script: str) -> None:
    words = ("--lease_ttl=30s", "--node_wait=1h", "--on_agreement_loss=fence", "--node_name=a.b")
    spec = plan_of_several(*ETCD, *words, "--node_rank=-1", script)
    assert spec.node == "a.b"
    found = spec.agreement
    assert found is not None
    assert (found.lease_ttl_s, found.node_wait_s, found.on_loss) == (30, 3600, OnAgreementLoss.FENCE)
    assert found.node_rank is None


@pytest.mark.parametrize("text", ["2s", "2.5", "11m", "0"])
def test_a_lease_is_whole_seconds_that_etcd_keeps(text: str) -> None:
    with pytest.raises(ValueError, match="whole number of seconds from 3 to 600"):
        lease_ttl(text)


def test_each_node_keeps_its_files_apart_below_the_folder_that_all_share(script: str) -> None:
    logs = plan_of_several(*ETCD, "--node_name=gpu-7.rack", "--log_dir=shared", script).logs
    assert logs.log_dir == "shared/node_gpu-7.rack"
    assert plan("--worker_num=1", "--log_dir=alone", script).spec.logs.log_dir == "alone"


def test_tls_and_password_files_are_named_and_never_read_into_the_run(script: str, tmp_path: Path) -> None:
    names = {key: tmp_path / key for key in ("cacert", "cert", "key", "password_file")}
    for path in names.values():
        path.write_text("very secret")
    conf = ",".join(f"{key}={path}" for key, path in names.items())
    spec = plan_of_several(*ETCD, f"--rdzv-conf={conf},username=faultrun", script)
    assert spec.agreement is not None
    assert spec.agreement.etcd == EtcdAccess(
        endpoints=("127.0.0.1:2379",),
        tls=True,
        ca_file=str(names["cacert"]),
        cert_file=str(names["cert"]),
        key_file=str(names["key"]),
        username="faultrun",
        password_file=str(names["password_file"]),
    )
    assert "very secret" not in repr(spec)
    assert agreed(*ETCD, "--rdzv-conf=protocol=https", script).etcd.tls


@pytest.mark.parametrize(
    ("word", "because"),
    [
        ("--rdzv-conf=username=me,password=hunter2", "every user of this machine can read a command line"),
        (
            "--rdzv-endpoint=http://me:hunter2@e0:2379",
            "a user or password in an address is seen by every user",
        ),
        ("--rdzv-endpoint=me:hunter2@e0:2379", "a user or password in an address is seen by every user"),
    ],
)
def test_a_password_on_the_command_line_is_refused_unrepeated(script: str, word: str, because: str) -> None:
    error = refused(*ETCD, word, script)
    assert error.because == because
    assert "hunter2" not in str(error)


@pytest.mark.parametrize(
    ("conf", "because"),
    [
        ("cert={here}", "cert and key are of use only together"),
        ("username=me", "username and password_file are of use only together"),
        ("cacert={here}.nowhere", "{here}.nowhere: No such file or directory"),
        ("protocol=http,cacert={here}", "http has no certificates"),
    ],
)
def test_half_of_what_etcd_needs_to_know_us_is_refused(script: str, conf: str, because: str) -> None:
    error = refused(*ETCD, f"--rdzv-conf={conf.format(here=script)}", script)
    assert error.because == because.format(here=script)


@pytest.mark.parametrize(
    ("words", "because"),
    [
        (["--nnodes=2"], "nothing says where the 2 nodes find each other"),
        (["--nnodes=2", "--standalone"], "--nnodes=2 asks for 2 nodes, and --standalone for one"),
        (["--nnodes=3", "--worker_num=8"], "8 workers cannot be shared out evenly to 3 nodes"),
        (["--nnodes=2", "--nproc-per-node=4", "--worker_num=9"], "2 nodes with 4 workers each have 8"),
        (["--worker_num=20", "--local_worker_num=8"], "20 workers cannot be shared out to nodes with 8 each"),
        (["--nnodes=1", "--worker_num=8", "--local_worker_num=4"], "the workers are those of 2 nodes"),
        (["--standalone", "--worker_num=8", "--local_worker_num=4"], "the workers are those of 2 nodes"),
        (["--nnodes=2", "--rdzv-backend=etcd", "--rdzv-id=a"], "nothing says where etcd is"),
        (["--nnodes=2", "--rdzv-backend=zookeeper"], "'zookeeper' is none of etcd, etcd-v2, c10d, static"),
        (["--nnodes=2", "--master_addr=a", "--master_port=0"], "every node must know the port"),
        (
            ["--nnodes=2", "--master_addr=localhost"],
            "localhost is every machine's own name, and nothing says which of several nodes this is",
        ),
        (
            ["--nnodes=2", "--node_rank=0", "--master_addr=127.0.0.1", "--fixed_port"],
            "the nodes agree at port 29500 of 127.0.0.1, so the workers need another",
        ),
        (
            ["--nnodes=2", "--rdzv-backend=etcd", "--rdzv-endpoint=127.0.0.1:1"],
            "the nodes of a run find each other by its name, and nothing names this one",
        ),
        (
            ["--nnodes=2", "--rdzv-endpoint=http://127.0.0.1:1,https://127.0.0.1:2", "--rdzv-id=a"],
            "some of it says http and some https",
        ),
    ],
)
def test_what_contradicts_itself_is_refused_at_the_start(script: str, words: list[str], because: str) -> None:
    error = refused(*words, script)
    assert error.because == because
    assert error.exit_code == 64


def test_torchruns_span_of_nodes_begins_with_all_of_them_and_says_so(script: str) -> None:
    assert sizes(plan_of_several(*ETCD, "--nnodes=2:4", script)) == [1, 1, 1, 1]


def test_one_worker_for_each_device_of_every_node(script: str) -> None:
    assert sizes(plan_of_several(*ETCD, script, environ={"CUDA_VISIBLE_DEVICES": "0,1,2"})) == [3, 3]


@pytest.mark.parametrize(
    ("environ", "rank"),
    [
        ({"SLURM_JOB_NUM_NODES": "2", "SLURM_NODEID": "1"}, 1),
        ({"SLURM_JOB_NUM_NODES": "1", "SLURM_NODEID": "0"}, None),  # a job of its own: a spare
        ({"WORLD_SIZE": "2", "RANK": "1"}, 1),
        ({"WORLD_SIZE": "8", "RANK": "3"}, None),
        ({"WORLD_SIZE": "2", "RANK": "1", "LOCAL_RANK": "1"}, None),
        ({"SLURM_JOB_NUM_NODES": "2", "SLURM_NODEID": "1", "FAULTRUN_INCARNATION": "0"}, None),
        ({"PET_NODE_RANK": "1"}, 1),
        ({}, None),
    ],
)
def test_the_platform_says_which_node_this_is(script: str, environ: dict[str, str], rank: int | None) -> None:
    assert agreed(*ETCD, script, environ=environ).node_rank == rank
    assert agreed(*ETCD, "--node_rank=5", script, environ=environ).node_rank == 5


def test_torchs_own_variables_say_where_the_first_node_is(script: str) -> None:
    told = {"MASTER_ADDR": ELSEWHERE, "MASTER_PORT": "2222", "WORLD_SIZE": "2", "RANK": "1"}
    found = agreed("--nnodes=2", script, environ=told)
    assert (found.etcd.endpoints, found.node_rank) == ((f"{ELSEWHERE}:2222",), 1)
    inside = told | {"FAULTRUN_INCARNATION": "0"}
    assert refused("--nnodes=2", script, environ=inside).because.startswith("nothing says where")


def test_the_operators_variables_are_the_whole_of_it(mindspore_script: str) -> None:
    told = {
        "MS_WORKER_NUM": "16", "MS_LOCAL_WORKER": "8", "MS_NODE_RANK": "1", "MS_SCHED_HOST": ELSEWHERE,
        "MS_SCHED_PORT": "2222", "MS_ROLE": "MS_WORKER",
    }  # fmt: skip
    spec = plan_of_several(mindspore_script, environ=told)
    assert sizes(spec) == [8, 8]
    assert spec.agreement == AgreementSpec(etcd=EtcdAccess(endpoints=(f"{ELSEWHERE}:2222",)), node_rank=1)
    uneven = refused(mindspore_script, environ=told | {"MS_WORKER_NUM": "12"})
    assert uneven.because.endswith("12 workers cannot be shared out to nodes with 8")


def test_a_rank_table_of_several_servers_says_who_is_who(script: str, tmp_path: Path) -> None:
    path = tmp_path / "hccl.json"
    path.write_text(json.dumps(table_v1(2, 2)))
    words = (f"--rank_table_file={path}", script)
    spec = plan_of_several(*words, environ={"XDL_IP": "10.0.0.2"})
    assert sizes(spec) == [2, 2]
    assert spec.agreement is not None
    assert spec.agreement.node_rank == 1
    assert spec.agreement.etcd.endpoints == ("10.0.0.1:29500",)
    assert "says 2 for this node" in refused("--local_worker_num=1", *words).because


def test_the_pods_name_is_nobodys_run_where_there_are_several_pods(script: str) -> None:
    pod = {"HOSTNAME": "job-worker-1", "VC_TASK_INDEX": "1"}
    assert plan("--worker_num=1", script, environ=pod).spec.run_id.startswith("job-worker-1-")
    assert refused(*ETCD[:3], script, environ=pod).because.startswith("the nodes of a run find each other")
    assert plan_of_several(*ETCD[:3], script, environ=pod | {"SLURM_JOB_ID": "7"}).run_id == "slurm-7"


def test_one_node_says_that_options_for_several_do_nothing(script: str) -> None:
    words = ("--lease_ttl=30s", "--node_wait=1h", "--on_agreement_loss=hold", "--node_name=a")
    notes = plan("--worker_num=1", *words, script).notes
    assert [note.split(" has no effect here: ")[1] for note in notes] == ["one node agrees with itself"] * 4


def test_an_endpoint_of_another_protocol_is_none() -> None:
    with pytest.raises(ValueError, match="neither HOST:PORT nor https://HOST:PORT"):
        endpoints("ftp://e0:2379")
