"""The etcd of a run that was given none: kept by a helper process on the node that serves it.

The helper starts it again whenever it ends, with the data that it had, and ends it with the supervisor.
What etcd's client needs to look whether it is ready stays out of the supervisor.
"""

import json
import os
from collections.abc import Callable

from faultrun.errors import FaultrunError
from faultrun.files import readable
from faultrun.workers.forked_helper import Forked

_READY_S, _END_S = 40.0, 10.0
_CHUNK = 1 << 16


class EtcdNotServed(FaultrunError):
    """This node could not start the etcd that it is to serve (EX_UNAVAILABLE)."""

    exit_code = 69


class NoRoomForEtcd(FaultrunError):
    """The machine has no room left for etcd's data (CONTRACT: 71, the system ran out)."""

    exit_code = 71


EtcdKeeping = Callable[[int, int], object]
"""What the helper does (``etcd_keeper.keep``): it writes one line to the first descriptor, and ends once
no process holds the other end of the second."""


class ServedEtcd:
    """The supervisor's end. Make it before any thread is started; returns once etcd answers.

    EtcdNotServed, NoRoomForEtcd: why it does not.
    """

    def __init__(self, keep: EtcdKeeping) -> None:
        heard, words = os.pipe2(os.O_CLOEXEC)
        stop, self._held = os.pipe2(os.O_CLOEXEC)
        self._keeper = Forked(lambda: keep(words, stop), keep=(words, stop))
        os.close(words)
        os.close(stop)
        trouble = _told(heard)
        os.close(heard)
        if trouble is not None:
            self.close()
            raise trouble

    def close(self) -> None:
        """End etcd; its data stays."""
        os.close(self._held)
        self._keeper.end(_END_S)


def _told(heard: int) -> FaultrunError | None:
    """What the helper says once: why etcd does not answer; None if it does."""
    line = os.read(heard, _CHUNK) if readable(_READY_S, heard) else b""
    try:
        said = json.loads(line)
    except ValueError:
        why = f"nothing was heard of it within {_READY_S:g} s"
        said = {"what": "no etcd is served here", "because": why, "hint": "its log in the log_dir says more"}
    if not said:
        return None
    kind = NoRoomForEtcd if said.pop("full", False) else EtcdNotServed
    return kind(said["what"], because=said["because"], hint=said["hint"])
