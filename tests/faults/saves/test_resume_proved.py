"""A resume is proved by the first step after it: scripts that report nothing and only print."""

import signal
import sys

from faultrun.core.humanize import span
from support.checkpoints.ckpt_bytes import ckpt
from support.runs import Launcher, Run

SAVES = """
import glob, time
os.makedirs("ckpt", exist_ok=True)
if life == 0 and rank == 0:
    with open("ckpt/net-1_80.ckpt", "wb") as file:
        file.write(bytes.fromhex("CONTENT"))
""".replace("CONTENT", ckpt(1, 80).hex())

TRAINS = f"""
import time
for step in range(first, first + 3):
    say(f"step {{step}} loss 0.5")
open(f"trained_{{rank}}", "w").close()
while not os.path.exists("trained_1"):
    time.sleep(0.01)
{SAVES}
train()
"""

ASKS = 'first = int(os.environ.get("FAULTRUN_RESUME_STEP") or 77) + 1'

NOTED = """
while "net-1_80" not in "".join(open(path).read() for path in glob.glob(".ckpt.faultrun/.saves*")):
    time.sleep(0.01)
"""


def killed_once(launcher: Launcher, code: str, *options: str) -> Run:
    run = launcher.run(f"{code}\n{TRAINS}", "--checkpoint_dir=ckpt", *options).trains([0, 1])
    run.kill(1)
    run.event("RecoveryTimed", incarnation=1)
    run.signal(signal.SIGTERM)
    assert run.ends() == 143
    return run


def test_a_script_that_goes_on_behind_its_checkpoint_has_its_resume_proved(launcher: Launcher) -> None:
    run = killed_once(launcher, ASKS)
    checked = run.events("ResumeChecked", incarnation=1)[-1]
    assert (checked["began"], checked["step"], checked["chosen_step"]) == ("as chosen", 81, 80)
    assert checked["by_log"]
    (timed,) = run.events("RecoveryTimed", incarnation=1)
    told = span(timed["total_s"])
    assert f"training again {told} after the failure (step 81 by its log, as chosen)" in run.text
    assert "training again at step 81 by its log, as chosen" in run.card(1)
    assert "training again after" in run.card(1)


def test_a_checkpoint_that_nobody_tells_the_script_of_is_never_claimed(launcher: Launcher) -> None:
    run = killed_once(launcher, "first = 78 if life == 0 else 1")
    assert (
        f"not handed over: no option tells the script of {launcher.folder}/ckpt/net-1_80.ckpt (step 80)"
        in run.text
    )
    assert (
        "the script began at step 1 by its log although step 80 lies there: nothing tells the script"
        in run.card(1)
    )


def test_what_was_fetched_before_the_first_step_is_no_save_whatever_it_tells(launcher: Launcher) -> None:
    code = 'for step in range(3): say(f"step {step + 1} loss 0.5")\ntrain()'
    run = launcher.run(f"{SAVES}\n{NOTED}\n{code}", "--checkpoint_dir=ckpt").trains([0, 1])
    run.event("FirstStepLogged", incarnation=0)
    run.kill(1)
    run.trains([0, 1], incarnation=1).signal(signal.SIGTERM)
    assert run.ends() == 143
    assert run.events("RecoveryPointChosen")[-1]["point"] is None
    assert "net-1_80.ckpt: written before the first step of training" in run.card(1)


SAVES_A_STEP = f"""
first = int(os.environ.get("FAULTRUN_RESUME_STEP") or 0) + 1
os.makedirs("ckpt", exist_ok=True)
def save(step):
    with open(f"ckpt/net-1_{{step}}.ckpt", "wb") as file:
        file.write(bytes.fromhex("{ckpt(1, 80).hex()}"))
def leave(*_):
    if rank == 0:
        save(step + 1)
    sys.exit(143)
signal.signal(signal.SIGTERM, leave)
for step in range(first, first + 3):
    say(f"step {{step}} loss 0.5")
"""


def test_a_run_that_lost_its_log_dir_goes_on_under_its_id_until_it_has_ended_well(launcher: Launcher) -> None:
    options = ("--checkpoint_dir=ckpt", "--run_id=mine")

    def begins() -> Run:
        if (log_dir := launcher.folder / "faultrun_log").exists():
            log_dir.rename(launcher.folder / f"lost_{len(launcher.started)}")
        return launcher.run(f"{SAVES_A_STEP}\nif first == 1: train()", *options)

    first = begins().trains([0, 1])
    first.event("FirstStepLogged", incarnation=0)
    first.signal(signal.SIGTERM)
    assert first.ends() == 143
    (saved,) = (launcher.folder / "ckpt").iterdir()
    again = begins()
    assert again.ends() == 0
    assert f"resuming from {saved} (step 80)" in again.text
    anew = begins().trains([0, 1])
    assert "starting from the beginning; 1 checkpoint found and left alone" in anew.text


STAGE = """
import json, os, pathlib, signal, sys, time
from faultrun import sdk
folder, last, fails_at = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
point = sdk.resume()
begun = json.loads(pathlib.Path(point.path).read_bytes()) if point else [folder, 0]
print("begins from", begun, flush=True)
now = begun
sdk.start(lambda path: pathlib.Path(path).write_text(json.dumps(now)), directory=folder)
for n in range(begun[1] + 1, last + 1):
    with sdk.updating():
        now = [folder, n]
    sdk.step(n)
    if n == fails_at and os.environ["FAULTRUN_INCARNATION"] == "0":
        os.kill(os.getpid(), signal.SIGTERM)
        signal.pause()
"""


def test_a_later_stage_goes_on_from_its_own_save_and_an_earlier_one_is_not_given_it(
    launcher: Launcher,
) -> None:
    for name in ("pretrain.py", "tune.py"):
        (launcher.folder / name).write_text(STAGE)
    stages = f"{sys.executable} pretrain.py ck/a 5 0 && {sys.executable} tune.py ck/b 6 3"
    run = launcher.command(
        "--worker_num=1", "--no-python", "--checkpoint_dir=ck", "--backoff=10ms..20ms", "bash", "-c", stages
    )
    assert run.ends() == 0
    begins = [line for line in run.log(0, 1).splitlines() if line.startswith("begins")]
    assert begins == ["begins from ['ck/a', 0]", "begins from ['ck/b', 3]"]
    # The console says it too, where the first program's steps are seen before the second begins.
    assert "it was saved by tune.py, which saves in " in run.log(0, 1)
