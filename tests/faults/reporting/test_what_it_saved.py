"""What a real run says that it has saved: while it trains on, when it is stopped, at its end."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from support.runs import FAULTRUN, Launcher, Run

JOB = r"""
import json, os, signal, sys, threading, time
from pathlib import Path
from faultrun import sdk

rank, life = int(os.environ["RANK"]), int(os.environ["FAULTRUN_INCARNATION"])
last = int(sys.argv[1])
state = {"step": 0}
point = sdk.resume()
if point is not None:
    state = json.loads(Path(point.path).read_text())

def write(path):
    Path(path).write_text(json.dumps(state))

sdk.start(save=write, directory="ck", name="gasp.json")
while state["step"] < last or (last == 0):
    threading.Event().wait(0.02)
    with sdk.updating():
        state["step"] += 1
    sdk.step(state["step"])
    if state["step"] % 20 == 0 and rank == 0:
        write("ck/new")
        os.replace("ck/new", f"ck/state-{state['step']}.json")
    if (life, state["step"]) == (1, 60):
        print("ready", flush=True)
    if (rank, life, state["step"]) == (0, 0, 30):
        Path("is_ahead").touch()
        threading.Event().wait(600)
    if (rank, life, state["step"]) == (1, 0, 28):
        until_s = time.monotonic() + 60
        while not Path("is_ahead").exists() and time.monotonic() < until_s:
            threading.Event().wait(0.002)
        os.kill(os.getpid(), signal.SIGKILL)
"""
"""Two ranks that do fifty steps a second and save every twenty; LAST 0: for ever.

Rank 1 dies when it has done step 28, and the other waits at step 30.
"""


def started(launcher: Launcher, last: int) -> Run:
    (launcher.folder / "ck").mkdir(exist_ok=True)
    job = launcher.folder / "job.py"
    job.write_text(JOB)
    options = (
        "--worker_num=2",
        "--report=True",
        "--checkpoint_dir=ck",
        r"--checkpoint_pattern=state-(?P<step>\d+)\.json",
    )
    return launcher.command(*options, sys.executable, str(job), str(last))


def asked(verb: str, log_dir: Path, *words: str) -> dict[str, Any]:
    done = subprocess.run(
        [*FAULTRUN, verb, "--log_dir", str(log_dir), "--json", *words],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    told: dict[str, Any] = json.loads(done.stdout)["savings"]
    return told


def test_a_run_says_what_it_has_saved_until_its_end(launcher: Launcher) -> None:
    run = started(launcher, 0).trains((0, 1), incarnation=1)
    now = asked("status", run.log_dir)
    assert (now["faults"], now["left_out"]) == (1, {}), "though the journal hears of steps each minute"

    then = asked("stop", run.log_dir, "--assume=launcher=torchrun,notice=1h")
    assert run.ends() == 143
    assert (then["faults"], then["left_out"]) == (1, {})
    assert "2.3 device-hours against a restart by hand" in then["text"]
    assert then["launcher"]["total_s"] < 60

    step = run.judgement(1)["step"]
    end = started(launcher, run.events("Heartbeat")[-1]["steps"][0]["step"] + 30)
    assert end.ends() == 0
    told = asked("report", end.log_dir)
    (one,) = told["each"]
    assert one["steps_again"] == step - 20, "its last own save was of step 20"
    assert one["here"]["again_s"] < one["by_hand"]["again_s"]
    assert one["by_hand"]["again_s"] >= 0.9 * 0.02 * (step - 20), (
        "a step takes 20 ms, as the journal has measured it"
    )
    assert end.text.splitlines()[-1].endswith(f" faultrun: {told['text']}")
