"""From settings to a RunSpec: what every option comes to mean, and what is refused before anything starts."""

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from faultrun.cli.options.choices import DryRun
from faultrun.model.spec.output import Stream
from faultrun.model.spec.run_spec import Hold, RestoreConfigs, Resume, Rewrite
from support.asking import plan, refusal


def test_the_line_of_the_mindspore_documents_means_what_they_say(mindspore_script: str) -> None:
    settled = plan(
        "--worker_num=4",
        "--local_worker_num=4",
        "--master_port=10970",
        "--join=False",
        "--log_dir=msrun_log",
        "--cluster_time_out=300",
        mindspore_script,
    )
    spec = settled.spec
    assert spec.topology.world_size == 4
    assert (spec.rendezvous.master_addr, spec.rendezvous.port) == ("127.0.0.1", 10970)
    assert spec.rendezvous.cluster_time_out_s == 300
    assert not spec.rendezvous.fixed_port
    assert not spec.supervision.join
    assert spec.logs.log_dir == "msrun_log"
    assert settled.notes == ()


def test_the_line_of_the_torch_documents_means_what_they_say(script: str) -> None:
    settled = plan("--standalone", "--nnodes=1", "--nproc-per-node=2", "--max-restarts=5", script)
    assert settled.spec.topology.world_size == 2
    assert settled.spec.rendezvous.port is None
    assert settled.spec.supervision.policy.max_restarts == 5
    assert settled.notes == ()


def test_defaults_are_those_of_the_contract(script: str) -> None:
    spec = plan("--worker_num=1", script).spec
    policy, windows = spec.supervision.policy, spec.supervision.windows
    assert (policy.max_restarts, policy.window_s) == (3, 3600)
    assert (policy.backoff_min_s, policy.backoff_max_s) == (1, 60)
    assert (windows.grace_s, windows.stop_grace_s, windows.stop_grace_source) == (30, 30, "default")
    assert spec.supervision.join
    assert spec.supervision.exit_code_on_stop is None
    assert spec.recovery.resume is Resume.AUTO
    assert spec.recovery.restore_configs is RestoreConfigs.END
    assert spec.logs.log_dir == "faultrun_log"
    assert spec.logs.tail is None
    assert spec.binding.hold is Hold.NONE


def test_failure_options_are_read_with_their_units(script: str) -> None:
    spec = plan(
        "--max_restarts=0", "--restart_window=30m", "--backoff=500ms..1m", "--grace=5s",
        "--stop-grace=2m", "--exit_code_on_stop=0", script,
    ).spec  # fmt: skip
    assert spec.supervision.policy.max_restarts == 0
    assert spec.supervision.policy.window_s == 1800
    assert spec.supervision.policy.backoff_min_s == 0.5
    assert spec.supervision.windows.grace_s == 5
    assert spec.supervision.windows.stop_grace_s == 120
    assert spec.supervision.windows.stop_grace_source == "--stop_grace"
    assert spec.supervision.exit_code_on_stop == 0


def test_torchruns_shutdown_timeout_stands_for_both_windows_unless_they_are_named(script: str) -> None:
    both = plan("--shutdown-timeout=7", script).spec.supervision.windows
    assert (both.grace_s, both.stop_grace_s, both.stop_grace_source) == (7, 7, "--shutdown-timeout")
    one = plan("--shutdown-timeout=7", "--grace=2s", script).spec.supervision.windows
    assert (one.grace_s, one.stop_grace_s) == (2, 7)


def test_recovery_options_are_read_and_checked(script: str, tmp_path: Path) -> None:
    config = tmp_path / "c.yaml"
    config.write_text("pre_trained: ''\n")
    spec = plan(
        "--checkpoint_dir=a", "--checkpoint_dir=b", f"--rewrite={config}:pre_trained", "--resume=always",
        "--resume_arg=--pre_trained={checkpoint}", script,
    ).spec  # fmt: skip
    assert spec.recovery.checkpoint_dirs == ("a", "b")
    assert spec.recovery.rewrites == (Rewrite(file=str(config), key="pre_trained"),)
    assert spec.recovery.resume_args == ("--pre_trained={checkpoint}",)
    assert spec.recovery.resume is Resume.ALWAYS
    assert "is a file" in refusal(f"--checkpoint_dir={script}", script).because
    assert "does not say what to set" in refusal(f"--rewrite={config}", script).because
    assert "there is no field {ckpt}" in refusal("--resume_arg={ckpt}", script).because


def test_a_checkpoint_folder_that_is_not_there_is_said_with_the_one_that_may_be_meant(
    script: str, tmp_path: Path
) -> None:
    (tmp_path / "checkpoints").mkdir()
    at_first = "no such folder yet, as before a first save"
    for name, notes in {
        "checkpoints": [],
        "chekpoints": [f"{tmp_path}/chekpoints: {at_first}; is {tmp_path}/checkpoints meant?"],
        "saves": [f"{tmp_path}/saves: {at_first}"],
        "two\nlines": [f"{tmp_path}/two\\u000alines: {at_first}"],
    }.items():
        said = plan("--worker_num=1", f"--checkpoint_dir={tmp_path}/{name}", script).notes
        assert list(said) == [f"--checkpoint_dir {note}" for note in notes]


def test_the_console_is_chosen_by_tail_tee_and_redirects(script: str) -> None:
    logs = plan("--worker_num=3", "--tail_worker_log=0,2", "-t", "1:2", "-r", "3", script).spec.logs
    assert [logs.console(rank, rank) for rank in range(3)] == [Stream.ALL, Stream.ERR, Stream.ALL]
    assert plan("--worker_num=3", "--tail_worker_log=-1", script).spec.logs.tail == frozenset(range(3))
    assert plan("--worker_num=1", script).spec.logs.console(0, 0) is Stream.NONE


def test_a_terminal_shows_rank_0_unless_somebody_says_what_it_shall_show(script: str) -> None:
    def shown(*words: str) -> list[int]:
        logs = plan("--worker_num=3", *words, script, at_terminal=True).spec.logs
        return [rank for rank in range(3) if logs.console(rank, rank) is not Stream.NONE]

    assert shown() == [0]
    assert shown("--local-ranks-filter=1,2") == [1, 2]
    assert shown("--tail_worker_log=none") == shown("--redirects=3") == shown("--log_format=json") == []
    assert shown("--tee=1:3") == [1]
    assert shown("--join=False") == []
    assert plan("--worker_num=3", "--join=False", script, at_terminal=True).notes == ()


def test_ranks_that_do_not_exist_are_said_to_have_no_effect(script: str) -> None:
    notes = plan("--worker_num=2", "--tail_worker_log=5", "--tee=7:1", script).notes
    assert [note.split(" has no effect")[0] for note in notes] == ["--tee", "--tail_worker_log"]


def test_the_log_name_of_msrun_knows_host_and_address(script: str) -> None:
    name = plan("--worker_num=1", "--worker_log_name=w_{ip}_{hostname}_{x}", script).spec.logs.worker_log_name
    assert name == f"w_127.0.0.1_{socket.gethostname()}_{{x}}"
    assert "is a path" in refusal("--worker_log_name=a/b", script).because


def test_an_empty_log_dir_is_the_working_directory_as_in_msrun(script: str) -> None:
    assert plan("--log_dir=", script).spec.logs.log_dir == "."


def test_join_false_in_the_background_has_no_console_and_says_so(script: str) -> None:
    settled = plan("--worker_num=1", "--join=False", "--tee=3", script)
    assert settled.spec.logs.tee == ()
    assert settled.notes == (
        "--tee has no effect here: with --join=False nothing follows the console; read the log files",
    )


def test_join_false_as_pid_1_stays_in_the_foreground_and_says_so(script: str) -> None:
    settled = plan("--worker_num=1", "--join=False", "--tee=3", script, pid=1)
    assert settled.spec.supervision.join
    assert settled.spec.logs.tee == (Stream.ALL,)
    assert [note.split(":")[0] for note in settled.notes] == ["--join has no effect here"]


def test_options_without_effect_say_so_once_and_why(script: str) -> None:
    notes = plan(
        "--worker_num=1", "--monitor-interval=1", "--rdzv-backend=c10d", "--sim_rank_id=0",
        "--cluster_time_out=5", "--node_rank=0", script,
    ).notes  # fmt: skip
    assert sorted(note.split(" has no effect here: ")[0] for note in notes) == [
        "--cluster_time_out",
        "--monitor-interval",
        "--rdzv-backend",
        "--sim_rank_id",
    ]


def test_the_endpoint_of_torchrun_is_where_workers_meet_unless_master_says_so(script: str) -> None:
    meeting = plan("--rdzv-backend=c10d", "--rdzv-endpoint=localhost:29400", script).spec.rendezvous
    assert (meeting.master_addr, meeting.port) == ("localhost", 29400)
    master = plan("--rdzv-endpoint=localhost:29400", "--master_port=1234", script).spec.rendezvous
    assert (master.master_addr, master.port) == ("127.0.0.1", 1234)
    etcd = plan("--rdzv-backend=etcd-v2", "--rdzv-endpoint=a:2379,b:2379", script)
    assert etcd.spec.rendezvous.port is None
    assert any("names etcd" in note for note in etcd.notes)


def test_standalone_meets_on_a_free_port_whatever_else_is_said(script: str) -> None:
    settled = plan("--worker_num=1", "--standalone", "--master_port=1234", script)
    assert settled.spec.rendezvous.port is None
    assert settled.notes == (
        "--master_port has no effect here: --standalone chooses address and port itself",
    )


def test_a_fixed_port_without_a_number_is_the_usual_one(script: str, mindspore_script: str) -> None:
    assert plan("--fixed_port", script).spec.rendezvous.port == 29500
    assert plan("--fixed_port", mindspore_script).spec.rendezvous.port == 8118
    assert plan("--fixed_port", "--master_port=0", script).spec.rendezvous.port == 29500


def test_an_address_of_another_machine_is_refused(script: str) -> None:
    error = refusal("--master_addr=203.0.113.7", script)
    assert "not an address of this machine" in error.because
    assert plan("--master_addr=[::1]", script).spec.rendezvous.master_addr == "::1"


def test_mindspore_is_given_an_address_for_a_name_torch_the_name(script: str, mindspore_script: str) -> None:
    assert plan("--master_addr=localhost", mindspore_script).spec.rendezvous.master_addr == "127.0.0.1"
    assert plan("--master_addr=localhost", script).spec.rendezvous.master_addr == "localhost"
    unnameable = "x" * 64  # DNS allows 63, so nobody has to be asked
    assert "has no address" in refusal(f"--master_addr={unnameable}", mindspore_script).because


@pytest.mark.parametrize(
    "words",
    [
        "--worker_num=0", "--local_worker_num=0", "--master_port=65536", "--master_port=-1", "--grace=-1",
        "--max_restarts=-1", "--exit_code_on_stop=256", "--sim_level=4", "--tee=9", "--resume=perhaps",
        "--run_id=a/b", "--join=maybe", "--backoff=9..1", "--nnodes=0", "--nnodes=2:1", "--tee=x",
        "--nproc-per-node=many", "--nproc-per-node=xpu", "--cluster_time_out=soon", "--bind_core=maybe",
        "--monitor-interval=x",
        "--checkpoint_dir=", "--rank_table_file=none/hccl.json", "--rank_table_wait=soon",
    ],
)  # fmt: skip
def test_a_value_that_cannot_be_is_refused_with_64_and_an_example_that_works(script: str, words: str) -> None:
    error = refusal(words, script)
    assert error.exit_code == 64
    assert error.what == f"{words} cannot be used"


def test_binding_is_planned_for_the_workers_of_this_machine(script: str) -> None:
    allowed = sorted(os.sched_getaffinity(0))
    settled = plan("--worker_num=1", "--bind_core=True", script)
    assert settled.spec.binding.hold is Hold.CORES
    assert settled.spec.binding.cpus == (tuple(allowed),)
    assert plan("--worker_num=1", "--bind_core=False", script).spec.binding.hold is Hold.NONE
    error = refusal("--worker_num=1", '--bind_core={"device0":["99999"]}', script)
    assert error.because.startswith("processor 99999 is not ours to use")


def test_a_wrong_bind_file_blames_bind_numa_even_beside_bind_core(script: str, tmp_path: Path) -> None:
    file = tmp_path / "bind.json"
    file.write_text('{"bind_config": {"bind_cpu_mode": "cpu"}, "bind_cpu": {"device0": {"main": "99999"}}}')
    error = refusal("--worker_num=1", "--bind_core=True", f"--bind_numa={file}", script)
    assert error.what == f"--bind_numa={file} cannot be used"


def test_the_run_is_named_by_its_option_then_by_the_platform_then_anew(script: str) -> None:
    slurm = {"SLURM_JOB_ID": "77"}
    assert plan("--run_id=mine", script, environ=slurm).spec.run_id == "mine"
    assert plan("--rdzv-id=job 7/a", script, environ=slurm).spec.run_id == "job-7-a"
    assert plan("--rdzv-id=none", script, environ=slurm).spec.run_id.startswith("slurm-77-")
    first, second = plan(script).spec.run_id, plan(script).spec.run_id
    assert first != second


@pytest.mark.parametrize(
    ("environ", "name"),
    [
        ({"MINDX_TASK_ID": "b6f1-4c", "SLURM_JOB_ID": "7"}, "b6f1-4c"),
        ({"mindx-dls-test": "default-test-mindspore", "HOSTNAME": "pod"}, "default-test-mindspore"),
        ({"VC_TASK_INDEX": "0", "HOSTNAME": "resnet-worker-0"}, "resnet-worker-0"),
        ({"KUBERNETES_SERVICE_HOST": "10.0.0.1", "HOSTNAME": "train-0"}, "train-0"),
        ({"SLURM_JOB_ID": "1234"}, "slurm-1234"),
        ({"TORCHELASTIC_RUN_ID": "outer"}, "outer"),
    ],
)
def test_every_platform_names_the_run_by_a_variable(script: str, environ: dict[str, str], name: str) -> None:
    run_id = plan(script, environ=environ).spec.run_id
    assert re.fullmatch(f"{name}-[0-9a-f]{{8}}", run_id)
    assert plan(script, "--log_dir=faultrun_log", environ=environ).spec.run_id == run_id
    assert plan("--log_dir=other", script, environ=environ).spec.run_id != run_id, "another run of the job"


def test_a_machine_name_alone_and_an_outer_run_of_ours_name_nothing(script: str) -> None:
    outer = {"SLURM_JOB_ID": "7", "TORCHELASTIC_RUN_ID": "x", "FAULTRUN_INCARNATION": "0"}
    for environ in ({"HOSTNAME": "laptop"}, {"TORCHELASTIC_RUN_ID": "none"}, outer):
        adjective, bird, digits = plan(script, environ=environ).spec.run_id.split("-")
        assert adjective.isalpha()
        assert bird.isalpha()
        assert len(digits) == 4


def test_dry_run_is_handed_on(script: str) -> None:
    assert plan("--dry-run", script).dry_run is DryRun.SHORT
    assert plan("--dry-run=full", script).dry_run is DryRun.FULL
    assert plan("--dry-run=False", script).dry_run is DryRun.NONE
    assert plan(script).dry_run is DryRun.NONE
    assert plan(script, environ={"FAULTRUN_DRY_RUN": "1"}).dry_run is DryRun.SHORT
    assert "True nor False, nor full" in refusal("--dry-run=ful", script).because


@pytest.mark.long
def test_nothing_is_written_by_resolving(script: str, tmp_path: Path) -> None:
    before = sorted(tmp_path.rglob("*"))
    code = f"import sys; sys.path[:0] = {sys.path!r}; from support.asking import plan; plan({script!r})"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert sorted(tmp_path.rglob("*")) == before


def test_an_option_behind_the_script_is_the_scripts_own_and_said_so(script: str) -> None:
    settled = plan(script, "--worker_num=4", "--lr=1")
    told = (
        f"--worker_num=4 is handed to {script}; faultrun's options go before it: "
        f"faultrun --worker_num=4 {script}"
    )
    assert told in settled.notes
    assert settled.spec.command.script_args == ("--worker_num=4", "--lr=1")
    assert plan("--worker_num=1", script, "--worker_num=4", "--lr=1").notes == ()
    assert plan("--worker_num=1", script, "--", "--nproc-per-node=4").notes == ()
    assert any(
        f"faultrun --nproc-per-node=N|auto|gpu|npu|cpu {script}" in note
        for note in plan(script, "--nproc-per-node", "4").notes
    )


@pytest.mark.parametrize(
    ("typed", "verb"), [("staus", "status"), ("reprot", "report"), ("checkpoint_now", "checkpoint-now")]
)
def test_a_verb_that_is_nearly_one_is_named(typed: str, verb: str) -> None:
    assert refusal("--worker_num=1", typed).hint == f"did you mean faultrun {verb}?"
