"""One process of ours: started race-free, known by its pidfd, reaped exactly once."""

import contextlib
import ctypes
import errno
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from faultrun.errors import FaultrunError
from faultrun.files import readable
from faultrun.model.exits import Exited, ExitStatus, Signaled
from faultrun.workers.fork_server import ForkServer, NoForkServer, Policy
from faultrun.workers.fork_server_process import bind_memory
from faultrun.workers.launch import Launch
from faultrun.workers.sweep import TAG_VARIABLE, tag

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_SYS_TGKILL = {"x86_64": 234, "aarch64": 131}
_USUAL = (os.SCHED_OTHER, os.SCHED_BATCH, os.SCHED_IDLE)  # without SCHED_RESET_ON_FORK
_PIDFD_SIGNAL_THREAD = 1  # Linux 6.9, include/uapi/linux/pidfd.h
_LIBC = ctypes.CDLL(None, use_errno=True)
_left: Policy | None = None
"""What ``undisturbed`` goes back to."""


class NoPidfd(FaultrunError):
    """The kernel, or a sandbox around us, gives no pidfd (EX_UNAVAILABLE)."""

    exit_code = 69


def require_pidfd() -> None:
    """NoPidfd where a worker could be started and not be watched."""
    try:
        pidfd = os.pidfd_open(os.getpid())
    except OSError as error:
        because = f"pidfd_open: {error.strerror}"
        hint = "Linux 5.4 or newer, and a seccomp profile that allows pidfd_open and pidfd_send_signal"
        raise NoPidfd("workers cannot be watched here", because=because, hint=hint) from error
    os.close(pidfd)


class Process:
    """A running child in a session of its own that the kernel kills when we die."""

    def __init__(self, pid: int, pidfd: int) -> None:
        self.pid, self.pidfd = pid, pidfd

    def reap(self) -> ExitStatus | None:
        """Return how it ended, None while it runs. After the first answer nothing is left of it."""
        if (status := self._status(os.WEXITED | os.WNOHANG)) is not None:
            os.close(self.pidfd)
            self.pidfd = -1  # its number may be another's from now on
        return status

    def ended_as(self) -> ExitStatus | None:
        """How it ended, None while it runs. It is not reaped by this question."""
        return self._status(os.WEXITED | os.WNOHANG | os.WNOWAIT)

    def _status(self, how: int) -> ExitStatus | None:
        if (ended := os.waitid(os.P_PIDFD, self.pidfd, how)) is None:
            return None
        if ended.si_code == os.CLD_EXITED:
            return Exited(code=ended.si_status)
        return Signaled(signum=ended.si_status)

    def wait(self, patience_s: float) -> None:
        """Wait, bounded, for its end."""
        readable(patience_s, self.pidfd)

    def signal_leader(self, signum: int) -> None:
        """Signal this process alone; nothing when it has ended."""
        with contextlib.suppress(OSError):
            signal.pidfd_send_signal(self.pidfd, signum)

    def signal_main_thread(self, signum: int) -> None:
        """Signal its main thread, and no other of its threads; nothing when it has ended."""
        try:
            signal.pidfd_send_signal(self.pidfd, signum, None, _PIDFD_SIGNAL_THREAD)
        except ProcessLookupError:
            return
        except OSError:  # Linux before 6.9
            if self.pidfd >= 0 and os.uname().machine in _SYS_TGKILL:  # its pid is its own
                _LIBC.syscall(_SYS_TGKILL[os.uname().machine], self.pid, self.pid, signum)

    def kill_group(self) -> None:
        """SIGKILL to its whole process group."""
        self._signal_group(signal.SIGKILL)

    def wake_group(self) -> None:
        """SIGCONT to its whole process group: nothing to a process that runs."""
        self._signal_group(signal.SIGCONT)

    def _signal_group(self, signum: int) -> None:
        """Its pid is its group's id, and cannot be given to another while we have not reaped it."""
        if self.pidfd >= 0:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signum)


def start(launch: Launch, server: ForkServer | None = None) -> Process:
    """Execute ``launch``; OSError with the kernel's reason when that is impossible.

    Must be called from the main thread: the kernel's parent-death signal
    fires when the *thread* that forked ends. The child blocks nothing, owns
    its session and dies with us even if we die between fork and exec. ``server`` forks it where it can.
    """
    first = undisturbed() if launch.at_once else contextlib.nullcontext(_left)
    with first as usual:
        if server is not None:
            with contextlib.suppress(NoForkServer):
                return Process(*server.start(launch, usual))
        return _forked_here(launch, usual)


def _forked_here(launch: Launch, usual: Policy | None) -> Process:
    parent = os.getpid()

    def before_exec() -> None:
        die_with(parent)
        if launch.cpus:
            os.sched_setaffinity(0, launch.cpus)
        if launch.memory_nodes:
            bind_memory(launch.memory_nodes)
        tag(launch.env.get(TAG_VARIABLE, ""))
        if launch.deadline is not None and launch.deadline.left_s <= 0:
            os.kill(os.getpid(), signal.SIGKILL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        if usual is not None:
            os.sched_setscheduler(0, *usual)

    with _append(launch.stdout) as out, _append(launch.stderr or launch.stdout) as err:
        try:
            popen = subprocess.Popen(
                launch.argv,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env=dict(launch.environ),
                cwd=launch.cwd,
                pass_fds=launch.keep,
                start_new_session=True,
                preexec_fn=before_exec,  # noqa: PLW1509  no other thread of ours runs Python while workers are spawned
            )
        except subprocess.SubprocessError as error:
            # All that Python tells of a failure in ``before_exec``: the processors are not ours (any more).
            raise OSError(errno.EINVAL, "its processors cannot be used", launch.argv[0]) from error
    process = Process(popen.pid, os.pidfd_open(popen.pid))
    # From now on it is waited for by its pidfd. Popen would wait for the process that has its number by then.
    popen.returncode = 0
    return process


@contextlib.contextmanager
def undisturbed() -> Iterator[Policy | None]:
    """Keep the processor for a moment, where we are allowed to (CAP_SYS_NICE); else change nothing.

    A process that is signalled or started preempts the one that did it, or takes the next processor that is
    free: with 64 workers on few cores the last one would hear of it 20 ms late. The policy to go back to,
    for a child of that moment; None where it is the one that we have. One inside another changes nothing.
    Main thread only; begin no thread in it, nor a process but by ``start``: they would keep our policy.
    """
    global _left  # noqa: PLW0603  a process has one main thread, and that has one policy
    if _left is not None:
        yield _left
        return
    usual = _left = _gone_first()
    try:
        yield usual
    finally:
        _left = None
        if usual is not None:
            os.sched_setscheduler(0, *usual)


def _gone_first() -> Policy | None:
    """Go before all usual policies; return ours if it was one of them, and None if nothing has changed.

    A process that was given another one has it of another program, and it may be one that we could not take
    back: a lower priority is allowed to all and a higher one is not, nor to have children inherit again.
    """
    try:
        usual = os.sched_getscheduler(0), os.sched_getparam(0)
        if usual[0] not in _USUAL:
            return None
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    except OSError:
        return None
    return usual


def die_with(parent: int) -> None:
    """Have the kernel kill this process when ``parent``, who forked it, dies; or now, if that is over."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(137)


def become_subreaper() -> None:
    """Have orphans among our descendants given to us instead of to init, so that we find and reap them."""
    _LIBC.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def reap_orphans(ours: frozenset[int]) -> int:
    """Reap ended children that we never started (adopted orphans); return how many."""
    count = 0
    while True:
        try:
            ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return count
        # A child of our own at the head of the queue has its pidfd readable: it is reaped there, and
        # the next wait behind it at SIGCHLD or at the sweep.
        if ended is None or ended.si_pid in ours:
            return count
        # A thread of ours may have waited for a program of its own in this very moment.
        with contextlib.suppress(ChildProcessError):
            os.waitpid(ended.si_pid, os.WNOHANG)
            count += 1


def _append(path: Path) -> Any:
    return path.open("ab", buffering=0)


def why_not_started(error: OSError, program: str, log_dir: Path) -> str:
    """One line: the program that is not there, or what ran out instead of the file that met it first."""
    code = error.errno or errno.EIO
    reason = os.strerror(code)
    match code:
        case errno.ENOSPC | errno.EDQUOT:
            lack = "no inode is left: df -i" if _without_inodes(log_dir) else "df -h"
            return f"could not start a worker: {reason} in {log_dir} ({lack})"
        case errno.EMFILE | errno.ENFILE:
            whose = "ulimit -n" if code == errno.EMFILE else "sysctl fs.file-max"
            return f"could not start a worker: {reason} ({whose})"
        case errno.EAGAIN:
            return f"could not start a worker: {reason} (ulimit -u, or the container's limit of pids)"
        case errno.ENOMEM:
            return f"could not start a worker: {reason}"
        case _:
            return f"could not start {error.filename or program}: {reason}"


def _without_inodes(folder: Path) -> bool:
    try:
        room = os.statvfs(folder)
    except OSError:
        return False
    return room.f_files > 0 and room.f_favail == 0
