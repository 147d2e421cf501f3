"""IN THE STANDBY: import the framework, rehearse, wait for a rank, become its worker.

Runs under whatever Python the user's program runs under, under the name ``faultrun_standby``: the standard
library only, and nothing else of faultrun. The other end of the channel is ``workers.standby``.

Messages are lines of JSON. We say ``ready`` (or ``refuse`` and leave), hear ``look`` and answer ``here``,
hear ``go`` and answer ``taken``. End of file means that we are not needed.
"""

import gc
import json
import os
import random
import signal
import socket
import sys
import time
from collections.abc import Mapping
from typing import Any

from .process_state import ProcessState, leftovers, shadowed
from .program_imports import Plainer, ProgramImports, children
from .rehearsal import CannotStandBy, Rehearsal, rehearsal_for

_CHANNEL = "FAULTRUN_STANDBY_CHANNEL"
_PROBE = "probe"
_PROBED = 73
"""Exit code of a Python that was only asked whether it comes here at all."""
_LISTENING = "0A"  # the kernel's TCP_LISTEN in /proc/net/tcp
_LOOK_S, _ANSWER_S = 0.002, 0.1


def wait(told: str, before: frozenset[str]) -> None:
    """Return when this process is a worker; end it when it never becomes one.

    ``told`` is ``FD FRAMEWORK JSON``, where JSON has what the program imports, which variables it sets
    and, in a standby that began again, why it is a plainer one; ``before`` are the modules that Python
    had before ``site`` came here.
    """
    if told == _PROBE:
        os._exit(_PROBED)
    fd, framework, text = told.split(" ", 2)
    more = json.loads(text)
    first = ProcessState.now()
    channel = Channel(int(fd))
    rehearsal, imports = rehearsal_for(framework), ProgramImports(more["imports"], more["sets"])
    try:
        done = _prepare(rehearsal, imports, before)
        imported = dict.fromkeys((rehearsal.name, *imports.packages))
        channel.say(kind="ready", plain=more.get("plain", ""), imported=list(imported), **done)
        while (order := channel.hear())["kind"] != "go":
            if order["kind"] == "look":
                channel.say(kind="here")
        _become(order, rehearsal, imports)
    except Plainer as why:
        plain = json.dumps({"imports": (), "sets": (), "plain": str(why)})
        _begin_again(first, channel, f"{fd} {framework} {plain}")
    except (CannotStandBy, OSError) as error:
        channel.say(kind="refuse", why=str(error))
        os._exit(0)
    channel.say(kind="taken")
    channel.close()


def _begin_again(first: ProcessState, channel: "Channel", told: str) -> None:
    """Be the same process with nothing imported, and import the framework alone this time.

    By an exec: threads and memory go. Processes and descriptors would stay, and are ended here.
    """
    first.restore()
    for child in children():
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    hook = os.path.join(os.path.dirname(os.path.abspath(__file__)), "hook")
    theirs = os.environ.get("PYTHONPATH", "")
    os.environ["PYTHONPATH"] = f"{hook}{os.pathsep}{theirs}" if theirs else hook
    os.environ[_CHANNEL] = told
    channel.keep_alone()
    sys.stdout.flush()
    sys.stderr.flush()
    os.execvp(sys.orig_argv[0], sys.orig_argv)


def _prepare(rehearsal: Rehearsal, imports: ProgramImports, before: frozenset[str]) -> dict[str, Any]:
    """Import and rehearse; what is left of the rehearsal afterwards is a reason to refuse (CannotStandBy)."""
    began_s = time.monotonic()
    try:
        rehearsal.load()
    except ImportError as error:
        raise CannotStandBy(f"{rehearsal.name} cannot be imported: {error}") from None
    imports.load(before)
    loaded_s = time.monotonic()
    if names := shadowed(before):
        own = " ".join(names)
        raise CannotStandBy(f"the program has its own {own}, which was imported from elsewhere")
    before_it = ProcessState.now()
    note = rehearsal.rehearse()
    before_it.restore()
    gc.collect()
    if rehearsal.frozen:
        gc.freeze()
    if left := leftovers(before_it, rehearsal.threads):
        raise CannotStandBy(f"the rehearsal left {left} behind")
    sys.stdout.flush()
    return {
        "note": note,
        "load_s": round(loaded_s - began_s, 3),
        "rehearse_s": round(time.monotonic() - loaded_s, 3),
    }


def _become(order: Mapping[str, Any], rehearsal: Rehearsal, imports: ProgramImports) -> None:
    """Carry out ``go``: give the process all that a fresh worker has from its first moment on.

    Environment, arguments, folder, output files. CannotStandBy or OSError:
    nothing of the program has run, and a fresh worker must take the place.
    """
    if rehearsal.changed():
        raise CannotStandBy(f"{rehearsal.name} was changed on the disk")
    if stale := imports.stale(order["set"], order["unset"]):
        raise CannotStandBy(stale)
    for name in order["unset"]:
        os.environ.pop(name, None)
    os.environ.update(order["set"])
    os.chdir(order["folder"])
    _speak_into(order["stdout"], order["stderr"])
    own = len(sys.argv[1:])
    sys.argv[1:] = order["arguments"]
    sys.orig_argv[len(sys.orig_argv) - own :] = order["arguments"]
    random.seed()
    rehearsal.reseed()
    if order["port"]:
        _await_listener(order["address"], order["port"], order["patience_s"])


def _speak_into(stdout: str, stderr: str) -> None:
    """Replace descriptors 1 and 2, for C libraries too; what was said before stays where it was said."""
    sys.stdout.flush()
    sys.stderr.flush()
    if (ctypes := sys.modules.get("ctypes")) is not None:
        ctypes.CDLL(None).fflush(None)
    for path, fd in ((stdout, 1), (stderr, 2)):
        opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
        os.dup2(opened, fd)
        os.close(opened)


def _await_listener(address: str, port: int, patience_s: float) -> None:
    """Let rank 0 listen first: a client that is refused comes back after 0.25 to 0.75 s (TCPStore)."""
    until_s = time.monotonic() + patience_s
    while not (_answers(address, port) if address else _listens(port)) and time.monotonic() < until_s:
        time.sleep(_LOOK_S)


def _answers(address: str, port: int) -> bool:
    """Whether rank 0 of another machine listens: its store drops a client that says nothing."""
    try:
        socket.create_connection((address, port), timeout=_ANSWER_S).close()
    except OSError:
        return False
    return True


def _listens(port: int) -> bool:
    """Whether a socket of this network namespace listens there (the kernel's proc_net_tcp.rst)."""
    wanted = f":{port:04X}"
    for table in ("/proc/net/tcp6", "/proc/net/tcp"):
        if os.path.exists(table):
            with open(table, encoding="ascii") as file:
                rows = [line.split(None, 4) for line in file]
            if any(len(row) > 4 and row[3] == _LISTENING and row[1].endswith(wanted) for row in rows):
                return True
    return False


class Channel:
    """Lines of JSON over one inherited socket."""

    def __init__(self, fd: int) -> None:
        os.set_inheritable(fd, False)
        self._socket = socket.socket(fileno=fd)
        self._buffer = b""

    def say(self, **message: object) -> None:
        """Send one message; without a reader we end."""
        try:
            self._socket.sendall(json.dumps(message).encode() + b"\n")
        except OSError:
            os._exit(0)

    def hear(self) -> dict[str, Any]:
        """Wait for the next message."""
        while b"\n" not in self._buffer:
            try:
                data = self._socket.recv(65536)
            except OSError:
                data = b""
            if not data:
                os._exit(0)
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        message: dict[str, Any] = json.loads(line)
        return message

    def keep_alone(self) -> None:
        """For a program that is executed in our place: of all descriptors but the first three only this."""
        os.set_inheritable(self._socket.fileno(), True)
        os.closerange(3, self._socket.fileno())
        os.closerange(self._socket.fileno() + 1, os.sysconf("SC_OPEN_MAX"))

    def close(self) -> None:
        """The worker has no such descriptor."""
        self._socket.close()
