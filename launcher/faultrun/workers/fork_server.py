"""The supervisor's end of its fork server: children of ours that are forked by a smaller process.

To fork the supervisor costs some milliseconds for each rank: its memory is shared page by page, copied where
either side goes on, and given back as the program begins. The server is a third as large. Its children are
ours (``CLONE_PARENT``), and die with us.

A request is one byte with descriptors: what to execute (a file in memory, JSON), a channel, standard output
and error, and what is to be inherited. The child says its number on the channel and begins when it is told
until when it may; the end of the channel is its execution. Whatever it cannot do is said there.
"""

import contextlib
import json
import os
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from faultrun.files import readable, text_of
from faultrun.workers.launch import Launch
from faultrun.workers.shared_deadline import NEVER
from faultrun.workers.sweep import TAG_VARIABLE, tag_limit

Policy = tuple[int, os.sched_param]

_PROGRAM = Path(__file__).with_name("fork_server_process.py")
_FORK_PATIENCE_S = 1.0
_EXEC_PATIENCE_S = 10.0
"""A program on a file system that hangs is executed later, or never: its rank is late, the node is not."""
_END_PATIENCE_S = 1.0
_MOST_BYTES, _MOST_FAILURES = 4096, 3
_OOM, _GROUPS = Path("/proc/self/oom_score_adj"), Path("/proc/self/cgroup")
_LIMITS = sorted({getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_")})


class NoForkServer(Exception):
    """No server forks for us, or not this time: fork here."""


class ForkServer:
    """Begun at once and ready soon. Main thread only (PDEATHSIG).

    One that was killed is replaced, one that fails twice; so is one that has other limits, processors or
    groups than we have by now, since its children have them of it. ``patience_s``: within that it forks.
    """

    def __init__(self, patience_s: float = _FORK_PATIENCE_S) -> None:
        self._patience_s = patience_s
        self._failures = 0
        self._ready = False
        self._inherited: tuple[object, ...] = ()
        self._channel: socket.socket
        self._process: subprocess.Popen[bytes] | None = None
        self._begin(None)

    @property
    def pids(self) -> frozenset[int]:
        """Its own process while it lives: no other thread must reap it."""
        lives = self._process is not None and self._process.poll() is None
        return frozenset((self._process.pid,)) if self._process is not None and lives else frozenset()

    @property
    def ready(self) -> bool:
        """Whether it forks when it is asked."""
        if self._process is None or self._process.poll() is not None:
            return False
        if not self._ready:
            with contextlib.suppress(OSError):
                self._ready = bool(self._channel.recv(_MOST_BYTES, socket.MSG_DONTWAIT))
        return self._ready

    def start(self, launch: Launch, usual: Policy | None) -> tuple[int, int]:
        """Have ``launch`` executed; the child's pid and pidfd. OSError with the kernel's reason.

        ``usual``: we go first for a moment; the child does so until it executes, and has this policy then.
        NoForkServer: nothing was started. ValueError: what no program can be given.
        """
        order = _order(launch, usual)
        if not self.ready or self._inherited != _inherited(usual):
            self._again(usual)
            raise NoForkServer
        with contextlib.ExitStack() as stack:
            out = stack.enter_context(launch.stdout.open("ab", buffering=0))
            err = stack.enter_context(launch.stderr.open("ab", buffering=0)) if launch.stderr else out
            try:
                ours, theirs = map(
                    stack.enter_context, socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
                )
                text = os.memfd_create("launch")
                stack.callback(os.close, text)
                os.write(text, order)
                fds = [text, theirs.fileno(), out.fileno(), err.fileno(), *launch.keep]
                with self._first(usual):
                    socket.send_fds(self._channel, [b"."], fds)
                    theirs.close()
                    answer = _heard(ours, self._patience_s)
                return _begun(launch, ours, answer)
            except NoForkServer:
                self._failed(usual)
                raise
            except _CannotExecute as error:
                raise OSError(*error.args) from None
            except OSError as error:  # of ours, not of the program: it may be started all the same
                self._failed(usual)
                raise NoForkServer from error

    def close(self) -> None:
        """End it, bounded; its children live on."""
        process, self._process = self._process, None
        if process is not None:
            self._channel.close()
            process.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_END_PATIENCE_S)

    def _begin(self, usual: Policy | None) -> None:
        """None is begun where none is to be had: ranks are forked here."""
        self._ready, self._inherited = False, _inherited(usual)
        with contextlib.suppress(OSError), contextlib.ExitStack() as undo:
            self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            undo.callback(self._channel.close)
            with theirs:
                self._process = subprocess.Popen(
                    (sys.executable or "", "-I", "-S", str(_PROGRAM), str(theirs.fileno()), str(os.getpid())),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    pass_fds=(theirs.fileno(),),
                    start_new_session=True,
                )
            undo.pop_all()
            if usual is not None:
                os.sched_setscheduler(self._process.pid, *usual)

    def _again(self, usual: Policy | None) -> None:
        """Replace one that was ready once: by the next start there is another."""
        if self._ready:
            self.close()
            self._begin(usual)

    def _failed(self, usual: Policy | None) -> None:
        self._failures += 1
        self.close()
        if self._failures < _MOST_FAILURES:
            self._begin(usual)

    @contextlib.contextmanager
    def _first(self, usual: Policy | None) -> Iterator[None]:
        """Run it before all usual processes, as we run, and its children too."""
        pid = None if usual is None or self._process is None else self._process.pid
        if pid is not None:
            with contextlib.suppress(OSError):
                os.sched_setscheduler(pid, os.SCHED_FIFO, os.sched_param(1))
        try:
            yield
        finally:
            if pid is not None and usual is not None:
                with contextlib.suppress(OSError):
                    os.sched_setscheduler(pid, *usual)


class _CannotExecute(Exception):
    """errno, words, and the name that they are about."""


def _order(launch: Launch, usual: Policy | None) -> bytes:
    """Encode ``launch`` for ``fork_server_process``: bytes as Latin-1, since its idea of names may differ."""
    program, boot = os.fsencode(launch.argv[0]), launch.env.get(TAG_VARIABLE, "")
    where = [] if b"/" in program else os.get_exec_path(dict(launch.env))
    folders = [os.fsencode(folder) + b"/" for folder in where] or [b""]
    if any("=" in name for name in launch.environ):
        raise ValueError("illegal environment variable name")
    env = [os.fsencode(f"{name}={value}") for name, value in launch.environ.items()]
    argv, paths = [*map(os.fsencode, launch.argv)], [folder + program for folder in folders]
    if any(b"\0" in one for one in (*argv, *env)):
        raise ValueError("embedded null byte")
    order = {
        "paths": [path.decode("latin-1") for path in paths],
        "argv": [one.decode("latin-1") for one in argv],
        "env": [one.decode("latin-1") for one in env],
        "cwd": None if launch.cwd is None else os.fsencode(launch.cwd).decode("latin-1"),
        "cpus": launch.cpus,
        "memory_nodes": launch.memory_nodes,
        "keep": launch.keep,
        "tag": tag_limit(boot) if boot else 0,
        "policy": None if usual is None else (usual[0], usual[1].sched_priority),
    }
    return json.dumps(order).encode()


def _begun(launch: Launch, channel: socket.socket, answer: dict[str, Any] | None) -> tuple[int, int]:
    """The child waits for our word, which it gets once it is known here: nothing unknown becomes a rank."""
    if answer is None or "pid" not in answer:
        raise NoForkServer
    pid: int = answer["pid"]
    try:
        pidfd = os.pidfd_open(pid)
    except OSError:
        _reap(pid)
        raise
    try:
        trouble: dict[str, Any] | None = answer
        if "errno" not in answer:
            until_s = NEVER if launch.deadline is None else launch.deadline.at_s
            channel.send(json.dumps({"until_s": None if until_s == NEVER else until_s}).encode())
            trouble = _heard(channel, _EXEC_PATIENCE_S)
    except OSError:  # it was killed before it was more than a fork
        _reap(pid)
        os.close(pidfd)
        raise
    if trouble is None:
        return pid, pidfd
    _reap(pid)
    os.close(pidfd)
    match trouble["at"]:
        case "cwd":
            raise _CannotExecute(trouble["errno"], os.strerror(trouble["errno"]), launch.cwd)
        case "cpus":
            raise _CannotExecute(trouble["errno"], "its processors cannot be used", launch.argv[0])
        case _:
            raise _CannotExecute(trouble["errno"], os.strerror(trouble["errno"]), launch.argv[0])


def _reap(pid: int) -> None:
    """End a child that is no rank. It was not reaped elsewhere: its number is its own."""
    with contextlib.suppress(OSError):
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def _inherited(usual: Policy | None) -> tuple[object, ...]:
    """What children have of the process that forks them, and what may be changed from outside."""
    limits = [resource.getrlimit(one) for one in _LIMITS]
    policy = os.sched_getscheduler(0) if usual is None else usual[0]
    nice, cpus = os.getpriority(os.PRIO_PROCESS, 0), os.sched_getaffinity(0)
    return (*limits, policy, nice, cpus, text_of(_OOM), text_of(_GROUPS))


def _heard(channel: socket.socket, patience_s: float) -> dict[str, Any] | None:
    """The next word; None for its end, and for silence."""
    if not readable(patience_s, channel.fileno()):
        return None
    try:
        text = channel.recv(_MOST_BYTES)
    except ConnectionResetError:
        return None
    found: dict[str, Any] | None = json.loads(text) if text else None
    return found
