"""The environment of a worker, name by name, against what the contract promises for each framework."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from faultrun.frameworks.environment import WorkerLaunchSpec, WorkerPlacement, worker_environment
from faultrun.frameworks.mindspore import needs_scheduler, scheduler_argv, scheduler_environment
from faultrun.model.checkpoint import RankFile, RecoveryPoint
from faultrun.model.exits import WorkerExitCodes
from faultrun.model.observed.elastic import Elastic
from faultrun.model.plan import Plan, Reason
from faultrun.model.spec.run_spec import (
    Command,
    Framework,
    Rendezvous,
    RestartPolicy,
    RunSpec,
    Simulation,
    Supervision,
)
from faultrun.model.spec.windows import Windows
from faultrun.model.spec.worker_identity import RankEnv, WorkerIdentity
from faultrun.model.topology import BootId, NodeSlots, RunId, Topology
from faultrun.sdk.session import read_session
from faultrun.supervisor.launch.prepare import values
from support.places import GOLDEN
from support.stories.specs import a_spec
from support.stories.story import NODE, checkpoint, first_plan

WORKERS = 4
FIRST = first_plan(WORKERS)
RESUMED = replace(FIRST, incarnation=2, reason=Reason.FAULT, point=checkpoint(1200, "/ckpt/net-1200.ckpt"))
SEAT = WorkerPlacement(rank=3, local_rank=3, node_rank=0, local_world_size=WORKERS)


def life(plan: Plan = FIRST, *, ascend: bool = False) -> WorkerLaunchSpec:
    return WorkerLaunchSpec(
        boot=BootId("b007"),
        plan=plan,
        master_addr="127.0.0.1",
        master_port=29500,
        socket="/logs/control.sock",
        progress_page="/logs/incarnation_0/progress",
        error_dir="/logs/incarnation_0",
        group_info_dir="/logs",
        ascend=ascend,
    )


def spec(framework: Framework = Framework.PLAIN, **more: object) -> RunSpec:
    plain = a_spec("train", workers=WORKERS, framework=framework)
    return replace(plain, **more)  # type: ignore[arg-type]


def told(
    framework: Framework = Framework.PLAIN,
    plan: Plan = FIRST,
    *,
    ascend: bool = False,
    inherited: Mapping[str, str] | None = None,
) -> dict[str, str]:
    return worker_environment(inherited or {}, spec(framework), SEAT, life(plan, ascend=ascend))


@pytest.mark.parametrize("framework", Framework)
def test_a_worker_is_told_exactly_the_agreed_names_and_values(framework: Framework) -> None:
    common, *others = (GOLDEN / "environment.txt").read_text().split("\nonly ")
    own = [text.partition(":\n")[2] for text in others if text.startswith(framework.value)]
    expected = sorted("".join([common, *own]).splitlines())
    assert sorted(f"{name}={value}" for name, value in told(framework, RESUMED).items()) == expected


def test_the_names_of_a_resume_are_there_whenever_an_incarnation_resumes_and_only_then() -> None:
    names = {
        "FAULTRUN_RESTART_REASON", "FAULTRUN_RESUME_FROM", "FAULTRUN_RESUME_EPOCH", "FAULTRUN_RESUME_STEP",
        "RESTORE_RANKS", "RESTORE_RANKS_MAP",
    }  # fmt: skip
    assert not names & told().keys()
    assert names <= told(plan=RESUMED).keys()
    from_nothing = told(plan=replace(RESUMED, point=None))
    assert {name: from_nothing[name] for name in names} == {
        "FAULTRUN_RESTART_REASON": "fault",
        "FAULTRUN_RESUME_FROM": "",
        "FAULTRUN_RESUME_EPOCH": "",
        "FAULTRUN_RESUME_STEP": "",
        "RESTORE_RANKS": "-1",
        "RESTORE_RANKS_MAP": "{}",
    }
    assert told(plan=replace(RESUMED, incarnation=0))["FAULTRUN_RESUME_STEP"] == "1200"


def test_what_a_run_around_ours_told_its_workers_does_not_reach_ours() -> None:
    inherited = {
        "FAULTRUN_RESUME_FROM": "/other", "RESTORE_RANKS": "7", "FAULTRUN_RESTART_REASON": "fault",
        "RANK": "9", "MASTER_PORT": "1", "FAULTRUN_BOOT_ID": "other", "FAULTRUN_SOCKET": "/other",
    }  # fmt: skip
    found = told(inherited=inherited)
    assert not [name for name, value in inherited.items() if found.get(name) == value]


@pytest.mark.parametrize("trains_from", [0, 2])
def test_a_worker_hears_that_it_may_train_on_where_that_is_so_and_never_from_a_run_around_ours(
    trains_from: int,
) -> None:
    supervision = Supervision(windows=Windows(trains_from=trains_from))
    seen = worker_environment(
        {"FAULTRUN_WHILE_MISSING": "train"}, spec(supervision=supervision), SEAT, life()
    )
    assert seen.get("FAULTRUN_WHILE_MISSING") == ("train" if trains_from else None)


def test_the_users_own_variables_are_kept() -> None:
    assert told(inherited={"OMP_NUM_THREADS": "3"})["OMP_NUM_THREADS"] == "3"


@pytest.mark.parametrize("framework", Framework)
def test_group_info_file_is_taken_from_cpu_workers_and_set_for_ascend(framework: Framework) -> None:
    on_cpu = told(framework, inherited={"GROUP_INFO_FILE": "/somewhere"})
    assert "GROUP_INFO_FILE" not in on_cpu
    assert on_cpu["FAULTRUN_GROUP_INFO_FILE"] == "/logs/device3/group_info.pb"
    on_ascend = told(framework, ascend=True, inherited={"GROUP_INFO_FILE": "/somewhere"})
    assert on_ascend["GROUP_INFO_FILE"] == "/logs/device3/group_info.pb"


def test_each_rank_loads_what_the_plan_says_for_all() -> None:
    point: RecoveryPoint = replace(
        checkpoint(5), restore_ranks="0,1", restore_ranks_map='{"0,2": 0, "1,3": 1}'
    )
    found = told(plan=replace(RESUMED, point=point))
    assert (found["RESTORE_RANKS"], found["RESTORE_RANKS_MAP"]) == ("0,1", '{"0,2": 0, "1,3": 1}')


NAMES = st.sampled_from(["gasp-step_10.pt", "gasp-step_10.1.pt", "shard.bin", "rank_0/a.pt", "rank_1/a.pt"])


@given(names=st.lists(NAMES, min_size=WORKERS, max_size=WORKERS), suppliers=st.permutations(range(WORKERS)))
def test_what_a_rank_loads_is_what_was_chosen_for_that_rank(names: list[str], suppliers: list[int]) -> None:
    """However the files are called, whoever wrote them, and whatever map the ranks are told."""
    files = tuple(
        RankFile(rank=rank, path=f"/ckpt/{name}", from_rank=source)
        for rank, (name, source) in enumerate(zip(names, suppliers, strict=True))
    )
    restore_map = json.dumps({str(file.rank): file.from_rank for file in files})
    point = replace(checkpoint(10, files[0].path), files=files, restore_ranks_map=restore_map)
    for file in files:
        seat = WorkerPlacement(rank=file.rank, local_rank=file.rank, node_rank=0, local_world_size=WORKERS)
        environ = worker_environment({}, spec(), seat, life(replace(RESUMED, point=point)))
        session = read_session(environ)
        assert session is not None
        assert session.point is not None
        templates = values(replace(RESUMED, point=point), RunId("run"), file.rank)
        assert {environ["FAULTRUN_RESUME_FROM"], session.point.path, templates.checkpoint} == {file.path}


def test_ranks_of_a_second_node_are_counted_on() -> None:
    seat = WorkerPlacement(rank=6, local_rank=2, node_rank=1, local_world_size=4)
    found = worker_environment({}, spec(), seat, life())
    names = ("RANK", "LOCAL_RANK", "NODE_RANK", "GROUP_RANK", "RANK_ID", "DEVICE_ID")
    assert [found[name] for name in names] == ["6", "2", "1", "1", "6", "2"]


def test_a_rank_table_is_handed_on_and_changes_tensorflows_job_id() -> None:
    table = Rendezvous(rank_table_file="/hccl.json")
    for framework in Framework:
        found = worker_environment({}, spec(framework, rendezvous=table), SEAT, life())
        assert found["RANK_TABLE_FILE"] == "/hccl.json"
    assert found.get("JOB_ID") is None or found["JOB_ID"] == "123456789"
    assert told(Framework.TENSORFLOW)["JOB_ID"] == "10086"
    assert "RANK_TABLE_FILE" not in told()


def test_the_scheduler_is_a_member_of_the_cluster_without_a_rank_of_its_own() -> None:
    inherited = {"GROUP_INFO_FILE": "/x", "MS_NODE_ID": "3", "PATH": "/bin"}
    found = scheduler_environment(inherited, spec(Framework.MINDSPORE), life())
    assert {name: found[name] for name in sorted(found)} == {
        "FAULTRUN_BOOT_ID": "b007",
        "FAULTRUN_RUN_ID": "calm-heron-3f7a",
        "MS_ROLE": "MS_SCHED",
        "MS_SCHED_HOST": "127.0.0.1",
        "MS_SCHED_PORT": "29500",
        "MS_TOPO_TIMEOUT": "600",
        "MS_WORKER_NUM": "4",
        "PATH": "/bin",
        "RANK_ID": "0",
    }


def test_ranks_that_meet_in_the_supervisor_send_no_heartbeats_unless_the_user_wants_them() -> None:
    ours = replace(life(), builtin_scheduler=True)

    def heartbeats(inherited: Mapping[str, str], life: WorkerLaunchSpec) -> str | None:
        return worker_environment(inherited, spec(Framework.MINDSPORE), SEAT, life).get(
            "MS_DISABLE_HEARTBEAT"
        )

    assert heartbeats({}, ours) == "1"
    assert heartbeats({"MS_DISABLE_HEARTBEAT": "0"}, ours) == "0"
    assert heartbeats({}, life()) is None


def test_only_mindspore_needs_a_scheduler_and_not_for_a_dry_run() -> None:
    assert [framework for framework in Framework if needs_scheduler(spec(framework))] == [Framework.MINDSPORE]
    dry = spec(Framework.MINDSPORE, simulation=Simulation(level=1))
    assert not needs_scheduler(dry)
    found = worker_environment({"MS_ROLE": "MS_WORKER", "MS_SCHED_PORT": "1"}, dry, SEAT, life())
    assert found["MS_SIMULATION_LEVEL"] == "1"
    assert not {"MS_ROLE", "MS_SCHED_HOST", "MS_SCHED_PORT"} & found.keys()


def test_the_scheduler_runs_on_the_python_that_the_workers_run_on() -> None:
    def python_of(*prefix: str) -> str:
        return scheduler_argv(Command(prefix=prefix, script_args=(), shown=""), "our-python")[0]

    assert python_of("bash", "run.sh") == "our-python"
    assert python_of("no-such-program") == "our-python"
    assert Path(python_of("python3", "-u", "train.py")).name.startswith("python")


@pytest.mark.parametrize(("seen", "device"), [(None, "3"), ("4,5,6,7", "7")])
def test_a_worker_with_a_device_of_its_own_sees_that_one_alone(seen: str | None, device: str) -> None:
    inherited = {} if seen is None else {"CUDA_VISIBLE_DEVICES": seen}
    own = spec(identity=WorkerIdentity(role="actor", own_device=True))
    found = worker_environment(inherited, own, SEAT, life())
    assert (found["LOCAL_RANK"], found["CUDA_VISIBLE_DEVICES"]) == ("0", device)
    assert (found["RANK"], found["ROLE_NAME"]) == ("3", "actor")
    assert "CUDA_VISIBLE_DEVICES" not in told()


def test_nccls_errors_stay_as_the_user_set_them() -> None:
    name = "TORCH_NCCL_ASYNC_ERROR_HANDLING"
    assert told()[name] == "1"
    assert told(inherited={name: "3"})[name] == "3"


def test_torchft_is_told_of_its_host_and_of_a_run_id_that_is_new_when_all_start_again() -> None:
    policy = RestartPolicy(exit_codes=WorkerExitCodes.TORCHFT)
    torchft = spec(supervision=Supervision(policy=policy))

    def given(plan: Plan, **base: str) -> dict[str, str]:
        told = worker_environment(base, torchft, SEAT, life(plan))
        assert "FAULTRUN_REJOIN" not in told
        return {name: value for name, value in told.items() if name.startswith("FTFSDP_")}

    first = {"FTFSDP_HOST_NAME": torchft.node, "FTFSDP_HOST_INDEX": "0", "FTFSDP_RUN_ID": torchft.run_id}
    assert given(FIRST) == first
    alone_again = replace(FIRST, incarnation=2, kept=frozenset({0, 1}), since=0)
    assert given(alone_again) == first
    assert given(RESUMED)["FTFSDP_RUN_ID"] == f"{torchft.run_id}-2"
    own = {"FTFSDP_HOST_NAME": "h", "FTFSDP_HOST_INDEX": "7", "FTFSDP_RUN_ID": "mine"}
    assert given(RESUMED, **own) == {**own, "FTFSDP_RUN_ID": "mine-2"}


def test_a_run_that_may_shrink_tells_how_many_there_were_and_in_how_many_parts_a_step_is() -> None:
    seat = replace(SEAT, rank=1, local_rank=1, local_world_size=3, places=(0, 2, 3))
    fewer = replace(FIRST, topology=Topology(nodes=(NodeSlots(node=NODE, slots=3, places=(0, 2, 3)),)))
    may = Elastic(min_workers=2)
    whole = worker_environment({}, spec(elastic=may), SEAT, life())
    assert (whole["FAULTRUN_WORLD_SIZE_FULL"], whole["FAULTRUN_ACCUMULATE"]) == ("4", "1")
    assert "CUDA_VISIBLE_DEVICES" not in whole

    seen = {"CUDA_VISIBLE_DEVICES": "4,5,6,7"}
    env = worker_environment(seen, spec(Framework.TORCH, elastic=may), seat, life(fewer))
    assert (env["WORLD_SIZE"], env["FAULTRUN_WORLD_SIZE_FULL"], env["FAULTRUN_ACCUMULATE"]) == ("3", "4", "2")
    assert (env["LOCAL_RANK"], env["DEVICE_ID"], env["CUDA_VISIBLE_DEVICES"]) == ("1", "2", "4,6,7")
    env = worker_environment({}, spec(Framework.TORCH, elastic=may), seat, life(fewer, ascend=True))
    assert (env["LOCAL_RANK"], env["DEVICE_ID"], env["ASCEND_RT_VISIBLE_DEVICES"]) == ("1", "1", "0,2,3")
    env = worker_environment({}, spec(Framework.MINDSPORE, elastic=may), seat, life(fewer, ascend=True))
    assert (env["DEVICE_ID"], env.get("ASCEND_RT_VISIBLE_DEVICES")) == ("2", None)
    own = spec(Framework.TORCH, identity=WorkerIdentity(own_device=True), elastic=may)
    assert worker_environment(seen, own, seat, life(fewer))["CUDA_VISIBLE_DEVICES"] == "6"
    inherited = {"FAULTRUN_WORLD_SIZE_FULL": "9", "FAULTRUN_ACCUMULATE": "9"}
    assert "FAULTRUN_ACCUMULATE" not in worker_environment(inherited, spec(), SEAT, life())


def test_a_single_worker_may_be_told_no_rank_as_by_plain_python() -> None:
    alone = spec(identity=WorkerIdentity(rank_env=RankEnv.NONE))
    found = worker_environment({"LOCAL_RANK": "7"}, alone, SEAT, life())
    assert found["LOCAL_RANK"] == "7", "of whoever started us"
    assert not {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID"} & found.keys()
    assert (session := read_session(found)) is not None
    assert (session.rank, session.world_size) == (0, 1)
