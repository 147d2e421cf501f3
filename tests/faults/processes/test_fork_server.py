"""Whoever forks the ranks may be killed as anything else: the run does not notice, and nothing is left."""

import os
import signal
from contextlib import suppress
from pathlib import Path

import pytest

from support.machine.processes import lives, wait_until
from support.runs import Launcher


def fork_server_of(supervisor: int) -> int:
    tasks = Path(f"/proc/{supervisor}/task/{supervisor}/children")

    def found() -> int | None:
        for pid in tasks.read_text().split():
            with suppress(OSError):  # it has ended since
                if b"fork_server" in Path(f"/proc/{pid}/cmdline").read_bytes():
                    return int(pid)
        return None

    return wait_until(found, what="the fork server")


@pytest.mark.parametrize("signum", [None, signal.SIGKILL, signal.SIGSTOP], ids=["forks", "killed", "stands"])
def test_ranks_start_again_whatever_became_of_the_fork_server(launcher: Launcher, signum: int | None) -> None:
    run = launcher.run("train_in_the_first_life()\nsay('parent', os.getppid())", "--standby=none")
    run.trains(range(2))
    server = fork_server_of(run.pid)
    if signum is not None:
        os.kill(server, signum)
    run.kill(1)
    assert run.ends() == 0
    assert f"parent {run.pid}\n" in run.log(1, incarnation=1)
    wait_until(lambda: not lives(server), what="the end of the fork server")
