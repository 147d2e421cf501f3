"""What a run leaves behind: its record, and older runs untouched."""

import json
import os
import shutil
import signal
import subprocess

from support.machine.processes import wait_until
from support.runs import FAULTRUN, Launcher


def test_a_run_that_ended_is_set_aside_by_the_next_and_nothing_is_overwritten(launcher: Launcher) -> None:
    ids = []
    for number in range(3):
        run = launcher.run(f"say('number', {number})", workers=1)
        assert run.ends() == 0
        ids.append(json.loads((run.log_dir / "run.json").read_text())["run_id"])
    assert len(set(ids)) == 3
    for number, run_id in enumerate(ids[:2]):
        kept = run.log_dir / "runs" / run_id
        assert (kept / "worker_0.log").read_text() == f"number {number}\n"
        assert json.loads((kept / "run.json").read_text())["run_id"] == run_id
    assert "the previous run had ended; its files are now in" in run.text


def test_a_log_dir_that_is_removed_while_the_run_goes_on_is_made_again_and_gone_on_with(
    launcher: Launcher,
) -> None:
    run = launcher.run("train()").trains(range(2))
    rank_1 = run.worker(1)
    shutil.rmtree(run.log_dir)
    os.kill(rank_1, signal.SIGKILL)
    run.event("IncarnationStarted", incarnation=1)
    run.signal(signal.SIGTERM)
    assert run.ends() == 143
    assert "was removed or moved away while the run goes on; it is made again with its journal" in run.text
    again = launcher.run("")
    assert again.ends() == 0
    assert "after incarnation 1" in again.text


def test_a_log_dir_that_is_moved_away_stays_that_of_the_run_which_goes_on(launcher: Launcher) -> None:
    run = launcher.run("train()").trains(range(2))
    run.log_dir.rename(run.log_dir.with_name("archived"))
    wait_until(lambda: (run.log_dir / "control.sock").exists() or None, what="the log_dir")
    assert launcher.run("train()", "--run_id=other").ends() == 73
    stop = [*FAULTRUN, "stop", f"--log_dir={run.log_dir}"]
    assert subprocess.run(stop, cwd=launcher.folder, check=False).returncode == 0
    assert run.ends() == 143


def test_run_json_says_who_runs_and_where_to_talk_to_it(launcher: Launcher) -> None:
    run = launcher.run("train()", "--run_id=mine").trains(range(2))
    record = json.loads((run.log_dir / "run.json").read_text())
    assert (record["run_id"], record["pid"]) == ("mine", run.pid)
    assert record["socket"] == str(run.log_dir / "control.sock")
    assert record["spec"]["topology"]["nodes"][0]["slots"] == 2
    run.signal(signal.SIGTERM)
    run.ends()
    assert not (run.log_dir / "control.sock").exists()


def test_a_log_dir_with_a_name_too_long_for_a_socket_works_all_the_same(launcher: Launcher) -> None:
    deep = "/".join(["a_rather_long_name_of_a_folder"] * 4)
    run = launcher.run(
        "sys.exit(0 if os.path.exists(os.environ['FAULTRUN_SOCKET']) else 9)", f"--log_dir={deep}"
    )
    assert run.ends() == 0
    assert (launcher.folder / deep / "worker_1.log").exists()
