"""As the entrypoint of a container: nobody else reaps, and signals without a handler do not exist."""

import subprocess
from pathlib import Path

import pytest

from support.machine.processes import wait_until
from support.runs import ESCAPES, FAULTRUN, Launcher, Run

UNSHARE = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")


def allowed() -> bool:
    """Whether this machine lets us make a PID namespace."""
    try:
        return subprocess.run([*UNSHARE, "true"], capture_output=True, check=False).returncode == 0
    except OSError:
        return False


pytestmark = pytest.mark.skipif(not allowed(), reason="no PID namespaces here")


def contained(launcher: Launcher, code: str, *options: str) -> Run:
    """A run that is PID 1 of its own namespace; ``pid`` is what it is called from outside."""
    words = (*UNSHARE, *FAULTRUN, "--framework=plain", "--worker_num=2", *options, *launcher.program(code))
    console = launcher.folder / "console.txt"
    with console.open("wb") as output:
        process = subprocess.Popen(words, cwd=launcher.folder, stdout=output, stderr=output)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    pid = int(wait_until(lambda: children.read_text() or None, what="PID 1"))
    run = Run(pid, launcher.folder / "faultrun_log", console, process)
    launcher.started.append(run)
    return run


def test_it_reaps_what_was_orphaned_and_recovers_as_anywhere(launcher: Launcher) -> None:
    run = contained(
        launcher,
        ESCAPES + "if life == 0:\n    escape()\n    while not os.path.exists('escaped_0_0'): pass\n"
        "    if rank == 1: os.kill(os.getpid(), signal.SIGKILL)\n    train()\n"
        "def state(pid):\n"
        "    try: return open(f'/proc/{pid}/stat').read().rpartition(')')[2].split()[0]\n"
        "    except OSError: return 'gone since'\n"
        "while rank == 1 and not os.path.exists('looked'): pass\n"  # or it may be a zombie
        "zombies = [pid for pid in os.listdir('/proc') if pid.isdigit() and state(pid) == 'Z']\n"
        "say('pid 1 is', open('/proc/1/cmdline').read().split(chr(0))[2], 'zombies', zombies)\n"
        "open('looked', 'w')",
    )
    assert run.ends() == 0
    assert run.log(0, 1).strip() == "pid 1 is faultrun zombies []"
    assert run.events("Drained", incarnation=0)[0]["swept"] == 2


def test_in_the_background_is_where_pid_1_does_not_go(launcher: Launcher) -> None:
    run = contained(launcher, "pass", "--join=False")
    assert run.ends() == 0
    assert "PID 1 of a container stays in the foreground" in run.text
    assert run.events("RunFinished", exit_code=0)


def test_what_somebody_executes_in_the_container_is_adopted_and_left_alone(launcher: Launcher) -> None:
    """As ``kubectl exec`` does: its shell ends, what it left behind comes to PID 1, which is us."""
    run = contained(launcher, "train()")
    run.trains(range(2))
    visitor = launcher.folder / "visitor"

    def execute(script: str) -> str:
        enter = ("nsenter", "--target", str(run.pid), "--pid", "--mount", "/bin/sh", "-c")
        return subprocess.run([*enter, script], capture_output=True, text=True, check=True, timeout=60).stdout

    execute(f"setsid sleep 600 > /dev/null 2>&1 & echo $! > {visitor}")
    execute(f"kill -9 {run.worker(1)}")
    run.event("IncarnationStarted", incarnation=1)
    assert execute(f"grep PPid /proc/$(cat {visitor})/status").split() == ["PPid:", "1"]
