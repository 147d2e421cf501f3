"""One real process: how it starts, how it is known, how it ends."""

import errno
import fcntl
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from faultrun.files import readable
from faultrun.model.exits import Exited, ExitStatus, Signaled
from faultrun.workers.fork_server import ForkServer
from faultrun.workers.launch import Launch
from faultrun.workers.process import Process, start, why_not_started
from support.machine.fork_servers import fork_server
from support.machine.processes import lives, wait_until
from support.machine.scripts import ended, printed
from support.machine.standby_stage import status_of


@dataclass(slots=True)
class Nursery:
    """Starts shells and ends them with the test."""

    folder: Path
    server: ForkServer | None = None
    born: list[Process] = field(default_factory=list)

    def sh(self, script: str, **more: object) -> Process:
        launch = Launch(
            argv=("/bin/sh", "-c", script),
            env=dict(os.environ),
            stdout=self.folder / "out",
            **more,  # type: ignore[arg-type]
        )
        process = start(launch, self.server)
        self.born.append(process)
        return process

    @property
    def out(self) -> str:
        return (self.folder / "out").read_text()


@pytest.fixture(params=["here", "by the fork server"])
def nursery(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Nursery]:
    server = None if request.param == "here" else fork_server()
    nursery = Nursery(tmp_path, server)
    yield nursery
    if server is not None:
        assert server.ready, "it has failed, and all was forked here"
        server.close()
    for process in nursery.born:
        process.kill_group()
        with suppress(OSError):
            status_of(process)


@pytest.mark.parametrize(
    ("script", "status"),
    [
        ("exit 0", Exited(code=0)),
        ("exit 137", Exited(code=137)),
        ("kill -9 $$", Signaled(signum=9)),
        ("kill -15 $$", Signaled(signum=15)),
        ("kill -11 $$", Signaled(signum=11)),
    ],
)
def test_returned_and_killed_are_kept_apart(nursery: Nursery, script: str, status: ExitStatus) -> None:
    assert status_of(nursery.sh(script)) == status


def test_a_running_process_has_no_status_and_an_ended_one_is_reaped_once(nursery: Nursery) -> None:
    process = nursery.sh("read -r _ < /dev/zero & wait")
    assert process.reap() is None
    process.kill_group()
    assert status_of(process) == Signaled(signum=9)
    assert not Path(f"/proc/{process.pid}").exists()


def test_whether_it_failed_can_be_asked_without_reaping_it(nursery: Nursery) -> None:
    clean, failed = nursery.sh("exit 0"), nursery.sh("exit 3")
    for process in (clean, failed):
        wait_until(lambda process=process: not lives(process.pid))  # type: ignore[misc]
    assert (clean.ended_as(), failed.ended_as()) == (Exited(code=0), Exited(code=3))
    assert (status_of(clean), status_of(failed)) == (Exited(code=0), Exited(code=3))


def test_it_leads_a_session_of_its_own(nursery: Nursery) -> None:
    process = nursery.sh("sleep 60")
    assert os.getsid(process.pid) == os.getpgid(process.pid) == process.pid


def test_no_signal_is_blocked_in_it_whatever_is_blocked_here(nursery: Nursery) -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGUSR1})
    try:
        process = nursery.sh("grep SigBlk /proc/self/status")
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM, signal.SIGUSR1})
    status_of(process)
    assert nursery.out.split() == ["SigBlk:", "0" * 16]


def test_its_output_is_appended_and_may_be_split(nursery: Nursery, tmp_path: Path) -> None:
    (tmp_path / "out").write_text("before\n")
    status_of(nursery.sh("echo one; echo two >&2"))
    assert nursery.out == "before\none\ntwo\n"
    status_of(nursery.sh("echo three; echo four >&2", stderr=tmp_path / "err"))
    assert nursery.out == "before\none\ntwo\nthree\n"
    assert (tmp_path / "err").read_text() == "four\n"


def test_it_reads_nothing_from_our_terminal_and_inherits_no_descriptor(nursery: Nursery) -> None:
    with (nursery.folder / "secret").open("wb") as file:
        os.set_inheritable(file.fileno(), True)
        status_of(nursery.sh("readlink /proc/self/fd/0; ls /proc/self/fd | wc -l"))
    assert nursery.out.split() == ["/dev/null", "4"]


@pytest.mark.parametrize(
    ("content", "mode", "number"),
    [
        (None, 0, errno.ENOENT),
        (b"#!/no/such/interpreter\n", 0o755, errno.ENOENT),
        (b"\0", 0o755, errno.ENOEXEC),
        (b"#!/bin/sh\n", 0o644, errno.EACCES),
    ],
)
def test_what_cannot_be_executed_is_an_oserror_with_the_kernels_reason(
    nursery: Nursery, content: bytes | None, mode: int, number: int
) -> None:
    program = nursery.folder / "program"
    if content is not None:
        program.write_bytes(content)
        program.chmod(mode)
    with pytest.raises(OSError) as failed:
        start(Launch(argv=(str(program),), env={}, stdout=nursery.folder / "out"), nursery.server)
    assert failed.value.errno == number
    assert failed.value.filename == str(program)


def test_it_runs_on_the_processors_that_it_was_given(nursery: Nursery) -> None:
    last = max(os.sched_getaffinity(0))
    status_of(nursery.sh("grep Cpus_allowed_list /proc/self/status", cpus=(last,)))
    assert nursery.out.split() == ["Cpus_allowed_list:", str(last)]


def test_processors_that_do_not_exist_are_an_oserror_too(nursery: Nursery) -> None:
    with pytest.raises(OSError, match="processors") as failed:
        nursery.sh("true", cpus=(1023,))
    assert failed.value.errno == errno.EINVAL


def test_signals_to_the_leader_reach_nobody_else_and_a_kill_reaches_the_group(nursery: Nursery) -> None:
    process = nursery.sh("trap 'echo asked' TERM; sleep 60 & echo $!; wait; wait")
    wait_until(lambda: bool(nursery.out), what="the child's pid")
    child = int(nursery.out)
    assert lives(child)
    process.signal_leader(signal.SIGTERM)
    wait_until(lambda: "asked" in nursery.out, what="the leader's answer")
    assert lives(child)
    process.kill_group()
    assert status_of(process) == Signaled(signum=9)
    wait_until(lambda: not lives(child), what="the child's end")


def test_to_signal_one_that_was_reaped_is_harmless(nursery: Nursery) -> None:
    process = nursery.sh("exit 0")
    status_of(process)
    process.signal_leader(signal.SIGTERM)
    process.kill_group()


@pytest.mark.parametrize("by", ["here", "by the fork server"])
def test_it_dies_with_the_process_that_started_it(tmp_path: Path, by: str) -> None:
    pid_file = tmp_path / "pid"
    assert ended(_PARENT, str(tmp_path / "out"), str(pid_file), by).returncode == -signal.SIGKILL
    child = int(pid_file.read_text())
    wait_until(lambda: not lives(child), what="the child's end")


_PARENT = """
import os, signal, sys
from pathlib import Path
from faultrun.workers.fork_server import ForkServer
from faultrun.workers.launch import Launch
from faultrun.workers.process import start
server = None if sys.argv[3] == "here" else ForkServer()
while server is not None and not server.ready:
    pass
launch = Launch(argv=("/bin/sh", "-c", "trap '' TERM HUP; sleep 60"), env={}, stdout=Path(sys.argv[1]))
child = start(launch, server)
Path(sys.argv[2]).write_text(str(child.pid))
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_orphans_come_to_us_and_only_they_are_reaped() -> None:
    assert printed(_SUBREAPER).split() == ["1", "ours", "0"]


_SUBREAPER = """
import os, signal, subprocess
from faultrun.workers.process import become_subreaper, reap_orphans
become_subreaper()
read_end, write_end = os.pipe()
middle = subprocess.Popen(["/bin/sh", "-c", f"sleep 60 & echo $!"], stdout=subprocess.PIPE, text=True)
orphan = int(middle.stdout.readline())
middle.wait()
pidfd = os.pidfd_open(orphan)
os.kill(orphan, signal.SIGKILL)
import select
select.select([pidfd], [], [], 10)
print(reap_orphans(frozenset()))
ours = subprocess.Popen(["true"])
os.waitid(os.P_PID, ours.pid, os.WEXITED | os.WNOWAIT)
reap_orphans(frozenset({ours.pid}))
print("ours" if ours.wait() == 0 else "stolen", reap_orphans(frozenset()))
"""


REAPS = "import os, subprocess\nfrom faultrun.workers.process import reap_orphans\n"


def test_nobody_to_reap_is_no_error() -> None:
    assert printed(f"{REAPS}print(reap_orphans(frozenset()))") == "0\n"


def test_a_child_that_a_thread_of_ours_waits_for_in_the_same_moment_is_no_error() -> None:
    code = f"""{REAPS}child, seen = subprocess.Popen(["true"]), os.waitid
def waitid(*how):
    found = seen(*how)
    child.wait()
    return found
os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
os.waitid = waitid
print(reap_orphans(frozenset()), child.returncode)
"""
    assert printed(code) == "0 0\n"


@pytest.mark.parametrize("kept", [(), (0,), (0, 1, 2), (1, 5), (0, 1, 2, 3, 4, 5)])
def test_a_helper_keeps_only_what_it_needs(kept: tuple[int, ...]) -> None:
    code = f"""
import os, sys
from faultrun.workers.forked_helper import keep_only
for fd in range(3, 9):
    os.dup2(1, fd)
answer = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT)
keep_only(*{kept}, answer)
def is_open(fd):
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True
os.write(answer, repr([fd for fd in range(99) if is_open(fd) and fd != answer]).encode())
"""
    with tempfile.NamedTemporaryFile() as answer:
        ended(code, answer.name)
        assert Path(answer.name).read_text() == repr(list(kept))


_NUMBER_GIVEN_AWAY = """
import os, signal, subprocess, sys
from pathlib import Path
from faultrun.workers.launch import Launch
from faultrun.workers.process import start
from faultrun.workers.sweep import TAG_VARIABLE, kill_tagged

environ = {**os.environ, TAG_VARIABLE: "boot"}
worker = start(Launch(argv=("sleep", "600"), env=environ, stdout=Path(os.devnull)))
worker.signal_leader(signal.SIGKILL)
os.waitid(os.P_PIDFD, worker.pidfd, os.WEXITED | os.WNOWAIT)
assert worker.reap() is not None
Path("/proc/sys/kernel/ns_last_pid").write_text(str(worker.pid - 1))
stranger = subprocess.Popen(["sleep", "600"], start_new_session=True)
worker.signal_leader(signal.SIGKILL)
worker.signal_main_thread(signal.SIGKILL)
worker.kill_group()
kill_tagged(worker.pid, frozenset({"boot"}))
same = stranger.pid == worker.pid
try:
    print(same, stranger.wait(0.2))
except subprocess.TimeoutExpired:
    print(same, "lives")
"""


def test_a_stranger_who_was_given_its_number_is_never_signalled() -> None:
    contained = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
    if subprocess.run([*contained, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no PID namespaces here")
    command = [*contained, sys.executable, "-c", _NUMBER_GIVEN_AWAY]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "True lives\n"


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (FileNotFoundError(errno.ENOENT, "", "trian"), "could not start trian: No such file or directory"),
        (OSError(errno.ENOEXEC, ""), "could not start python: Exec format error"),
        (
            OSError(errno.EMFILE, "", "/log/w.log"),
            "could not start a worker: Too many open files (ulimit -n)",
        ),
        (
            OSError(errno.ENFILE, ""),
            "could not start a worker: Too many open files in system (sysctl fs.file-max)",
        ),
        (OSError(errno.ENOMEM, ""), "could not start a worker: Cannot allocate memory"),
        (
            BlockingIOError(errno.EAGAIN, ""),
            "could not start a worker: Resource temporarily unavailable"
            " (ulimit -u, or the container's limit of pids)",
        ),
        (OSError("no number"), "could not start python: Input/output error"),
    ],
)
def test_the_program_or_what_ran_out_is_named(error: OSError, words: str) -> None:
    assert why_not_started(error, "python", Path("/log")) == words


def test_room_is_missing_in_the_log_dir(tmp_path: Path) -> None:
    error = OSError(errno.ENOSPC, "", "/x/worker_0.log")
    assert why_not_started(error, "python", tmp_path) == (
        f"could not start a worker: No space left on device in {tmp_path} (df -h)"
    )


def test_a_descriptor_above_1023_is_waited_for() -> None:
    """A node of some hundred ranks comes to such numbers, and ``select`` knows none of them."""
    read_end, write_end = os.pipe()
    high = fcntl.fcntl(read_end, fcntl.F_DUPFD_CLOEXEC, 1024)
    try:
        assert readable(0.0, high) == []
        os.write(write_end, b".")
        assert readable(None, high) == [high]
    finally:
        for fd in (read_end, write_end, high):
            os.close(fd)
