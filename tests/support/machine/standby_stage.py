"""Workers and standbys of a test, started in a folder of its own and ended with it."""

import os
import select
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from faultrun.model.exits import ExitStatus
from faultrun.model.observed.standby import StandbyWish
from faultrun.workers.launch import Launch
from faultrun.workers.priority import may_rise_again
from faultrun.workers.process import Process, start
from faultrun.workers.standby import Standby
from support.machine.processes import wait_until
from support.places import TESTS

PATIENCE_S = 240.0


class Stage:
    """Starts workers and standbys in ``folder``, ends them with the test."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.processes: list[Process] = []
        self.standbys: list[Standby] = []

    def launch(self, *program: str, out: str = "out", **environ: str) -> Launch:
        env = {**os.environ, "PYTHONPATH": str(TESTS / "support" / "machine"), **environ}
        return Launch(
            argv=(sys.executable, "-u", *program),
            env=env,
            stdout=self.folder / out,
            cwd=str(self.folder),
            hooked=True,
        )

    def standby(self, launch: Launch, framework: str, *imports: str, sets: tuple[str, ...] = ()) -> Standby:
        wish = StandbyWish(framework=framework, imports=imports, sets=sets)
        standby = Standby(launch, wish, self.folder / "standby.log", may_rise=may_rise_again())
        self.processes.append(standby.process)
        self.standbys.append(standby)
        return standby

    def runs(self, launch: Launch) -> str:
        """A fresh worker, to its end."""
        process = start(launch)
        self.processes.append(process)
        return str(status_of(process))

    def close(self) -> None:
        for standby in self.standbys:
            standby.close()
        for process in self.processes:
            process.kill_group()
            with suppress(OSError):
                status_of(process)


def status_of(process: Process) -> ExitStatus:
    def reaped() -> tuple[ExitStatus] | None:
        status = process.reap()
        return None if status is None else (status,)

    return wait_until(reaped, within_s=PATIENCE_S, what=f"the end of {process.pid}")[0]


def hears(standby: Standby) -> dict[str, Any]:
    """The next message of a standby; {} when it has ended."""
    poll = select.poll()
    poll.register(standby.fd, select.POLLIN)
    assert poll.poll(PATIENCE_S * 1000), "the standby says nothing"
    messages = standby.messages()
    return {} if messages is None else messages[0]


def ready(stage: Stage, launch: Launch, framework: str = "plain", *imports: str) -> Standby:
    """A standby that has said that it is ready."""
    standby = stage.standby(launch, framework, *imports)
    assert hears(standby)["kind"] == "ready"
    return standby
