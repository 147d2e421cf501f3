"""Workers forked from a process that has their framework: the seconds of its import are spent once for all.

A worker is a process of its own in every respect that these tests ask about: own session, signals, exit code,
``__main__``. Its parent is a small process that lives as long as it does and tells how it ended.
"""

import contextlib
import importlib
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

_ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
"""A process with a pool of threads cannot be forked."""
_MOST_BYTES = 1 << 16


class Forked:
    """One worker, with as much of ``subprocess.Popen`` as is needed. ``told`` is where its parent speaks."""

    def __init__(self, told: int) -> None:
        self._told = os.fdopen(told)
        self._lock = threading.Lock()
        self._code: int | None = None
        self.pid = int(self._told.readline())

    def wait(self) -> int:
        """Exit code, -n for signal n, once it has ended."""
        with self._lock:
            if self._code is None:
                self._code = os.waitstatus_to_exitcode(int(self._told.readline()))
                self._told.close()
            return self._code

    def send_signal(self, signum: int) -> None:
        """Nothing is sent to a process that has been waited for."""
        if self._code is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signum)

    def kill(self) -> None:
        """SIGKILL."""
        self.send_signal(signal.SIGKILL)


class Preloaded:
    """The process that has imported ``modules``, and everything that these import; ``folders`` come first."""

    def __init__(self, *modules: str, folders: Sequence[str | Path] = ()) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, __file__, str(theirs.fileno()), *modules],
                env={
                    **os.environ,
                    **_ONE_THREAD,
                    "PYTHONPATH": os.pathsep.join([*map(str, folders), *sys.path]),
                },
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        self._socket = ours

    def start(
        self, script: Path, *args: str, env: Mapping[str, str], log: int, cwd: Path | None = None
    ) -> Forked:
        """Run ``script`` as ``__main__`` in a new process, with ``log`` as stdout and stderr."""
        told, tells = os.pipe()
        request = {"argv": [os.fspath(script), *args], "env": dict(env), "cwd": os.fspath(cwd or Path.cwd())}
        socket.send_fds(self._socket, [json.dumps(request).encode()], [log, tells])
        os.close(tells)
        return Forked(told)

    def close(self) -> None:
        """End it; its workers are left alone."""
        self._socket.shutdown(socket.SHUT_RDWR)  # a forked process of ours may hold it, too
        self._socket.close()
        self._process.wait()


_started: dict[tuple[str, ...], Preloaded] = {}


def preloaded(*modules: str) -> Preloaded:
    """The one process with these modules, started when it is first asked for."""
    if modules not in _started:
        _started[modules] = Preloaded(*modules)
    return _started[modules]


def close_all() -> None:
    """End every such process."""
    while _started:
        _started.popitem()[1].close()


def serve(link: socket.socket) -> None:
    """Fork for each request until the other end closes."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        text, (*fds,), _, _ = socket.recv_fds(link, _MOST_BYTES, 2)
        if not text:
            return
        if os.fork() == 0:
            link.close()
            _stand_by(json.loads(text), *fds)
        for fd in fds:
            os.close(fd)


def _stand_by(request: Mapping[str, Any], log: int, tells: int) -> None:
    """Start the worker, say its pid, wait for it, say its status."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    worker = os.fork()
    if worker == 0:
        os.close(tells)
        _become(request, log)
    os.close(log)
    os.write(tells, f"{worker}\n".encode())
    os.write(tells, f"{os.waitpid(worker, 0)[1]}\n".encode())
    os._exit(0)


def _become(request: Mapping[str, Any], log: int) -> None:
    """Be the worker."""
    os.setsid()
    null = os.open(os.devnull, os.O_RDONLY)
    for fd, number in ((null, 0), (log, 1), (log, 2)):
        os.dup2(fd, number)
    os.close(null)
    os.close(log)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    sys.argv = request["argv"]
    sys.path.insert(0, os.path.dirname(sys.argv[0]))  # noqa: PTH120
    runpy.run_path(sys.argv[0], run_name="__main__")
    sys.exit()  # goes up to the interpreter, as an exception of the program would; both end as they always do


if __name__ == "__main__":
    del sys.path[0]  # the folder of this file, which has modules of its own
    for name in sys.argv[2:]:
        importlib.import_module(name)
    serve(socket.socket(fileno=int(sys.argv[1])))
