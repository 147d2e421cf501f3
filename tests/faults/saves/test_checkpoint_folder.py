"""Folders of checkpoints that vanish under a run, or that nobody named; real processes."""

import signal
from pathlib import Path

import pytest

from support.machine.processes import wait_until
from support.places import TESTS
from support.runs import Launcher, Run

COUNT = TESTS / "faults" / "scripts" / "gasp_count.py"

WRITES = """
import glob, json, struct, time
def write(path, value, **told):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    tensor = {"dtype": "I32", "shape": [1], "data_offsets": [0, 4]}
    head = json.dumps({"__metadata__": told, "w": tensor}).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(head)) + head + struct.pack("<i", value))
"""
SAVES = f"""{WRITES}
def save(step):
    write("mnt/ckpt/last.tmp", step, step=str(step))
    os.rename("mnt/ckpt/last.tmp", "mnt/ckpt/last.safetensors")
def die():
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_mount_that_drops_is_waited_for_and_resumed_from(launcher: Launcher) -> None:
    run = launcher.run(
        SAVES
        + """
if life == 0:
    say("step 5 loss 1")
    save(5)
    die()
if life == 1:
    os.rename("mnt", "unmounted")
    die()
say("from", os.environ["FAULTRUN_RESUME_STEP"])
""",
        "--checkpoint_dir=mnt/ckpt",
        workers=1,
    )
    run.event("NothingWhole")
    gone = run.events("NothingWhole")[0]  # it looks again and again
    assert (gone["gone_s"], gone["phase"]) == (0.0, "surveying")
    (launcher.folder / "unmounted").rename(launcher.folder / "mnt")
    assert run.ends() == 0
    assert "from 5" in run.log(0, 2)
    assert "mnt/ckpt are gone" in run.text
    assert "looking for the checkpoints again in 1 s, and for 60 s in all" in run.text


def resumed_at(run: Run) -> list[int | None]:
    return [line["point"] and line["point"]["global_step"] for line in run.events("RecoveryPointChosen")]


def test_a_gasp_is_found_again_although_nobody_named_its_folder(launcher: Launcher) -> None:
    run = launcher.command("--worker_num=3", str(COUNT), "9").trains(range(3))
    run.kill(1)
    run.trains(range(3), incarnation=1)
    assert resumed_at(run) == [None, 5]
    assert run.text.count("which is not a --checkpoint_dir; restarts of this run look there, too") == 1
    run.kill_supervisor()
    again = launcher.command("--worker_num=3", str(COUNT), "9")
    assert again.ends() == 0
    assert resumed_at(again)[-1] == 5


TRAINS = f"""{WRITES}
first = int(os.environ.get("FAULTRUN_RESUME_STEP") or os.environ["FIRST"]) + 1
say("begins at", first)
def save(step):
    write("ckpt/new.tmp", time.time_ns() % 2**31, step=str(step))
    os.rename("ckpt/new.tmp", f"ckpt/step_{{step}}.safetensors")
def leave(*_):
    save(first + 3)
    sys.exit(143)
signal.signal(signal.SIGTERM, leave)
for step in range(first, first + 3):
    say(f"step {{step}} loss 0.5")
    save(step)
train()
"""


ROLLS_BACK = """
def trains(*steps):
    for step in steps:
        say(f"step {step} loss 0.5")
        save(step)
if life == 0:
    trains(1, 2, 3, 4)
    say("waits", open("let_go_0").read())
    trains(1, 2)
train()
"""


@pytest.mark.parametrize("ends", [signal.SIGTERM, signal.SIGKILL], ids=["stopped", "killed"])
def test_a_training_that_was_rolled_back_goes_on_from_its_last_save(launcher: Launcher, ends: int) -> None:
    launcher.holds_saves(0)
    program = launcher.program(TRAINS[: TRAINS.index("def leave")] + ROLLS_BACK)
    words = ("--worker_num=1", "--checkpoint_dir=ckpt", *program)
    run = launcher.command(*words, environ={"FIRST": "0"})
    registry = launcher.folder / ".ckpt.faultrun"
    wait_until(lambda: "step_4" in noted(registry), while_runs=run.pid, what="the list of saves")
    launcher.lets_go(0)
    wait_until(lambda: noted(registry).count("step_2") == 2, while_runs=run.pid, what="the save made anew")
    run.signal(ends)
    run.ends()
    again = launcher.command(*words, environ={"FIRST": "0"}).trains([0], incarnation=1)
    assert f"resuming from {launcher.folder}/ckpt/step_2.safetensors" in again.text
    again.signal(signal.SIGTERM)
    again.ends()


def noted(registry: Path) -> str:
    return "".join(path.read_text() for path in registry.glob(".saves*"))


def one_of_two_runs(
    launcher: Launcher, name: str, first: int, *, life: int = 0, ends: int = signal.SIGTERM
) -> Run:
    """A life of run ``name`` in the folder of both, which comes four steps far."""
    own = ("--worker_num=1", f"--log_dir={name}", "--checkpoint_dir=ckpt")
    run = launcher.command(*own, *launcher.program(TRAINS), environ={"FIRST": str(first)})
    run.log_dir = launcher.folder / name
    run.trains([0], incarnation=life)
    run.event("SavesObserved", incarnation=life)
    run.signal(ends)
    run.ends()
    return run


@pytest.mark.parametrize("ends", [signal.SIGTERM, signal.SIGKILL], ids=["stopped", "killed"])
def test_what_another_run_saved_while_this_one_was_away_is_not_taken_for_its_own(
    launcher: Launcher, ends: int
) -> None:
    one_of_two_runs(launcher, "mine", 0)
    one_of_two_runs(launcher, "other", 100, ends=ends)
    again = one_of_two_runs(launcher, "mine", 0, life=1)
    assert resumed_at(again)[-1] == 4
    assert "saved in ckpt while this run was away, and nothing of it is taken" in again.text


WRITES_OVER = f"""{WRITES}
def noted():
    for path in glob.glob(".ckpt.faultrun/.seen*"):
        newest = json.load(open(path))["saves"][-1]
        return newest["step"], sum(map(bool, newest["digests"]))
    return 0, 0
last, names = sys.argv[1].split(":")
say("step 1 loss 0.5")
open(f"begun_{{rank}}", "w").close()
while len(glob.glob("begun_*")) < int(os.environ["WORLD_SIZE"]):
    time.sleep(0.01)
for step in range(10, 60, 10) if life == 0 else ():
    say(f"step {{step}} loss 0.5")
    written = names.split()[: 1 if last == "torn" and step == 50 else 2]
    for name in written:
        if f"rank{{1 - rank}}" not in name:
            write(f"ckpt/{{name}}.safetensors", step + rank + len(name))
    while noted() < (step, len(written)):
        time.sleep(0.01)
say("told", sys.argv[2:])
train()
"""


@pytest.mark.parametrize("last", ["whole", "torn"])
@pytest.mark.parametrize("names", ["model optim_of_it", "last_rank0 last_rank1"])
def test_what_is_of_one_save_is_known_to_the_next_supervisor_also_without_steps_in_it(
    launcher: Launcher, names: str, last: str
) -> None:
    """Each save writes over the one before: of one that was not finished nothing older is left."""
    own = "ckpt/last_rank{rank}.safetensors" if "rank" in names else "{checkpoint}"
    options = (
        f"--worker_num={2 if 'rank' in names else 1}",
        "--checkpoint_dir=ckpt",
        f"--resume_arg=--from={own}",
    )
    words = (*options, *launcher.program(WRITES_OVER), f"{last}:{names}")
    launcher.command(*words).trains([0]).kill_supervisor()
    again = launcher.command(*words)
    if last == "torn":
        assert again.ends() == 65
        return
    again.trains([0], incarnation=1)
    assert (
        f"resuming from {launcher.folder}/ckpt/{names.split(maxsplit=1)[0]}.safetensors (step 50)"
        in again.text
    )
    again.signal(signal.SIGTERM)
    again.ends()
