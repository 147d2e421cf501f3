"""A fork server that forks."""

from faultrun.workers.fork_server import ForkServer
from support.processes import wait_until


def fork_server() -> ForkServer:
    """Ready. Close it."""
    server = ForkServer()
    wait_until(lambda: server.ready, what="the fork server")
    return server
