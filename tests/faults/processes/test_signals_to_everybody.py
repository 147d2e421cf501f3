"""A platform signals every process of a job, in any order: that is one stop, and who saves has the time."""

import os
import signal
import sys
import time
from itertools import product
from pathlib import Path

import pytest

from support.machine.processes import children, lives, wait_until
from support.runs import READY, Launcher, Run

SAVES = (
    "import time\n"
    "told = []\n"
    "def save(signum, _):\n"
    "    told.append(signum)\n"
    "    if len(told) > 1: say('told twice')\n"
    "    say('saving'); time.sleep(0.5); say('saved')\n"
    "    sys.exit(143)\n"
    "signal.signal(signal.SIG{}, save)\n"
    "train()"
)
WRAPPERS = {
    "itself": "exec {python}",
    "below a shell": "{python}; echo goes on",
    "in a session of its own": "setsid -w {python}; true",
    "a wrapper that exits": "trap 'exit 0' TERM; setsid {python} & wait",
}


def everybody(pid: int) -> list[int]:
    return [pid, *(one for child in children(pid) for one in everybody(child))]


def told(run: Run, signum: int, order: str) -> None:
    """The fork server and the deadman hold every signal back."""
    job = everybody(run.pid)
    if order != "supervisor first":
        job = [pid for pid in reversed(job) if pid != run.pid]
    for pid in job:
        os.kill(pid, signum)
    if order == "leaves first":
        time.sleep(0.2)
    if order != "supervisor first":
        run.signal(signum)


def python(launcher: Launcher, code: str) -> str:
    """The command of a Python that comes to ``site``, as those of users do."""
    return f"{sys.executable} {launcher.program(code)[-1]}"


@pytest.mark.parametrize(
    ("name", "order"), [*product(["USR1", "USR2", "HUP"], ["supervisor first", "leaves first"])]
)
def test_a_rank_that_answers_sigterm_outlives_what_everybody_gets_and_saves(
    launcher: Launcher, name: str, order: str
) -> None:
    signum = signal.Signals[f"SIG{name}"]
    words = python(launcher, SAVES.format("TERM")).split()
    run = launcher.command("--worker_num=2", *words).trains(range(2))
    told(run, signum, order)
    assert run.ends() == (129 if name == "HUP" else 143)
    assert ["saved" in run.log(rank) for rank in range(2)] == [True, True]
    assert not any("twice" in run.log(rank) for rank in range(2))
    assert "incident" not in run.text
    assert f"stopped by SIG{name}" in run.text


def test_a_handler_of_the_scripts_own_has_the_window_before_sigterm(launcher: Launcher) -> None:
    run = launcher.command("--worker_num=2", *python(launcher, SAVES.format("USR1")).split()).trains(range(2))
    told(run, signal.SIGUSR1, "leaves first")
    assert run.ends() == 143
    assert ["saved" in run.log(rank) for rank in range(2)] == [True, True]


WITH_LOADERS = """
import multiprocessing, time
from faultrun import sdk
def load():
    while True: signal.pause()
loaders = [multiprocessing.Process(target=load, daemon=True) for _ in range(2)]
for one in loaders: one.start()
def save(path):
    open(path, "w").write(str(step)); say("saved")
sdk.start(save=save, directory=sdk.Folder(directory=f"ck{rank}", replica_group=(rank,)), name="count.json")
step = 0
while True:
    step += 1
    with sdk.updating(): pass
    sdk.step(step)
    if step == 3: say("ready")
    time.sleep(0.02)
    if not all([one.is_alive() for one in loaders]): raise RuntimeError("a loader is killed by signal")
"""


@pytest.mark.parametrize("order", ["supervisor first", "leaves right before", "leaves first"])
@pytest.mark.parametrize("name", ["TERM", "USR1", "HUP", "USR1=save"])
@pytest.mark.parametrize("kind", ["SDK with loaders", "itself", "below a shell", "in a session of its own"])
def test_no_save_is_lost_whatever_comes_to_everybody_in_whatever_order(
    launcher: Launcher, kind: str, name: str, order: str
) -> None:
    code = WITH_LOADERS if kind == "SDK with loaders" else SAVES.format("TERM")
    script = launcher.folder / "train.sh"
    script.write_text(WRAPPERS.get(kind, WRAPPERS["itself"]).format(python=python(launcher, code)))
    options = ("--signals=USR1=save",) if name == "USR1=save" else ()
    run = launcher.command("--worker_num=2", "--stop_grace=60s", *options, "bash", str(script))
    told(run.trains(range(2)), signal.Signals[f"SIG{name.partition('=')[0]}"], order)
    if name == "USR1=save":
        run.event("SaveRequested")
        if kind == "SDK with loaders":
            run.event("GaspSaved", rank=0)
            run.event("GaspSaved", rank=1)
        assert not run.events("WorkerExit")
        run.signal(signal.SIGTERM)
    assert run.ends() == (129 if name == "HUP" else 143)
    assert ["saved" in run.log(rank) for rank in range(2)] == [True, True]
    assert "incident" not in run.text


LEAVES = (
    "import time\n"
    "signal.signal(signal.SIG{name}, lambda *_: {bye})\n"
    "if life == 0: train()\n"
    "say('came to its end')"
)


@pytest.mark.parametrize(("name", "bye"), [*product(["TERM", "USR1"], ["sys.exit(0)", "os._exit(0)"])])
def test_ranks_that_leave_with_0_when_they_are_told_have_stopped_also_where_nobody_tells_faultrun(
    launcher: Launcher, name: str, bye: str
) -> None:
    words = python(launcher, LEAVES.format(name=name, bye=bye)).split()
    run = launcher.command("--worker_num=2", *words).trains(range(2))
    run.kill(0, 1, signum=signal.Signals[f"SIG{name}"])
    assert run.ends() == 143
    assert f"ranks that ended with 0 had been sent SIG{name}: this is a stop" in run.text
    assert launcher.command("--worker_num=2", *words).ends() == 0


SAVES_SLOWLY = (
    "import time\ntold = []\n"
    "signal.signal(signal.SIG{name}, lambda *_: told.append(1))\n"
    "for step in range({last}):\n"
    "    say(f'step {{step}} loss 0.5')\n"
    "    if step == 5: say('ready'); signal.pause()\n"
    "    if told and not {on}: time.sleep(2.5); sys.exit(0)\n"
    "time.sleep(2.5)"
)


@pytest.mark.parametrize("on", [False, True])
@pytest.mark.parametrize(
    ("name", "options"), [("TERM", "--stop_grace=1s"), ("USR1", "--signals=USR1=ignore")]
)
def test_how_long_a_rank_saves_before_it_leaves_with_0_says_nothing_and_whether_it_trains_on_does(
    launcher: Launcher, name: str, options: str, on: bool
) -> None:
    code = SAVES_SLOWLY.format(name=name, last=50, on=on)
    run = launcher.command("--worker_num=2", options, *python(launcher, code).split()).trains(range(2))
    run.kill(0, 1, signum=signal.Signals[f"SIG{name}"])
    assert run.ends() == (0 if on else 143)


def test_a_rank_of_the_sdk_that_a_handler_of_its_own_ends_with_0_is_not_done(launcher: Launcher) -> None:
    code = (
        "from faultrun import sdk\n"
        "signal.signal(signal.SIGUSR1, lambda *_: sys.exit(0))\n"
        "sdk.start()\n"
        "sdk.step(1)\n"
        "if life == 0: say('ready'); signal.pause()"
    )
    run = launcher.command("--worker_num=2", *python(launcher, code).split()).trains(range(2))
    run.kill(0, 1, signum=signal.SIGUSR1)
    assert run.ends() == 143


def test_a_signal_that_a_program_waits_for_is_noted_too(launcher: Launcher) -> None:
    code = (
        "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])\n"
        "if life == 0: say('ready'); signal.sigwait([signal.SIGTERM])"
    )
    run = launcher.command("--worker_num=1", *python(launcher, code).split()).trains(range(1))
    run.kill(0, signum=signal.SIGTERM)
    assert run.ends() == 143


def test_a_handler_is_what_the_program_sees_and_forked_children_tell_nothing(launcher: Launcher) -> None:
    code = (
        "def save(*_): say('saved')\n"
        "assert signal.signal(signal.SIGTERM, save) == signal.SIG_DFL\n"
        "assert signal.getsignal(signal.SIGTERM) is save\n"
        "if os.fork() == 0:\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        "    os._exit(0)\n"
        "os.wait()\n"
        "assert signal.signal(signal.SIGTERM, signal.SIG_IGN) is save"
    )
    run = launcher.command("--worker_num=1", *python(launcher, code).split())
    assert run.ends() == 0
    assert "saved" in run.log(0)


def test_a_stop_that_faultrun_hears_while_it_writes_its_report_is_one_with_the_end(
    launcher: Launcher,
) -> None:
    script = launcher.folder / "train.sh"
    script.write_text(f"trap 'exit 0' TERM\necho {READY}\nwhile :; do sleep 0.02; done")
    run = launcher.command("--worker_num=2", "bash", str(script)).trains(range(2))
    run.kill(0, 1, signum=signal.SIGTERM)
    wait_until(lambda: "every rank finished" in run.text, what="the end of the loop")
    run.signal(signal.SIGTERM)
    assert run.ends() == 143
    assert "stopped by SIGTERM" in run.text.rpartition("every rank finished")[2]
    assert [one["exit_code"] for one in run.events("RunFinished")] == [0, 143]


@pytest.mark.parametrize("name", ["itself", "below a shell", "in a session of its own"])
def test_a_save_that_everybody_is_asked_for_ends_nobody(launcher: Launcher, name: str) -> None:
    script = launcher.folder / "train.sh"
    code = "import time\nsay('ready')\ntime.sleep(2)"
    script.write_text(WRAPPERS[name].format(python=python(launcher, code)))
    run = launcher.command("--worker_num=2", "--signals=USR1=save", "bash", str(script))
    told(run.trains(range(2)), signal.SIGUSR1, "leaves first")
    assert run.ends() == 0
    assert len(run.events("IncarnationStarted")) == 1


@pytest.mark.parametrize("name", WRAPPERS)
def test_what_a_wrapper_starts_is_asked_once_and_awaited(launcher: Launcher, name: str) -> None:
    script = launcher.folder / "train.sh"
    script.write_text(WRAPPERS[name].format(python=python(launcher, SAVES.format("TERM"))))
    run = launcher.command("--worker_num=2", "--stop_grace=60s", "bash", str(script)).trains(range(2))
    run.signal(signal.SIGTERM)
    assert run.ends(30) == 143
    assert ["saved" in run.log(rank) for rank in range(2)] == [True, True]
    assert not any("twice" in run.log(rank) for rank in range(2))


@pytest.mark.parametrize("name", ["below a shell", "in a session of its own"])
def test_a_wrapper_that_dies_of_what_everybody_gets_was_part_of_the_stop(
    launcher: Launcher, name: str
) -> None:
    script = launcher.folder / "train.sh"
    script.write_text(WRAPPERS[name].format(python=python(launcher, SAVES.format("TERM"))))
    run = launcher.command("--worker_num=2", "bash", str(script)).trains(range(2))
    told(run, signal.SIGUSR1, "leaves first")
    assert run.ends(30) == 143
    assert ["saved" in run.log(rank) for rank in range(2)] == [True, True]
    assert "incident" not in run.text


SAVER = "import time; time.sleep(0.7); open('saved', 'w').close()"
HANDS_OVER = (
    "import subprocess\n"
    f"def hand_over(*_): subprocess.Popen([sys.executable, '-c', {SAVER!r}]); os._exit(143)\n"
    "signal.signal(signal.SIGTERM, hand_over)\n"
)


@pytest.mark.parametrize("why", ["a stop", "a fault"])
def test_a_process_that_was_handed_the_state_may_save_it(launcher: Launcher, why: str) -> None:
    run = launcher.run(f"{HANDS_OVER}train_in_the_first_life()").trains(range(2))
    if why == "a fault":
        run.kill(1)
        assert run.ends(30) == 0
    else:
        run.signal(signal.SIGTERM)
        assert run.ends(30) == 143
    assert (launcher.folder / "saved").exists()


@pytest.mark.parametrize(("option", "done"), [("forever", True), ("30s", True), ("none", False)])
def test_what_is_left_running_at_an_end_with_0_is_named_and_has_its_time(
    launcher: Launcher, option: str, done: bool
) -> None:
    code = f"import subprocess\nsubprocess.Popen([sys.executable, '-c', {SAVER!r}], start_new_session=True)"
    run = launcher.run(code, f"--leave_running={option}", workers=1)
    assert run.ends(30) == 0
    (left,) = run.events("Drained")
    assert ("saved" in left.get("left", "")) == (option != "30s"), "what has ended needs no name"
    if done:
        saved: Path = launcher.folder / "saved"
        wait_until(saved.exists, while_runs=os.getpid(), what="the save")
    else:
        assert not (launcher.folder / "saved").exists()


SHARES = (
    "from multiprocessing import shared_memory\n"
    "name = f'faultrun-test-{os.environ[\"TEST_MARK\"]}-{rank}'\n"
    "shm = shared_memory.SharedMemory(name=name, create=True, size=99)\n"
    "train_in_the_first_life()\n"
    "shm.close(); shm.unlink()\n"
)


def test_named_memory_of_a_killed_rank_is_gone_before_the_restart(launcher: Launcher) -> None:
    run = launcher.command("--worker_num=2", *python(launcher, SHARES).split()).trains(range(2))
    trackers = [one for rank in range(2) for one in children(run.worker(rank))]
    assert trackers
    run.kill(1)
    assert run.ends(30) == 0, run.log(1, 1)
    assert not any(map(lives, trackers))
    assert len(run.events("IncarnationStarted")) == 2


def test_what_is_still_in_the_way_is_named_by_the_card(launcher: Launcher) -> None:
    left = Path(f"/dev/shm/faultrun-test-{os.getpid()}")
    code = f"if rank == 1: os.open({str(left)!r}, os.O_CREAT | os.O_EXCL)\ntrain_in_the_first_life()"
    run = launcher.run(code, "--max_restarts=1").trains(range(2))
    try:
        run.kill(1)
        assert run.ends(30) == 1
        assert f"{left} is left over from rank 1" in run.card(2)
    finally:
        left.unlink()
