"""Children that a smaller process forks for us: ours, started once, and started here where it cannot."""

import os
import resource
import signal
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from faultrun.model.exits import Exited, Signaled
from faultrun.workers.fork_server import ForkServer
from faultrun.workers.launch import Launch
from faultrun.workers.process import Process, start
from faultrun.workers.shared_deadline import SharedDeadline, boottime
from faultrun.workers.sweep import TAG_VARIABLE, sweep, tagged
from support.machine.fork_servers import fork_server
from support.machine.processes import PATIENCE_S, lives, wait_until


@pytest.fixture
def server() -> Iterator[ForkServer]:
    with closing(fork_server()) as server:
        yield server


def sh(script: str, out: Path, **env: str) -> Launch:
    return Launch(argv=("/bin/sh", "-c", script), env={"PATH": os.environ["PATH"], **env}, stdout=out)


def ended(process: Process) -> object:
    process.wait(30)
    return process.reap()


def test_its_children_are_ours(server: ForkServer, tmp_path: Path) -> None:
    pid, pidfd = server.start(sh("echo $PPID; exit 3", tmp_path / "out"), None)
    assert ended(Process(pid, pidfd)) == Exited(code=3)
    assert int((tmp_path / "out").read_text()) == os.getpid()


def test_what_is_longer_than_a_message_arrives(server: ForkServer, tmp_path: Path) -> None:
    long = "x" * 100_000
    launch = sh("printf '%s' $A $B $C", tmp_path / "out", A=long, B=long, C=long)
    assert ended(Process(*server.start(launch, None))) == Exited(code=0)
    assert (tmp_path / "out").stat().st_size == 3 * len(long)


def test_names_that_are_no_text_arrive_as_they_are(server: ForkServer, tmp_path: Path) -> None:
    name = os.fsdecode(b"caf\xe9")
    (tmp_path / name).mkdir()
    launch = Launch(argv=("/bin/pwd",), env={"N": name}, stdout=tmp_path / "out", cwd=str(tmp_path / name))
    assert ended(Process(*server.start(launch, None))) == Exited(code=0)
    assert (tmp_path / "out").read_bytes() == os.fsencode(str(tmp_path / name)) + b"\n"


def test_a_variable_without_a_name_is_handed_on(server: ForkServer, tmp_path: Path) -> None:
    launch = Launch(argv=("/usr/bin/env", "-0"), env={"": "x", "N": "训练"}, stdout=tmp_path / "out")
    assert ended(Process(*server.start(launch, None))) == Exited(code=0)
    assert (tmp_path / "out").read_bytes() == "=x\0N=训练\0".encode()


@pytest.mark.parametrize("env", [{"A=B": "x"}, {"A": "x\0"}], ids=["a sign in its name", "a NUL"])
def test_what_no_program_can_get_is_refused(server: ForkServer, tmp_path: Path, env: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=r"environment variable|null byte"):
        server.start(Launch(argv=("/bin/true",), env=env, stdout=tmp_path / "out"), None)
    assert server.ready


def test_of_several_folders_the_error_that_tells_most_is_told(server: ForkServer, tmp_path: Path) -> None:
    for number, mode in enumerate((0o644, 0o755)):
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / "tool").write_text("#!/bin/sh\necho found\n")
        (tmp_path / str(number) / "tool").chmod(mode)
    path = f"/no/such:{tmp_path}/0:{tmp_path}/1"
    launch = Launch(argv=("tool",), env={"PATH": path}, stdout=tmp_path / "out")
    assert ended(Process(*server.start(launch, None))) == Exited(code=0)
    with pytest.raises(PermissionError):
        server.start(replace(launch, env={"PATH": path.rpartition(":")[0]}), None)
    with pytest.raises(FileNotFoundError):
        server.start(replace(launch, env={"PATH": "/no/such"}), None)


def test_whoever_forks_under_other_limits_than_ours_is_replaced(server: ForkServer, tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    before, launch = server.pids, sh("ulimit -n", tmp_path / "out")
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft - 1, hard))
    try:
        first = start(launch, server)
        wait_until(lambda: server.ready, what="another fork server")
        second = Process(*server.start(launch, None))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert [ended(first), ended(second)] == [Exited(code=0)] * 2
    assert (tmp_path / "out").read_text().split() == [str(soft - 1)] * 2
    assert server.pids != before


def test_one_whose_time_is_over_executes_nothing(server: ForkServer, tmp_path: Path) -> None:
    deadline = SharedDeadline()
    deadline.at_s = boottime() - 0.001
    launch = Launch(argv=("/bin/echo",), env={}, stdout=tmp_path / "out", deadline=deadline)
    assert ended(Process(*server.start(launch, None))) == Signaled(signum=signal.SIGKILL)
    assert (tmp_path / "out").read_text() == ""


def test_a_descriptor_is_inherited_under_its_number_and_no_other(server: ForkServer, tmp_path: Path) -> None:
    kept, other = os.pipe()
    os.set_inheritable(other, True)
    launch = Launch(argv=("/bin/ls", "/proc/self/fd"), env={}, stdout=tmp_path / "out", keep=(kept,))
    assert ended(Process(*server.start(launch, None))) == Exited(code=0)
    found = set(map(int, (tmp_path / "out").read_text().split()))
    assert kept in found
    assert len(found) == 5, "standard streams, the kept one, and the folder that is listed"
    os.close(kept)
    os.close(other)


def test_what_could_not_be_executed_leaves_nobody_behind(server: ForkServer, tmp_path: Path) -> None:
    for number in range(3):
        with pytest.raises(OSError, match="训" * 9):
            server.start(Launch(argv=(f"/no/{'训' * 800}/{number}",), env={}, stdout=tmp_path / "out"), None)
    assert os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None, "all were reaped"
    assert ended(Process(*server.start(sh("exit 0", tmp_path / "out"), None))) == Exited(code=0)


def test_it_can_be_swept_by_tag_when_it_clears_its_environment(server: ForkServer, tmp_path: Path) -> None:
    boot = os.urandom(8).hex()
    process = Process(
        *server.start(sh("exec env -i sleep 600", tmp_path / "out", **{TAG_VARIABLE: boot}), None)
    )
    wait_until(lambda: b"sleep" in Path(f"/proc/{process.pid}/cmdline").read_bytes(), what="its program")
    assert set(tagged(frozenset({boot}))) == {process.pid}, "and not the server"
    sweep(frozenset({boot}), patience_s=5)
    assert ended(process) == Signaled(signum=signal.SIGKILL)


@pytest.mark.parametrize(("signum", "patience_s"), [(signal.SIGKILL, PATIENCE_S), (signal.SIGSTOP, 0.1)])
def test_where_it_failed_the_program_starts_here_once(tmp_path: Path, signum: int, patience_s: float) -> None:
    with closing(fork_server(patience_s)) as server:
        (pid,) = server.pids
        os.kill(pid, signum)
        process = start(sh("echo once; read -r _ < /dev/zero & wait", tmp_path / "out"), server)
        wait_until(lambda: (tmp_path / "out").read_text() == "once\n", what="the program")
        assert not lives(pid), "one that stood still must not wake up and fork"
        wait_until(lambda: server.ready, what="another one")
        assert pid not in server.pids
        process.kill_group()
        assert ended(process) == Signaled(signum=signal.SIGKILL)
    assert (tmp_path / "out").read_text() == "once\n"


class _DeadlyDeadline(SharedDeadline):
    """Kills whoever waits to be told until when it may live."""

    def __init__(self, out: Path, server: ForkServer) -> None:
        self.killed = -1
        super().__init__()
        self.out, self.server, self.killed = out, server, 0

    @property
    def at_s(self) -> float:
        if not self.killed:
            me = os.getpid()
            children = {int(pid) for pid in Path(f"/proc/{me}/task/{me}/children").read_text().split()}
            waiting = [
                pid
                for pid in children - self.server.pids  # which may not have let go of the file yet
                if str(self.out) in {os.path.realpath(fd) for fd in Path(f"/proc/{pid}/fd").iterdir()}
            ]
            (self.killed,) = waiting
            os.kill(self.killed, signal.SIGKILL)
            wait_until(lambda: not lives(self.killed), what="the end of the fork")
        return super().at_s

    @at_s.setter
    def at_s(self, moment_s: float) -> None:
        SharedDeadline.at_s.fset(self, moment_s)  # type: ignore[attr-defined]


def test_a_fork_that_is_killed_before_its_program_is_no_rank_and_the_program_is_started(
    server: ForkServer, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    out.touch()
    deadline = _DeadlyDeadline(out, server)
    process = start(replace(sh("echo once", out), deadline=deadline), server)
    assert deadline.killed != process.pid
    assert ended(process) == Exited(code=0)
    assert out.read_text() == "once\n"
    assert not Path(f"/proc/{deadline.killed}").exists(), "it was reaped"


def test_what_is_sent_to_all_processes_of_a_job_does_not_end_it(server: ForkServer, tmp_path: Path) -> None:
    (pid,) = server.pids
    for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1):
        os.kill(pid, signum)
    process = Process(*server.start(sh("grep -E '^Sig(Pnd|Blk)' /proc/self/status", tmp_path / "out"), None))
    assert ended(process) == Exited(code=0)
    assert set((tmp_path / "out").read_text().split()) == {"SigPnd:", "SigBlk:", "0" * 16}
    assert server.ready


def test_one_that_was_killed_is_reaped_and_hides_no_orphan_behind_it() -> None:
    with closing(fork_server()) as server:
        (pid,) = server.pids
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not server.pids, what="its end")
        assert not Path(f"/proc/{pid}").exists()


def test_it_ends_with_whoever_made_it() -> None:
    with closing(fork_server()) as server:
        (pid,) = server.pids
        assert lives(pid)
    assert not lives(pid)
    assert not server.pids
