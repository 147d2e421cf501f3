"""What a real worker finds in its environment, whatever ours was full of."""

import signal

import pytest

from support.runs import Launcher

SHOW = """
for name in sorted(os.environ):
    say(f"{name}={os.environ[name]}")
"""
PROMISED = (
    "RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE NODE_RANK MASTER_ADDR MASTER_PORT RANK_ID RANK_SIZE "
    "DEVICE_ID TORCHELASTIC_RESTART_COUNT TORCHELASTIC_MAX_RESTARTS TORCHELASTIC_RUN_ID "
    "TORCHELASTIC_ERROR_FILE "
    "FAULTRUN_RUN_ID FAULTRUN_INCARNATION FAULTRUN_SOCKET FAULTRUN_GRACE_S"
)


@pytest.mark.parametrize("framework", ["plain", "torch"])
def test_promised_names_reach_the_worker_and_misleading_ones_not(launcher: Launcher, framework: str) -> None:
    inherited = {
        "GROUP_INFO_FILE": "/nowhere",
        "RANK": "77",
        "FAULTRUN_RESUME_FROM": "/old",
        "MY_OWN": "kept",
    }
    words = (f"--framework={framework}", "--worker_num=2", *launcher.program(SHOW))
    run = launcher.command(*words, environ=inherited)
    assert run.ends() == 0
    for rank in range(2):
        found = dict(line.split("=", 1) for line in run.log(rank).splitlines() if "=" in line)
        assert set(PROMISED.split()) <= found.keys()
        assert (found["RANK"], found["WORLD_SIZE"], found["MY_OWN"]) == (str(rank), "2", "kept")
        assert not {"GROUP_INFO_FILE", "FAULTRUN_RESUME_FROM"} & found.keys()
        assert int(found["MASTER_PORT"]) > 1024


def test_rank_0_of_torch_is_started_ahead_of_those_that_will_connect_to_it(launcher: Launcher) -> None:
    run = launcher.command("--framework=torch", "--worker_num=3", *launcher.program("train()"))
    run.trains(range(3))
    run.signal(signal.SIGTERM)
    assert run.ends() == 143
    started_s = {event["rank"]: event["run_s"] for event in run.events("WorkerStarted")}
    assert started_s[1] - started_s[0] >= 0.1
    assert started_s[2] > started_s[1]


def test_a_rank_0_that_ends_at_once_keeps_nobody_waiting(launcher: Launcher) -> None:
    words = ("--framework=torch", "--max_restarts=0", "--worker_num=2", "false")
    run = launcher.command(*words)
    assert run.ends() != 0
    assert {event["rank"] for event in run.events("WorkerExit")} == {0, 1}
