"""From a platform's files and variables to a run: who counts the workers, and which device each gets."""

import sys
from pathlib import Path

import pytest

from faultrun.cli.resolve.context import ProcessContext
from faultrun.cli.resolve.spec import Resolved, resolve
from faultrun.errors import FaultrunError, UsageError
from faultrun.frameworks.environment import WorkerLaunchSpec, WorkerPlacement, worker_environment
from faultrun.model.topology import BootId
from faultrun.supervisor.launch.prepare import device_of
from support.asking import settle
from support.checkpoints.platform_files import INITIALIZING, table_v1, text
from support.stories.story import first_plan

TABLE = "user/serverid/devindex/config/hccl.json"
SERVERS = "user/serverid/devindex/config/serverList"


class Pod:
    """A container's file system and variables."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def write(self, place: str, content: str) -> str:
        path = self.root / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
        return str(path)

    def run(self, *words: str, imports: str = "torch", **environ: str) -> Resolved:
        script = self.write("job/train.py", f"import {imports}\n" if imports else "")
        around = ProcessContext(environ=environ, python=sys.executable, import_path=(), pid=1, root=self.root)
        return resolve(settle(*words, script, environ=environ), around)

    def refusal(self, *words: str, imports: str = "torch", **environ: str) -> FaultrunError:
        with pytest.raises(FaultrunError) as caught:
            self.run(*words, imports=imports, **environ)
        return caught.value


@pytest.fixture
def pod(tmp_path: Path) -> Pod:
    return Pod(tmp_path)


def devices(resolved: Resolved, *, of: str = "DEVICE_ID") -> list[str]:
    """What the workers would find in their environment."""
    spec = resolved.spec
    size = spec.topology.world_size
    life = WorkerLaunchSpec(
        boot=BootId("b"), plan=first_plan(size), master_addr="", master_port=1, socket="", progress_page="",
        error_dir="", group_info_dir="", ascend=True,
    )  # fmt: skip
    seats = [
        WorkerPlacement(
            rank=i, local_rank=i, node_rank=0, local_world_size=size, device=device_of(spec.devices, i)
        )
        for i in range(size)
    ]
    return [worker_environment({}, spec, seat, life).get(of, "") for seat in seats]


def test_the_platforms_table_counts_where_it_is_mounted(pod: Pod) -> None:
    assert pod.run().spec.topology.world_size == 1
    path = pod.write(TABLE, text(table_v1(2, devices=(6, 4))))
    resolved = pod.run()
    assert resolved.spec.topology.world_size == 2
    assert resolved.spec.rendezvous.rank_table_file == path
    assert devices(resolved) == ["6", "4"]
    assert devices(resolved, of="RANK_TABLE_FILE") == [path, path]
    assert f"2 workers, as {path} says" in resolved.notes


def test_tensorflow_has_its_own_name_for_the_device(pod: Pod) -> None:
    pod.write(TABLE, text(table_v1(2, devices=(6, 4))))
    assert devices(pod.run(imports="tensorflow"), of="ASCEND_DEVICE_ID") == ["6", "4"]


def test_an_option_comes_before_the_variable_and_the_variable_before_what_is_mounted(pod: Pod) -> None:
    pod.write(TABLE, text(table_v1(2)))
    named, inherited = pod.write("a.json", text(table_v1(4))), pod.write("b.json", text(table_v1(8)))
    resolved = pod.run(f"--rank_table_file={named}", RANK_TABLE_FILE=inherited)
    assert resolved.spec.topology.world_size == 4
    assert pod.run(RANK_TABLE_FILE=inherited).spec.topology.world_size == 8


def test_a_misspelt_table_is_told_before_anybody_waits_for_it(pod: Pod) -> None:
    right = Path(pod.write("hccl_2p.json", text(table_v1(2))))
    with pytest.raises(UsageError) as refused:
        pod.run(f"--rank_table_file={right.with_name('hcl_2p.json')}")
    assert refused.value.hint == f"did you mean {right}?"


def test_workers_get_the_path_seen_everywhere(pod: Pod, monkeypatch: pytest.MonkeyPatch) -> None:
    right = Path(pod.write("hccl_2p.json", text(table_v1(2))))
    monkeypatch.chdir(right.parent)
    assert pod.run("--rank_table_file=hccl_2p.json").spec.rendezvous.rank_table_file == str(right)


def test_a_single_device_forms_no_group_and_gets_no_table(pod: Pod) -> None:
    path = pod.write(TABLE, text(table_v1(1, devices=(5,))))
    resolved = pod.run()
    assert resolved.spec.rendezvous.rank_table_file == ""
    assert devices(resolved) == ["5"]
    assert pod.run(f"--rank_table_file={path}").spec.rendezvous.rank_table_file == path


def test_devices_that_the_runtime_renumbers_are_named_by_their_new_numbers(pod: Pod) -> None:
    pod.write(TABLE, text(table_v1(2, devices=(6, 4))))
    assert devices(pod.run(ASCEND_RT_VISIBLE_DEVICES="4,6")) == ["1", "0"]


def test_a_count_that_is_not_the_tables_leaves_the_devices_to_the_local_ranks(pod: Pod) -> None:
    pod.write(TABLE, text(table_v1(4, devices=(7, 6, 5, 4))))
    assert devices(pod.run("--worker_num=2")) == ["0", "1"]


def test_this_nodes_part_of_a_larger_table_can_be_run_alone(pod: Pod) -> None:
    pod.write(TABLE, text(table_v1(2, 2, devices=(6, 4))))
    words = ("--worker_num=2", "--local_worker_num=2")
    assert devices(pod.run(*words, XDL_IP="10.0.0.2")) == ["6", "4"]
    assert devices(pod.run(*words, XDL_IP="10.0.0.22")) == ["0", "1"]


def test_an_unfinished_table_that_is_mounted_is_not_overlooked(pod: Pod) -> None:
    pod.write(TABLE, INITIALIZING)
    assert pod.refusal(ASCEND_VISIBLE_DEVICES="0-7").exit_code == 69


def test_each_server_of_a_table_is_a_node(pod: Pod) -> None:
    pod.write(TABLE, text(table_v1(8, 8)))
    spec = pod.run().spec
    assert [seat.slots for seat in spec.topology.nodes] == [8, 8]
    assert spec.agreement is not None
    table = pod.write(TABLE, text(table_v1(1, 1)))
    assert pod.run(XDL_IP="10.0.0.1").spec.rendezvous.rank_table_file == table, "two devices form a group"


@pytest.mark.parametrize(
    ("imports", "environ"),
    [
        ("mindspore", {"MS_WORKER_NUM": "4", "MS_LOCAL_WORKER": "4", "MS_NODE_RANK": "0", "MS_ROLE": ""}),
        ("tensorflow", {"CM_WORKER_SIZE": "4", "CM_LOCAL_WORKER": "4", "CM_RANK": "0"}),
        ("torch", {"WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "4", "RANK": "0", "LOCAL_RANK": "{0,1,2,3}"}),
    ],
)
def test_an_operator_counts_by_framework_variables(pod: Pod, imports: str, environ: dict[str, str]) -> None:
    assert pod.run(imports=imports, **environ).spec.topology.world_size == 4
    world = next(iter(environ))
    meeting = {"MS_SCHED_HOST": "10.0.0.9", "CM_CHIEF_IP": "10.0.0.9", "MASTER_ADDR": "10.0.0.9"}
    several = pod.run(imports=imports, **environ | meeting | {world: "8"}).spec
    assert [seat.slots for seat in several.topology.nodes] == [4, 4]
    nonsense = pod.refusal(imports=imports, **environ | {world: "four"})
    assert f"{world}='four' is not a number" in nonsense.because
    assert pod.run("--worker_num=2", imports=imports, **environ | {world: "8"}).spec.topology.world_size == 2


def test_variables_of_another_framework_or_of_another_launcher_mean_nothing(pod: Pod) -> None:
    mindspore = {"MS_WORKER_NUM": "4", "MS_LOCAL_WORKER": "4"}
    assert pod.run(**mindspore).spec.topology.world_size == 1
    scripts = {"WORLD_SIZE": "2", "RANK": "0"}
    torchrun = {"WORLD_SIZE": "8", "LOCAL_WORLD_SIZE": "8", "RANK": "3", "LOCAL_RANK": "3"}
    for environ in (scripts, torchrun):
        assert pod.run(**environ).spec.topology.world_size == 1
    ours = mindspore | {"FAULTRUN_INCARNATION": "0"}
    assert pod.run(imports="mindspore", **ours).spec.topology.world_size == 1


def test_the_pod_of_a_scheduler_has_no_workers_of_ours(pod: Pod) -> None:
    error = pod.refusal(imports="mindspore", MS_WORKER_NUM="8", MS_ROLE="MS_SCHED")
    assert "the pod of a scheduler" in error.because


def test_a_list_of_servers_says_that_there_are_several(pod: Pod) -> None:
    listed = {"status": "completed", "server_list": [{"server_ip": "10.0.0.11"}, {"server_ip": "10.0.0.1"}]}
    pod.write(SERVERS, text(listed))
    assert len(pod.run(XDL_IP="10.0.0.1").spec.topology.nodes) == 2
    pod.write(SERVERS, INITIALIZING)
    assert pod.refusal().exit_code == 69
    pod.write(SERVERS, text({"status": "completed", "server_list": [{"server_ip": "10.0.0.1"}]}))
    assert pod.run().spec.topology.world_size == 1
    pod.write(SERVERS, text({"nothing": 1}))
    assert any("is ignored: it names no server_ip" in note for note in pod.run().notes)


def test_fault_files_are_watched_where_they_are_mounted_or_named(pod: Pod) -> None:
    none = pod.run().spec.fault_files
    assert (none.fault_config, none.reset_config, none.restart_in_place) == ("", "", False)

    pod.write("user/restore/reset/config/restartType", "hotReset")
    mounted = pod.run(ENABLE_RESTART_FAULT_PROCESS="on").spec.fault_files
    assert mounted.reset_config == str(pod.root / "user/restore/reset/config/reset.json")
    assert (mounted.fault_config, mounted.restart_in_place) == ("", True)

    folder = pod.root / "user/restore/reset/config"
    words = (f"--fault_config={pod.root}/later", f"--reset_config={folder}")
    named = pod.run(*words).spec.fault_files
    assert (named.fault_config, named.reset_config) == (f"{pod.root}/later", f"{folder}/reset.json")
    assert pod.run("--reset_config=none").spec.fault_files.reset_config == ""
