"""Whether standbys run ahead where their rank needs a device's memory: whole runs on an emulated one."""

import sys
from collections.abc import Callable
from typing import Any

import pytest

from support.machine.processes import wait_until
from support.places import TESTS
from support.runs import Launcher, Run

ON_DEVICE = TESTS / "faults" / "scripts" / "stays_on_device.py"
WORDS = ("--framework=torch", "--worker_num=2", "--standby=2", "--backoff=10ms..20ms")

pytestmark = pytest.mark.torch


def changes(run: Run, reached: Callable[[dict[str, Any]], bool], what: str) -> list[dict[str, Any]]:
    """Wait until every standby has told such a change."""

    def both() -> list[dict[str, Any]] | None:
        found = [event for event in run.events("StandbyChanged") if reached(event)]
        return found if {event["rank"] for event in found} == {0, 1} else None

    return wait_until(both, while_runs=run.pid, within_s=240, what=what)


def test_where_a_device_has_no_room_for_a_second_worker_the_standby_is_kept_ready(launcher: Launcher) -> None:
    run = launcher.command(*WORDS, sys.executable, str(ON_DEVICE), "600", "0")
    kept = changes(run, lambda event: ": cuda device_" in event["because"], "no room")
    says = "has 1000 MiB, and 1220 would be used with it, with 50 to stay free"
    assert {event["because"] for event in kept} == {
        f"kept ready: cuda device_{rank} {says}" for rank in (0, 1)
    }
    assert not run.events("StandbyChanged", state="parked")
    run.kill(1)
    run.event("FirstStep", incarnation=1)
    (came,) = run.events("WorkerStarted", incarnation=1)
    assert (came["rank"], came["standby"]) == (1, True)
    run.signal(15)
    assert run.ends() == 143


def test_a_rank_that_grows_gets_the_room_of_its_parked_standby_before_it_fails(launcher: Launcher) -> None:
    run = launcher.command(*WORDS, sys.executable, str(ON_DEVICE), "400", "1")
    changes(run, lambda event: event["state"] == "parked", "parked standbys")
    (launcher.folder / "grow").touch()
    gone = changes(run, lambda event: event["state"] == "dismissed", "room for the ranks")
    assert ", where its rank trains, has " in gone[0]["because"]

    def grown() -> bool:
        told = run.events("MemoryUsed")
        return any(one["device_bytes"] > 800 << 20 for one in told)

    wait_until(grown, while_runs=run.pid, within_s=120, what="a rank that needs it all")
    assert not run.events("WorkerExit"), run.text
    assert not run.events("IncarnationStarted", incarnation=1)
    run.signal(15)
    assert run.ends() == 143
