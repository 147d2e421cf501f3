"""Who goes first for a moment goes back to the policy that it had, and whoever it starts has no other."""

import os
import subprocess
import sys

import pytest

_NOBODY = 65534
_TRIED = f"""
import os, sys, tempfile
from dataclasses import replace
from pathlib import Path
from faultrun.workers import fork_server
from faultrun.workers.launch import Launch
from faultrun.workers.process import start, undisturbed

folder = Path(tempfile.mkdtemp())
folder.chmod(0o777)
os.sched_setscheduler(0, int(sys.argv[1]), os.sched_param(int(sys.argv[2])))
if sys.argv[3] == "nobody":
    os.setgid({_NOBODY})
    os.setuid({_NOBODY})
server = fork_server.ForkServer(patience_s=30.0) if sys.argv[4] == "server" else None
while server is not None and not server.ready:
    pass
before = os.sched_getscheduler(0), os.sched_getparam(0)
with undisturbed():
    pass
assert (os.sched_getscheduler(0), os.sched_getparam(0)) == before, "after signals"
launch = Launch(argv=("/bin/cat", "/proc/self/stat"), env={{}}, stdout=folder / "out", at_once=True)
with undisturbed():
    first = start(launch, server)
    second = start(replace(launch, at_once=False), server)
assert (os.sched_getscheduler(0), os.sched_getparam(0)) == before, "after two starts at one go"
worker = start(launch, server)
assert server is None or server.ready, "it has failed, and all was forked here"
assert (os.sched_getscheduler(0), os.sched_getparam(0)) == before, "after a start"
for one in (first, second, worker):
    one.wait(30)
    assert one.reap().code == 0
told = [line.rpartition(")")[2].split() for line in (folder / "out").read_text().splitlines()]
print(*sorted({{one[38] for one in told}}))
"""


_BY_WHOM = pytest.mark.parametrize(("who", "by"), [("root", "here"), ("nobody", "here"), ("root", "server")])
"""Nobody may not be allowed to execute this very Python, of which the server is another process."""


def policy_of_a_worker(policy: int, priority: int, who: str, by: str) -> int:
    """The policy under which a worker of a supervisor runs that has ``policy``, and is root or ``nobody``.

    ``by``: whether it is forked "here" or by a "server".
    """
    command = [sys.executable, "-c", _TRIED, str(policy), str(priority), who, by]
    tried = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert tried.returncode == 0, tried.stderr
    return int(tried.stdout)


@pytest.fixture(autouse=True)
def _as_root() -> None:
    if os.geteuid() != 0:
        pytest.skip("only root may have another policy, and become somebody else")
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    except OSError:
        pytest.skip("nobody may have another policy here")
    os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))


@_BY_WHOM
@pytest.mark.parametrize("policy", [os.SCHED_OTHER, os.SCHED_BATCH, os.SCHED_IDLE])
def test_a_usual_policy_is_that_of_the_worker_too(policy: int, who: str, by: str) -> None:
    assert policy_of_a_worker(policy, 0, who, by) == policy


@_BY_WHOM
@pytest.mark.parametrize("policy", [os.SCHED_FIFO, os.SCHED_RR])
def test_who_comes_first_anyway_is_left_as_it_is(policy: int, who: str, by: str) -> None:
    """To lower a priority is allowed to everybody, and not to take that back."""
    assert policy_of_a_worker(policy, 50, who, by) == policy


@_BY_WHOM
def test_what_children_shall_not_inherit_they_do_not(who: str, by: str) -> None:
    assert policy_of_a_worker(os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, 10, who, by) == os.SCHED_OTHER
