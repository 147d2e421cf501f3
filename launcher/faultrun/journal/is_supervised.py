"""Whether the run of a log_dir has a supervisor now: somebody who accepts connections at its socket."""

import os
import socket
from collections.abc import Mapping
from typing import Any

_CONNECT_S = 0.5


def is_supervised(record: Mapping[str, Any]) -> bool:
    """Ask at the socket that ``record`` (run.json) names; a file that was left behind does not answer."""
    path = str(record.get("socket") or "")
    if not path or not os.path.exists(path):  # noqa: PTH110 - a string is all there is
        return False
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(_CONNECT_S)
        try:
            probe.connect(path)
        except OSError as error:
            return isinstance(error, (BlockingIOError, TimeoutError))  # its queue is full: it is there
    return True
