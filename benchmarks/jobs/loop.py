"""``loop.py N RESTARTS PROGRAM...``: what a careful person writes in a script when no launcher is at hand.

Starts N workers; when one ends badly it stops the others (SIGTERM, 30 s, SIGKILL) and starts all again,
with a free port. Written in Python because bash cannot wait for the first of several and time out too.
"""

import os
import signal
import socket
import subprocess
import sys
from contextlib import suppress

_PATIENCE_S = 30


def main() -> int:
    workers, restarts, program = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
    code = 0
    for life in range(restarts + 1):
        code = _live(workers, life, program)
        if code == 0:
            break
    return code


def _live(workers: int, life: int, program: list[str]) -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    meet = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": str(workers)}
    count = {"TORCHELASTIC_RESTART_COUNT": str(life)}
    processes: dict[int, subprocess.Popen[bytes]] = {}
    for rank in range(workers):
        ranks = {"RANK": str(rank), "LOCAL_RANK": str(rank)}
        environ = {**os.environ, **meet, **count, **ranks}
        process = subprocess.Popen([sys.executable, "-u", *program], env=environ)
        processes[process.pid] = process
    while processes:
        pid, status = os.wait()
        processes.pop(pid, None)
        code = os.waitstatus_to_exitcode(status)
        if code != 0:
            _stop(list(processes.values()))
            return code if code > 0 else 128 - code
    return 0


def _stop(processes: "list[subprocess.Popen[bytes]]") -> None:
    for process in processes:
        process.send_signal(signal.SIGTERM)
    for process in processes:
        with suppress(subprocess.TimeoutExpired):
            process.wait(_PATIENCE_S)
        process.kill()
        process.wait()


if __name__ == "__main__":
    sys.exit(main())
