"""What becomes of the saves of a script that uses the SDK in unusual ways: by text, below a shell."""

import sys
from pathlib import Path

from support.runs import Launcher, Run

GASPS_OF_A_STRING = """
import json, time
state = {"step": 0}
def write(path):
    with open(path, "w") as file:
        json.dump(state, file)
here = os.getcwd()
sdk.start(save=write, directory=sdk.Folder(directory="ck", replica_group=(0, 1)), name="count.json")
os.chdir("/")
if sdk.resume() is None:
    for n in range(1, 6):
        with sdk.updating():
            state["step"] = n
        sdk.step(n)
    open(f"{here}/trained_{rank}", "w").close()
    while rank == 1 and not os.path.exists(f"{here}/trained_0"):
        time.sleep(0.01)
    if rank == 1:
        os.kill(os.getpid(), 9)
    train()
sdk.done()
"""


def test_a_folder_by_a_string_holds_every_gasp_also_after_a_chdir(launcher: Launcher) -> None:
    run = script(launcher, GASPS_OF_A_STRING)
    assert run.ends() == 0
    assert [Path(saved["path"]).name for saved in run.events("GaspSaved")] == ["count-step_5.json"]
    assert not run.events("GaspFailed")


def test_the_request_reaches_a_program_below_a_shell_and_its_save_is_resumed_from(launcher: Launcher) -> None:
    path = launcher.folder / "saves.py"
    launcher.program("from faultrun import sdk\n" + GASPS_OF_A_STRING, path.name)
    shell = f"{sys.executable} {path}; exit $?"  # bash is the leader, and dies of the SIGTERM that it is sent
    run = launcher.command(
        "--worker_num=2", "--backoff=1ms..1ms", "--checkpoint_dir=ck", "--no-python", "bash", "-c", shell
    )
    assert run.ends() == 0
    assert [Path(saved["path"]).name for saved in run.events("GaspSaved")] == ["count-step_5.json"]
    assert run.events("RecoveryPointChosen")[-1]["point"]["global_step"] == 5


def test_a_worker_that_could_never_save_ends_before_it_trains(launcher: Launcher) -> None:
    (launcher.folder / "taken").write_text("")
    run = script(launcher, 'sdk.start(save=print, directory="taken")\ntrain()')
    assert run.ends() != 0
    # Whoever fails first has said why; the others may be told to leave before they have.
    assert "nothing can be saved in" in run.log(0) + run.log(1)


def script(launcher: Launcher, code: str) -> Run:
    path = launcher.folder / "saves.py"
    launcher.program("from faultrun import sdk\n" + code, path.name)
    return launcher.command(
        "--worker_num=2", "--max_restarts=1", "--backoff=1ms..1ms", "--checkpoint_dir=ck", str(path)
    )
