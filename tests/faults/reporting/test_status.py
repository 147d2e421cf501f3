"""``faultrun status`` beside a real run: in training, after a kill, without its supervisor, at its end."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from faultrun.cli.status.gather import gather
from faultrun.observe.status.ranks import Pace
from faultrun.observe.status.status import RunStatus, Supervised
from faultrun.observe.status.words import lines
from support.machine.processes import PATIENCE_S, wait_until
from support.machine.terminal import Terminal
from support.places import TESTS
from support.runs import FAULTRUN, Launcher

COUNT = (sys.executable, str(TESTS / "faults" / "scripts" / "gasp_count.py"), "1")
WORDS = ("--worker_num=2", "--checkpoint_dir=ck", *COUNT)


def shown(log_dir: Path, *words: str) -> str:
    done = subprocess.run(
        [*FAULTRUN, "status", "--log_dir", str(log_dir), *words],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return done.stdout


def states(status: RunStatus) -> list[tuple[str, int | None]]:
    return [(rank.state, rank.step) for rank in status.ranks]


def test_status_is_right_while_a_run_trains_loses_a_rank_its_supervisor_and_ends(launcher: Launcher) -> None:
    run = launcher.command(*WORDS).trains((0, 1))
    run.event("FirstStep")
    before = gather(run.log_dir, Pace())
    assert (before.supervisor, before.phase, before.incarnation) == (Supervised.RUNNING, "running", 0)
    assert states(before) == [("training", 5)] * 2
    assert [rank.pid for rank in before.ranks] == [run.worker(0), run.worker(1)]
    assert all(rank.rss_bytes and rank.step_age_s is not None for rank in before.ranks)
    assert before.outlook is not None
    assert before.outlook.text == "restart 1 of 3 in 1h, from the newest whole checkpoint"
    terminal = Terminal()
    watching = [*FAULTRUN, "status", "--watch", "--interval=0.2", "--log_dir", str(run.log_dir)]
    watch = terminal.start(watching, launcher.folder, {"NO_COLOR": "1"})
    terminal.read_until(lambda said: b"incarnation 0  2 of 2 ranks up" in said)

    run.kill(1)
    run.trains((0, 1), incarnation=1)
    run.event("FirstStep", incarnation=1)
    terminal.read_until(lambda said: b"incarnation 1  2 of 2 ranks up" in said)
    again = gather(run.log_dir, Pace())
    assert (again.incarnation, again.spent.restarts, again.spent.incidents) == (1, 1, 1)
    assert again.last_incident is not None
    assert "rank 1 of 2 killed by SIGKILL at step 5" in again.last_incident.headline
    assert again.last_checkpoint is not None
    assert again.last_checkpoint.step == 5
    assert again.resumed_step == 5

    data: dict[str, Any] = json.loads(shown(run.log_dir, "--json"))
    assert data["schema"] == 1
    assert {
        "run_id",
        "phase",
        "incarnation",
        "ranks",
        "restarts_left",
        "last_incident",
        "last_checkpoint",
    } <= set(data)
    assert [set(rank) >= {"rank", "pid", "state", "step"} for rank in data["ranks"]] == [True, True]

    workers = [run.worker(0), run.worker(1)]
    run.kill_supervisor()
    wait_until(lambda: not any(Path(f"/proc/{pid}/exe").exists() for pid in workers), what="the workers' end")
    orphan = gather(run.log_dir, Pace())
    assert orphan.supervisor is Supervised.GONE
    assert [state for state, _ in states(orphan)] == ["gone", "gone"]
    assert any("no supervisor is running" in line for line in lines(orphan))
    assert " was running " in next(iter(lines(orphan)))

    assert launcher.command(*WORDS).ends() == 0
    assert b"ended with exit code 0" in terminal.read_to_end()
    assert watch.wait(PATIENCE_S) == 0
    terminal.close()
    text = shown(run.log_dir, "--watch")
    assert "ended with exit code 0" in text
    assert len(text.splitlines()) == 1


def test_status_tells_a_patterns_newest_save_and_that_it_gives_back_the_budget(launcher: Launcher) -> None:
    body = """
import time
from pathlib import Path
Path("ck").mkdir(exist_ok=True)
for step in range(10, 40 if life else 20, 10):
    if rank == 0:
        Path("part").write_bytes(b"x" * 100)
        Path("part").replace(f"ck/state-{step}.bin")
    while not Path(f"ck/state-{step}.bin").exists():
        time.sleep(0.01)
if life == 0 and rank == 1:
    os.kill(os.getpid(), 9)
train()
"""
    words = ("--worker_num=2", "--checkpoint_dir=ck", r"--checkpoint_pattern=state-(?P<step>\d+)\.bin")
    run = launcher.command(*words, *launcher.program(body)).trains((0, 1), incarnation=1)
    now = gather(run.log_dir, Pace())
    assert now.resumed_step == 10
    assert now.last_checkpoint is not None
    assert now.last_checkpoint.step == 30
    assert now.outlook is not None
    assert now.outlook.text.startswith("restart 2 of 3 in 1h after ")
    assert now.outlook.text.endswith("; restart 1 of 3 at once if the save of step 30 is whole")
