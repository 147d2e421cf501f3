"""What workers start: left alone while they save, gone before the next incarnation begins."""

import signal

import pytest

from support.machine.processes import children, lives, wait_until
from support.runs import Launcher

LOADER = """
ask, asked = os.pipe()
answered, answer = os.pipe()
loader = os.fork()
if loader == 0:
    signal.signal(signal.SIGTERM, lambda *_: os.write(answer, b"signalled"))
    while True:
        os.read(ask, 1)
        os.write(answer, b"batch")
def save(*_):
    "A save needs its data loader to the end."
    os.write(asked, b"?")
    say("loader says", os.read(answered, 99).decode())
    sys.exit(143)
"""


def test_a_survivors_data_loader_lives_through_the_save(launcher: Launcher) -> None:
    run = launcher.run(
        LOADER + "signal.signal(signal.SIGTERM, save)\n"
        "train_in_the_first_life()\n"
        "os.kill(loader, signal.SIGKILL)",
        "--grace=600s",
    )
    run.trains(range(2)).kill(1)
    assert run.ends() == 0, "what it leaves behind is not waited for"
    assert "loader says batch\n" in run.log(0)


@pytest.mark.parametrize(
    "shell",
    [
        "{python}; echo the shell goes on",
        "({python}; true); true",
        "trap 'kill -TERM $program' TERM; {python} & program=$!; wait $program",
        "{python} 2>&1 | tee train_$RANK.log",
    ],
    ids=["dies of the request", "a shell below it, too", "passes it on and does not wait", "a pipe"],
)
def test_a_program_below_a_shell_has_the_whole_window_and_its_loader_lives_through_it(
    launcher: Launcher, shell: str
) -> None:
    program = launcher.program(
        LOADER + "def save_slowly(*_): say('saving'), open(f'let_go_{rank}').read(), save()\n"
        "signal.signal(signal.SIGTERM, save_slowly)\n"
        "train_in_the_first_life()\n"
        "os.kill(loader, signal.SIGKILL)"
    )
    script = launcher.folder / "train.sh"
    script.write_text(shell.format(python=" ".join(program)))
    launcher.holds_saves(0)
    run = launcher.command("--worker_num=2", "--grace=600s", "bash", str(script))
    run.trains(range(2)).kill(1)
    run.said(0, "saving")
    wait_until(lambda: not lives(run.worker(0)), while_runs=run.pid, what="the shell's end")
    launcher.lets_go(0)
    assert run.ends() == 0
    assert "loader says batch\n" in run.log(0)


def test_a_program_below_a_shell_that_does_not_leave_is_killed_at_the_deadline(launcher: Launcher) -> None:
    program = launcher.program("signal.signal(signal.SIGTERM, signal.SIG_IGN)\nsay(os.getpid())\ntrain()")
    script = launcher.folder / "train.sh"
    script.write_text(f"{' '.join(program)}; true")
    run = launcher.command("--worker_num=2", "--stop_grace=300ms", "bash", str(script)).trains(range(2))
    run.signal(signal.SIGTERM)
    assert run.ends() == 143
    (asked,), exits = run.events("GaspRequested"), run.events("WorkerExit")
    assert [line["run_s"] >= asked["deadline_s"] for line in exits] == [True, True]
    assert not any(lives(int(run.log(rank).split()[0])) for rank in range(2))


def test_a_plain_child_of_a_rank_that_had_to_be_killed_holds_up_no_restart(launcher: Launcher) -> None:
    run = launcher.run(
        "if rank == 0: signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "import subprocess\n"
        "if os.environ['FAULTRUN_INCARNATION'] == '0': say(subprocess.Popen(['sleep', '600']).pid)\n"
        "train_in_the_first_life()",
        "--grace=300ms",
    )
    run.trains(range(2)).kill(1)
    assert run.ends() == 0, run.text
    assert not any(lives(int(run.log(rank, 0).split()[0])) for rank in range(2))
    assert "stuck in the kernel" not in run.text


def test_the_children_of_a_dead_rank_die_at_once_and_not_with_the_survivors(launcher: Launcher) -> None:
    run = launcher.run(
        "if rank == 0: signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "if os.fork() == 0:\n"
        "    signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "    while True: signal.pause()\n"
        "train_in_the_first_life()",
        "--grace=60s",
        "--max_restarts=0",
    )
    run.trains(range(2))
    orphans = children(run.worker(1))
    assert len(orphans) == 1
    run.kill(1)
    run.event("GaspRequested")
    wait_until(lambda: not lives(orphans[0]), while_runs=run.pid, what="the orphan's end")
    assert lives(run.worker(0))
    run.signal(signal.SIGINT)
    run.event("StopRequested")
    run.signal(signal.SIGINT)
    assert run.ends() == 130


SAVER = """
os.makedirs("ck", exist_ok=True)
if os.environ["FAULTRUN_INCARNATION"] == "1":
    say(open("ck/last.txt").read()[-5:])
elif rank == 1 and os.fork() == 0:
    with open("ck/last.txt", "w", buffering=1) as file:
        while not os.path.exists("goes_on"):
            file.write("writes\\n")
            say("writes")
            time.sleep(0.02)
        file.write("whole")
    os._exit(0)
train_in_the_first_life()
"""


def test_a_forked_saver_of_a_killed_rank_writes_its_checkpoint_to_the_end(launcher: Launcher) -> None:
    run = launcher.run("import time\n" + SAVER, "--grace=600s", "--checkpoint_dir=ck").trains(range(2))
    run.said(1, "writes")
    run.kill(1)
    run.event("WorkerExit")
    (launcher.folder / "goes_on").touch()
    assert run.ends() == 0, run.text
    assert "whole" in run.log(0, 1)


def test_who_has_only_inherited_an_open_checkpoint_is_not_waited_for(launcher: Launcher) -> None:
    run = launcher.run(
        "os.makedirs('ck', exist_ok=True)\n"
        "file = open('ck/last.txt', 'w')\n"
        "if os.fork() == 0:\n"
        "    while True: signal.pause()\n"
        "train_in_the_first_life()",
        *("--grace=600s", "--checkpoint_dir=ck"),
        workers=1,
    )
    run.trains(range(1)).kill(0)
    assert run.ends() == 0, run.text
