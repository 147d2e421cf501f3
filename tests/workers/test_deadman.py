"""The deadman ends real workers at a deadline that nobody moves, and once the supervisor is gone."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from faultrun.workers.sweep import tag
from support.machine.processes import PATIENCE_S, lives, wait_until
from support.machine.scripts import ended

_SUPERVISOR = """
import gc, os, signal, sys
from pathlib import Path
from faultrun.workers.shared_deadline import boottime
from faultrun.workers.deadman import Deadman
from faultrun.workers.launch import Launch
from faultrun.workers.process import start
from faultrun.workers.sweep import TAG_VARIABLE

boot = os.urandom(8).hex()
gc.freeze()
deadman = Deadman(boot)
out = Path("out")

def rank(script="exec sleep 600"):
    environ = {TAG_VARIABLE: boot, "PATH": os.environ["PATH"]}
    return start(Launch(argv=("/bin/sh", "-c", script), env=environ, stdout=out, deadline=deadman.deadline))

def say(*words):
    print(*words, flush=True)

say(deadman.pid, boot)
"""
_ESCAPES = "setsid sh -c 'sleep 600 & echo $$ $! > escaped; trap \"\" TERM; wait' & exec sleep 600"
_FED_BY_HAND = """
workers = [rank(), rank({escapes!r})]
while not (os.path.exists("escaped") and os.path.getsize("escaped")):
    pass
say(*(worker.pid for worker in workers), open("escaped").read().strip())
for line in sys.stdin:
    killed = deadman.deadline.killed_at_s > 0
    deadman.feed(boottime() + float(line))
    say("fed", killed)
"""


@dataclass(slots=True)
class Supervised:
    """A supervisor with two ranks, one of which has descendants in a session of their own."""

    process: "subprocess.Popen[str]"
    deadman: int
    boot: str
    ranks: list[int]

    def feed(self, seconds: float) -> bool:
        """Move the deadline to so many seconds from now; whether ranks were killed before."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{seconds}\n")
        self.process.stdin.flush()
        done, killed = self.line()
        assert done == "fed"
        return killed == "True"

    def line(self) -> list[str]:
        assert self.process.stdout is not None
        return self.process.stdout.readline().split()


@pytest.fixture
def supervised(tmp_path: Path) -> Iterator[Supervised]:
    code = _SUPERVISOR + _FED_BY_HAND.format(escapes=_ESCAPES)
    process = subprocess.Popen(
        [sys.executable, "-c", code], cwd=tmp_path, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    deadman, boot = process.stdout.readline().split()
    ranks = [int(pid) for pid in process.stdout.readline().split()]
    with process:
        yield Supervised(process, int(deadman), boot, ranks)
        process.kill()
    for pid in ranks:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def living(supervised: Supervised) -> list[bool]:
    return [lives(pid) for pid in supervised.ranks]


def test_ranks_of_a_frozen_supervisor_die_at_the_deadline_and_what_escaped_them_too(
    supervised: Supervised,
) -> None:
    supervised.feed(0.3)
    os.kill(supervised.process.pid, signal.SIGSTOP)
    wait_until(lambda: not any(living(supervised)), what="the end of all ranks")
    assert lives(supervised.process.pid)
    assert lives(supervised.deadman)


@pytest.mark.long
def test_ranks_live_on_past_a_deadline_that_was_moved_in_time(supervised: Supervised) -> None:
    supervised.feed(3)  # so long the second may take on a busy machine
    wait_until(lambda: 0 < rings_in_s(supervised.deadman) <= 3, what="the first deadline to be noticed")
    supervised.feed(60)
    wait_until(lambda: rings_in_s(supervised.deadman) > 3, what="its look at the first deadline")
    assert all(living(supervised))
    assert len(supervised.ranks) == 4


def test_a_sooner_deadline_counts_at_once(supervised: Supervised) -> None:
    supervised.feed(3600)
    assert not supervised.feed(0)
    wait_until(lambda: not any(living(supervised)), what="the end of all ranks")
    assert supervised.feed(3600), "its supervisor can tell, although there is more time by now"


def test_it_sweeps_and_ends_once_the_supervisor_is_killed(supervised: Supervised) -> None:
    supervised.feed(3600)
    supervised.process.kill()
    wait_until(lambda: not any(living(supervised)), what="the end of all ranks")
    wait_until(lambda: not lives(supervised.deadman), what="the deadman's end")


def test_a_rank_that_is_started_after_the_deadline_executes_nothing(tmp_path: Path) -> None:
    code = f"""{_SUPERVISOR}
deadman.feed(boottime() - 1)
os.kill(deadman.pid, signal.SIGSTOP)  # it is the child that looks
try:
    late = rank("echo began > began")
    late.wait({PATIENCE_S})
    say(late.reap(), os.path.exists("began"))
    deadman.feed(boottime() + 60)
    again = rank("echo began > began")
    again.wait({PATIENCE_S})
    say(again.reap(), os.path.exists("began"))
finally:
    os.kill(deadman.pid, signal.SIGKILL)
"""
    done = ended(f"import os; os.chdir({str(tmp_path)!r})\n{code}")
    assert done.stderr == ""
    assert done.stdout.splitlines()[1:] == ["Signaled(signum=9) False", "Exited(code=0) True"]


def test_it_kills_again_whatever_appears_after_the_deadline(supervised: Supervised) -> None:
    supervised.feed(0)
    wait_until(lambda: not any(living(supervised)), what="the end of all ranks")
    late = subprocess.Popen(["/bin/sleep", "600"], preexec_fn=lambda: tag(supervised.boot))  # noqa: PLW1509
    assert late.wait(PATIENCE_S) == -signal.SIGKILL


def test_it_waits_as_long_as_its_maker_lives_and_no_signal_moves_it(supervised: Supervised) -> None:
    for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGPIPE):
        os.kill(supervised.deadman, signum)
    supervised.feed(3600)
    assert lives(supervised.deadman)
    assert all(living(supervised))


def test_it_holds_nothing_of_what_its_maker_had_open_and_costs_little(supervised: Supervised) -> None:
    supervised.feed(3600)
    proc = Path(f"/proc/{supervised.deadman}")
    held = wait_until(lambda: _only_its_own(proc), what="the descriptors of its maker are closed")
    assert held == {"pipe", "anon_inode"}
    private_kib = sum(
        int(line.split()[1])
        for line in (proc / "smaps_rollup").read_text().splitlines()
        if line.startswith("Private_")
    )
    assert private_kib < 3072


def _only_its_own(proc: Path) -> set[str] | None:
    with suppress(FileNotFoundError):  # it is closing them
        held = [str(entry.readlink()).split(":")[0] for entry in (proc / "fd").iterdir()]
        return set(held) if len(held) == 2 else None
    return None


def test_feeding_it_wakes_nobody(supervised: Supervised) -> None:
    supervised.feed(3600)
    status = Path(f"/proc/{supervised.deadman}/status")
    wait_until(lambda: "State:\tS" in status.read_text(), what="it sleeps")
    before = switches(status)
    for _ in range(50):
        supervised.feed(3700)
    assert switches(status) - before <= 1  # the ring of the first deadline may still have been under way


def rings_in_s(pid: int) -> int:
    """When the timer of a deadman rings, in whole seconds from now, rounded up; 0 if it is not set."""
    for file in Path(f"/proc/{pid}/fdinfo").iterdir():
        with suppress(FileNotFoundError):  # it closes what it has inherited
            text = file.read_text()
            if "clockid:" in text:
                seconds, nanoseconds = text.rpartition("it_value: (")[2].split(")")[0].split(",")
                return int(seconds) + (int(nanoseconds) > 0)
    return 0


def switches(status: Path) -> int:
    lines = status.read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("voluntary_ctxt_switches")))
