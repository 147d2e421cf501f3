"""IN THE STANDBY: import the framework, rehearse, wait for a rank, become its worker.

Runs under whatever Python the user's program runs under, under the name
``faultrun_standby``: the standard library only, and nothing else of faultrun.
The other end of the channel is ``workers.standby``.

Messages are lines of JSON. We say ``ready`` (or ``refuse`` and leave), hear
``look`` and answer ``here``, hear ``go`` and answer ``taken``. End of file
means that nobody needs us.
"""

import gc
import json
import os
import socket
import sys
import time
from typing import Any

from .belongings import Belongings, leftovers
from .handover import Refused, become
from .rehearsal import Rehearsal, Spoiled, rehearsal_for
from .shadows import shadowed

PROBE = "probe"
PROBED = 73
"""Exit code of a Python that was only asked whether it comes here at all."""


def wait(told: str, before: frozenset[str]) -> None:
    """Return when this process is a worker; end it when it never becomes one.

    ``told`` is ``FD FRAMEWORK``; ``before`` are the modules that Python had
    before ``site`` came here.
    """
    if told == PROBE:
        os._exit(PROBED)
    fd, _, framework = told.partition(" ")
    channel = Channel(int(fd))
    rehearsal = rehearsal_for(framework)
    ready = _prepare(rehearsal, before)
    channel.say(**ready)
    if ready["kind"] == "refuse":
        os._exit(0)
    while True:
        order = channel.hear()
        if order["kind"] == "look":
            channel.say(kind="here")
        elif order["kind"] == "go":
            try:
                become(order, rehearsal)
            except (Refused, OSError) as error:
                channel.say(kind="refuse", why=str(error))
                os._exit(0)
            channel.say(kind="taken")
            channel.close()
            return


def _prepare(rehearsal: Rehearsal, before: frozenset[str]) -> dict[str, Any]:
    """Import and rehearse; what is left of the rehearsal afterwards is a reason to refuse."""
    began_s = time.monotonic()
    try:
        rehearsal.load()
    except ImportError as error:
        return {"kind": "refuse", "why": f"{rehearsal.name} cannot be imported: {error}"}
    loaded_s = time.monotonic()
    names = shadowed(before)
    if names:
        return {
            "kind": "refuse",
            "why": f"the program has its own {' '.join(names)}, which was imported from elsewhere",
        }
    mine = Belongings.of_this_process()
    try:
        note = rehearsal.rehearse()
    except Spoiled as error:
        return {"kind": "refuse", "why": str(error)}
    mine.restore()
    gc.collect()
    if rehearsal.frozen:
        gc.freeze()
    left = leftovers(mine, rehearsal.threads)
    if left:
        return {"kind": "refuse", "why": f"the rehearsal left {left} behind"}
    sys.stdout.flush()
    return {
        "kind": "ready",
        "note": note,
        "load_s": round(loaded_s - began_s, 3),
        "rehearse_s": round(time.monotonic() - loaded_s, 3),
    }


class Channel:
    """Lines of JSON over one inherited socket."""

    def __init__(self, fd: int) -> None:
        os.set_inheritable(fd, False)
        self._socket = socket.socket(fileno=fd)
        self._buffer = b""

    def say(self, **message: object) -> None:
        """Send one message; nobody left to hear it is the end of us."""
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

    def close(self) -> None:
        """The worker has no such descriptor."""
        self._socket.close()
