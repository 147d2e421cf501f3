"""A fork server that forks."""

from faultrun.workers.fork_server import ForkServer
from support.machine.processes import PATIENCE_S, wait_until


def fork_server(patience_s: float = PATIENCE_S) -> ForkServer:
    """Ready, and waited for that long. Close it."""
    server = ForkServer(patience_s)
    wait_until(lambda: server.ready, what="the fork server")
    return server
