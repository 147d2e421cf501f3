"""torchrun's ways: threads, roles, devices, what the console shows, and what means nothing here."""

import pytest

from faultrun.model.spec.output import Stream
from support.asking import plan, refusal

THREADS = "OMP_NUM_THREADS"


def test_torchs_workers_get_one_thread_where_torchrun_gives_one_and_it_is_said(script: str) -> None:
    settled = plan("--worker_num=2", script, threads="")
    assert dict(settled.spec.environment)[THREADS] == "1"
    assert [note for note in settled.notes if THREADS in note] == [
        "OMP_NUM_THREADS=1 for each of 2 workers, as torchrun sets it; set it for more threads"
    ]


def test_nobody_elses_threads_are_touched(script: str, mindspore_script: str) -> None:
    for settled in (
        plan("--worker_num=1", script, threads=""),
        plan("--worker_num=2", script, threads="8"),
        plan("--worker_num=2", mindspore_script, threads=""),
        plan("--worker_num=2", "sleep", "1", threads=""),
    ):
        assert THREADS not in dict(settled.spec.environment)
        assert not any(THREADS in note for note in settled.notes)


def test_what_torchrun_alone_would_use_is_accepted_and_said_once_to_mean_nothing(script: str) -> None:
    words = (
        *("--rdzv-conf=timeout=60,join_timeout=5", "--start-method=fork", "--event-log-handler=console"),
        *("--local-addr=10.0.0.1", "--logs-specs=mine", "--numa-binding=node", "--signals-to-handle=SIGTERM"),
    )
    notes = plan("--worker_num=1", *words, script).notes
    for word in words:
        name = word.partition("=")[0]
        assert len([note for note in notes if note.startswith(f"{name} has no effect here: ")]) == 1, name


@pytest.mark.parametrize(
    "word",
    [
        "--start-method=thread",
        "--numa-binding=near",
        "--rdzv-conf=timeout",
        "--local-ranks-filter=a",
        "--run-path=1",
    ],
)
def test_what_torchrun_would_refuse_is_refused(script: str, word: str) -> None:
    refusal(word, script)


def test_a_role_and_a_device_of_its_own_reach_the_workers(script: str) -> None:
    spec = plan("--worker_num=2", "--role=actor", "--virtual-local-rank", script).spec
    assert (spec.identity.role, spec.identity.own_device) == ("actor", True)
    plain = plan("--worker_num=2", script).spec.identity
    assert (plain.role, plain.own_device) == ("default", False)
    error = refusal("--worker_num=2", "--virtual-local-rank", script, environ={"CUDA_VISIBLE_DEVICES": "3"})
    assert "each of 2 workers needs a GPU of its own" in error.because


def test_a_mindspore_worker_keeps_its_local_rank(mindspore_script: str) -> None:
    settled = plan("--worker_num=2", "--virtual-local-rank", mindspore_script)
    assert not settled.spec.identity.own_device
    assert any("--virtual-local-rank has no effect here" in note for note in settled.notes)


def test_ranks_that_are_filtered_show_nothing_and_are_not_picked_from(script: str) -> None:
    logs = plan("--worker_num=3", "--tee=3", "--local-ranks-filter=0,2", script).spec.logs
    assert [logs.console(rank, rank) for rank in range(3)] == [Stream.ALL, Stream.NONE, Stream.ALL]
    assert [logs.shows(rank) for rank in range(3)] == [True, False, True]


def test_with_run_path_any_name_is_pythons(script: str) -> None:
    assert plan("--run-path", "--worker_num=1", script).spec.command.prefix[1:] == ("-u", script)
    refusal("--run-path", "-m", "some.module")
    refusal("--run-path", "--no-python", script)


@pytest.mark.parametrize(
    ("behind", "before"),
    [
        ("--standalone", "--standalone"),
        ("--rdzv-backend=c10d", "--rdzv-backend=c10d"),
        ("--nproc_per_node", "--nproc_per_node=N|auto|gpu|npu|cpu"),
    ],
)
def test_torchruns_options_behind_the_script_are_pointed_out(script: str, behind: str, before: str) -> None:
    assert any(f"faultrun {before} {script}" in note for note in plan(script, behind).notes)
