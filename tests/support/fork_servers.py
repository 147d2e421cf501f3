"""A fork server that forks."""

import pytest

from faultrun.workers.fork_server import ForkServer
from support.processes import PATIENCE_S, wait_until


def fork_server(monkeypatch: pytest.MonkeyPatch, patience_s: float = PATIENCE_S) -> ForkServer:
    """Ready, and waited for that long. Close it."""
    monkeypatch.setattr("faultrun.workers.fork_server._FORK_PATIENCE_S", patience_s)
    server = ForkServer()
    wait_until(lambda: server.ready, what="the fork server")
    return server
