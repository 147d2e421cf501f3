"""The fork server's own program: a small process that forks for the supervisor, whose children they become.

Executed by its path, with Python's ``-I -S``: it imports nothing of ours, and of Python little, since its
size is what a fork costs. ``fork_server`` is the other end and describes the messages.
"""

import contextlib
import ctypes
import errno
import fcntl
import gc
import json
import os
import resource
import signal
import socket
import sys
import time
from collections.abc import Sequence
from typing import Any, NoReturn

_SYS_CLONE = {"x86_64": 56, "aarch64": 220}
_CLONE_PARENT = 0x8000  # sched.h: the child is our parent's, who waits for it as for those that it forked
_PR_SET_PDEATHSIG = 1
_MPOL_BIND = 2
_SYS_SET_MEMPOLICY = {"x86_64": 238, "aarch64": 237}
_RLIMIT_LOCKS = 10
_PYTHON_IGNORES = (signal.SIGPIPE, signal.SIGXFSZ)
_MOST_FDS, _MOST_BYTES = 64, 4096
_LIBC = ctypes.PyDLL(None, use_errno=True)


def serve(channel: socket.socket, supervisor: int) -> None:
    """Fork for each request, until no process holds the other end."""
    # What is sent to all processes of a job is the matter of its workers.
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    gc.disable()  # a collection would copy what the children share with us
    channel.send(b"ready")
    while True:
        text, fds, _, _ = socket.recv_fds(channel, _MOST_BYTES, _MOST_FDS)
        if not text:
            return
        order = json.loads(os.pread(fds[0], os.fstat(fds[0]).st_size, 0))
        program = _Program(order)
        if (pid := _fork()) == 0:
            _be_a_child(channel, supervisor, order, program, fds)
        if pid < 0:
            with socket.socket(fileno=os.dup(fds[1])) as status:
                status.send(json.dumps({"cannot": ctypes.get_errno()}).encode())
        for fd in fds:
            os.close(fd)


class _Program:
    """What execve(2) takes. Bytes come as Latin-1: only the supervisor knows what its names mean."""

    def __init__(self, order: dict[str, Any]) -> None:
        self.paths = [path.encode("latin-1") for path in order["paths"]]
        self._argv = _strings(order["argv"])
        self._env = _strings(order["env"])

    def execute(self) -> int:
        """Become the first that can be executed; the number of the error that tells most."""
        found = 0
        for path in self.paths:
            _LIBC.execve(path, self._argv, self._env)
            if (number := ctypes.get_errno()) not in (errno.ENOENT, errno.ENOTDIR):
                found = found or number
        return found or ctypes.get_errno()


def _strings(texts: list[str]) -> "ctypes.Array[ctypes.c_char_p]":
    return (ctypes.c_char_p * (len(texts) + 1))(*(text.encode("latin-1") for text in texts), None)


def _fork() -> int:
    """Fork a child of our parent, else like fork(2). Python's own would reset threads; there are none."""
    if (number := _SYS_CLONE.get(os.uname().machine)) is None:
        ctypes.set_errno(errno.ENOSYS)
        return -1
    pid: int = _LIBC.syscall(number, _CLONE_PARENT | signal.SIGCHLD, 0, 0, 0, 0)
    return pid


def _be_a_child(
    channel: socket.socket, supervisor: int, order: dict[str, Any], program: _Program, fds: list[int]
) -> NoReturn:
    """Prepare, tell our number, and become the program when we are told to. Nothing returns from here."""
    try:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() == supervisor:
            os.setsid()
            channel.close()
            os.close(fds[0])
            status = _place(fds[1], dict(zip((1, 2, *order["keep"]), fds[2:], strict=True)))
            trouble = _prepare(order)
            status.send(json.dumps({"pid": os.getpid(), **trouble}).encode())
            if not trouble and _may_begin(order, status.recv(_MOST_BYTES)):
                status.send(json.dumps({"errno": program.execute(), "at": "program"}).encode())
    finally:
        os._exit(127)


def _place(status: int, wanted: dict[int, int]) -> socket.socket:
    """Give each descriptor its number, as the program inherits it; that of our own channel makes room."""
    above = max(wanted) + 1

    def moved(fd: int) -> int:
        number = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, above)
        os.close(fd)
        return number

    channel = socket.socket(fileno=moved(status))
    for number, fd in {number: moved(fd) for number, fd in wanted.items()}.items():
        os.dup2(fd, number, inheritable=True)
    return channel


def _prepare(order: dict[str, Any]) -> dict[str, Any]:
    """Why it cannot be so, if it cannot."""
    try:
        if order["cwd"] is not None:
            os.chdir(order["cwd"].encode("latin-1"))
    except OSError as error:
        return {"errno": error.errno, "at": "cwd"}
    try:
        if order["cpus"]:
            os.sched_setaffinity(0, order["cpus"])
    except (OSError, ValueError):
        return {"errno": errno.EINVAL, "at": "cpus"}
    if order["memory_nodes"]:
        bind_memory(order["memory_nodes"])
    if order["tag"]:
        with contextlib.suppress(OSError, ValueError):  # it carries its tag in its environment as well
            resource.setrlimit(_RLIMIT_LOCKS, (order["tag"], resource.getrlimit(_RLIMIT_LOCKS)[1]))
    return {}


def bind_memory(nodes: Sequence[int]) -> None:
    """Allocate memory from these nodes only, like ``numactl --membind``. A kernel without NUMA ignores it."""
    mask = sum(1 << node for node in nodes)
    words = max(nodes) // 64 + 1
    array = (ctypes.c_ulong * words)(*(mask >> (64 * word) & (1 << 64) - 1 for word in range(words)))
    if (number := _SYS_SET_MEMPOLICY.get(os.uname().machine)) is not None:
        _LIBC.syscall(number, _MPOL_BIND, array, 64 * words + 1)


def _may_begin(order: dict[str, Any], told: bytes) -> bool:
    """Nothing told: the supervisor that asked for us does not want us any more. Our time may be over, too."""
    if not told:
        return False
    for ignored in _PYTHON_IGNORES:
        signal.signal(ignored, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    if order["policy"] is not None:
        policy, priority = order["policy"]
        os.sched_setscheduler(0, policy, os.sched_param(priority))
    until_s = json.loads(told)["until_s"]
    if until_s is not None and time.clock_gettime(time.CLOCK_BOOTTIME) >= until_s:
        os.kill(os.getpid(), signal.SIGKILL)
    return True


if __name__ == "__main__":
    with socket.socket(fileno=int(sys.argv[1])) as _channel:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() == int(sys.argv[2]):
            serve(_channel, int(sys.argv[2]))
