"""Three supervisors on one machine, as on three: two train, one is spare, and one host "dies".

A host is all that one supervisor has started. The first one serves etcd for all of them; the second is
killed with all of its processes, and the third takes its place. Exit code 0 only if all came as told.
"""

import argparse
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from faultrun.errors import FaultrunError
from faultrun.nodes.etcd.own_server import find_etcd

TRAIN = Path(__file__).resolve().parents[1] / "02_torch_ddp" / "train.py"
LEASE_S = 5
WITHIN_S = 180.0
STEP = re.compile(r"^rank \d+ epoch \d+ step (\d+)", re.MULTILINE)
FINAL = re.compile(r"^final step .*$", re.MULTILINE)


class Node:
    """One supervisor, and what it tells of its host."""

    def __init__(self, number: int, work: Path, port: int, delay_s: float) -> None:
        self.name = f"node{number}"
        self.log_dir = work / "faultrun_log" / f"node_{self.name}"
        words = [
            "--nnodes=2",
            "--nproc-per-node=1",
            "--master_addr=127.0.0.1",
            f"--master_port={port}",
            f"--node_rank={number}",
            f"--node_name={self.name}",
            f"--lease_ttl={LEASE_S}",
            "--checkpoint_dir=digits",
            "--resume_arg=--pre_trained={checkpoint}",
        ]
        train = [str(TRAIN), f"--step_delay_s={delay_s}", "--log_steps=1"]
        self.console = work / f"{self.name}.out"
        self._console = self.console.open("wb")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "faultrun", *words, *train],
            cwd=work,
            env={**os.environ, "LAPTOP_HOST": self.name},
            stdout=self._console,
            stderr=subprocess.STDOUT,
        )

    def events(self, kind: str, incarnation: int) -> list[dict[str, Any]]:
        """The journal's lines of one kind, of one life of the workers."""
        path = self.log_dir / "journal.jsonl"
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        lines = [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]
        return [line for line in lines if (line["event"], line["incarnation"]) == (kind, incarnation)]

    def printed(self, incarnation: int) -> str:
        """What its worker has printed in one life."""
        logs = self.log_dir.glob(f"incarnation_{incarnation}/worker_*.log")
        return "".join(log.read_text(encoding="utf-8", errors="replace") for log in logs)

    def step(self, incarnation: int) -> int:
        """The last step that its worker has finished in that life; 0 before the first."""
        return max(map(int, STEP.findall(self.printed(incarnation))), default=0)

    def die(self) -> None:
        """End the supervisor and all that it has started, in one moment, as when a host loses its power."""
        for signum in (signal.SIGSTOP, signal.SIGKILL):  # stopped first: none may do a last thing for another
            for pid in _bearing(f"LAPTOP_HOST={self.name}"):
                with suppress(ProcessLookupError):
                    os.kill(pid, signum)
        self.process.wait()

    def close(self) -> None:
        """Leave nothing of it."""
        self.die()
        self._console.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--step_delay_s", type=float, default=0.1, help="so long each step computes more")
    asked = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that nothing is left then, too
    work = Path(tempfile.mkdtemp(prefix="faultrun-nodes-"))
    began_s = time.monotonic()

    def tell(line: str) -> None:
        print(f"{time.monotonic() - began_s:6.1f} s  {line}", flush=True)

    with ExitStack() as stack:
        port = free_port()
        nodes: list[Node] = []
        for number in range(3):
            nodes.append(Node(number, work, port, asked.step_delay_s))
            stack.callback(nodes[-1].close)
            tell(
                f"{nodes[-1].name}: faultrun --nnodes=2 --master_addr=127.0.0.1 --node_rank={number} train.py"
            )
        wait_until(lambda: sum(node.step(0) >= 30 for node in nodes) == 2, "step 30 of both ranks", nodes)
        training = [node for node in nodes if node.step(0)]
        spare = next(node for node in nodes if node not in training)
        victim = training[1]
        tell(f"{training[0].name} and {victim.name} train, {spare.name} is spare")
        killed_s = time.monotonic()
        victim.die()
        tell(f"{victim.name} dies with everything on it at step {victim.step(0)}")
        wait_until(lambda: spare.step(1) > 0, f"a step of {spare.name}", nodes)
        took_s = time.monotonic() - killed_s
        tell(f"{spare.name} trains in its place, {took_s:.1f} s later (the lease is {LEASE_S} s)")
        left = [node for node in nodes if node is not victim]
        wait_until(lambda: all(node.process.poll() is not None for node in left), "the end", nodes)
        final = next((line for node in left for line in FINAL.findall(node.printed(1))), "no last line")
        codes = [node.process.returncode for node in left]
        tell(f"{final}; exit codes {codes}")
        print(f"\nfaultrun status --log_dir {left[0].log_dir}\nfaultrun incident --log_dir {left[0].log_dir}")
        return int(codes != [0, 0] or final == "no last line")


def wait_until(reached: Callable[[], bool], what: str, nodes: list[Node]) -> None:
    deadline_s = time.monotonic() + WITHIN_S
    while not reached():
        if time.monotonic() > deadline_s:
            consoles = "\n".join(str(node.console) for node in nodes)
            raise SystemExit(f"{what} did not come within {WITHIN_S:g} s; look into\n{consoles}")
        time.sleep(0.05)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


def _bearing(mark: str) -> list[int]:
    """Pids of the processes that have ``mark`` in their environment."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                if mark.encode() in (entry / "environ").read_bytes():
                    found.append(int(entry.name))
    return found


if __name__ == "__main__":
    try:
        find_etcd()
    except FaultrunError as missing:
        sys.exit(str(missing))
    sys.exit(main())
