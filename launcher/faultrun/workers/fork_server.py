"""The supervisor's end of its fork server: children of ours that are forked by a smaller process.

To fork the supervisor costs some milliseconds for each rank: its memory is shared page by page, copied where
either side goes on, and given back as the program begins. The server is a fifth of it. Its children are ours
(``CLONE_PARENT``), and die with us.

A request is one byte with descriptors: what to execute (a file in memory, JSON), a channel, standard output
and error, and what is to be inherited. The child says its number on the channel and begins when it is told
until when it may; the end of the channel is its execution. Whatever it cannot do is said there.
"""

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from faultrun.workers.deadline import NEVER
from faultrun.workers.launch import Launch
from faultrun.workers.sweep import TAG_VARIABLE, tag_limit

Policy = tuple[int, os.sched_param]

_PROGRAM = Path(__file__).with_name("fork_server_process.py")
_FORK_PATIENCE_S = 1.0
_EXEC_PATIENCE_S = 10.0
"""A program on a file system that hangs is executed later, or never: its rank is late, the node is not."""
_END_PATIENCE_S = 1.0
_MOST_BYTES = 4096


class NoForkServer(Exception):
    """Nobody forks for us, or not this time: fork here."""


class ForkServer:
    """Begun at once and ready soon. One that fails is never asked again. Main thread only (PDEATHSIG)."""

    def __init__(self) -> None:
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._ready = False
        self._process: subprocess.Popen[bytes] | None = None
        with theirs, contextlib.suppress(OSError):  # none to be had: ranks are forked here
            self._process = subprocess.Popen(
                (sys.executable or "", "-I", "-S", str(_PROGRAM), str(theirs.fileno()), str(os.getpid())),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )

    @property
    def pids(self) -> frozenset[int]:
        """Its own process while it lives: nobody else must reap it."""
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
        NoForkServer: nothing was started.
        """
        if not self.ready:
            raise NoForkServer
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with ours:
            with theirs, self._first(usual):
                self._ask(launch, usual, theirs)
                theirs.close()
                answer = _heard(ours, _FORK_PATIENCE_S)
            if answer is None or "cannot" in answer:
                self.close()
                raise NoForkServer
            return _begun(launch, ours, answer)

    def close(self) -> None:
        """End it, bounded; its children live on."""
        self._channel.close()
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_END_PATIENCE_S)

    @contextlib.contextmanager
    def _first(self, usual: Policy | None) -> Iterator[None]:
        """It goes first as we do, and whoever it forks."""
        if usual is not None and self._process is not None:
            os.sched_setscheduler(self._process.pid, os.SCHED_FIFO, os.sched_param(1))
        try:
            yield
        finally:
            if usual is not None and self._process is not None:
                with contextlib.suppress(OSError):
                    os.sched_setscheduler(self._process.pid, *usual)

    def _ask(self, launch: Launch, usual: Policy | None, status: socket.socket) -> None:
        boot = launch.env.get(TAG_VARIABLE, "")
        order = {
            "argv": launch.argv,
            "env": dict(launch.env),
            "cwd": launch.cwd,
            "cpus": launch.cpus,
            "memory_nodes": launch.memory_nodes,
            "keep": launch.keep,
            "tag": tag_limit(boot) if boot else 0,
            "policy": None if usual is None else (usual[0], usual[1].sched_priority),
        }
        with contextlib.ExitStack() as stack:
            text = os.memfd_create("launch")
            stack.callback(os.close, text)
            os.write(text, json.dumps(order).encode())
            out = stack.enter_context(launch.stdout.open("ab", buffering=0))
            err = stack.enter_context(launch.stderr.open("ab", buffering=0)) if launch.stderr else out
            fds = [text, status.fileno(), out.fileno(), err.fileno(), *launch.keep]
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # nobody will answer
                socket.send_fds(self._channel, [b"."], fds)


def _begun(launch: Launch, channel: socket.socket, answer: dict[str, Any]) -> tuple[int, int]:
    """It waits for our word, which it gets once it is known here: nobody unknown becomes a rank."""
    pid: int = answer["pid"]
    pidfd = os.pidfd_open(pid)
    trouble = answer if "errno" in answer else None
    if trouble is None:
        until_s = NEVER if launch.deadline is None else launch.deadline.at_s
        channel.send(json.dumps({"until_s": None if until_s == NEVER else until_s}).encode())
        trouble = _heard(channel, _EXEC_PATIENCE_S)
    if trouble is None:
        return pid, pidfd
    with contextlib.suppress(OSError):
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        os.waitid(os.P_PIDFD, pidfd, os.WEXITED)
    os.close(pidfd)
    raise OSError(trouble["errno"], trouble["words"], trouble["name"])


def _heard(channel: socket.socket, patience_s: float) -> dict[str, Any] | None:
    """The next word; None for its end, and for silence."""
    poll = select.poll()  # select() knows no descriptor above 1023
    poll.register(channel, select.POLLIN)
    if not poll.poll(patience_s * 1000):
        return None
    try:
        text = channel.recv(_MOST_BYTES)
    except ConnectionResetError:
        return None
    found: dict[str, Any] | None = json.loads(text) if text else None
    return found
