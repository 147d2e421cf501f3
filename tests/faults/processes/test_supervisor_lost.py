"""SIGKILL to the supervisor: nothing it started outlives it, and the same command goes on where it was."""

from contextlib import suppress
from pathlib import Path

import pytest

from support.machine.processes import lives, marked, wait_until
from support.runs import ESCAPES, Launcher, Run, stand_in_scheduler


def test_no_worker_no_loader_and_no_escaped_grandchild_outlives_the_supervisor(launcher: Launcher) -> None:
    run = launcher.run(ESCAPES + "escape()\nos.fork()\ntrain()", workers=3).trains(range(3))
    assert len(marked(launcher.mark)) >= 1 + 3 * 3
    run.kill_supervisor()
    wait_until(lambda: not marked(launcher.mark), what="the end of all processes")


def test_the_scheduler_goes_with_the_supervisor_and_with_the_workers(launcher: Launcher) -> None:
    stand_in_scheduler(launcher.folder)
    run = launcher.run(
        "train_in_the_first_life()", "--framework=mindspore", "--ms_scheduler=native", "--join=True"
    )
    scheduler = scheduler_of(launcher, run)
    # the ranks do not wait for it: a life may be over before its own has said a word
    log = run.log_dir / "incarnation_0" / "scheduler.log"
    wait_until(lambda: "stand-in scheduler MS_SCHED" in log.read_text(), while_runs=run.pid, what="its word")
    run.trains(range(2)).kill(1)
    run.event("IncarnationStarted", incarnation=1)
    assert not lives(scheduler), "every incarnation has a scheduler of its own"
    assert run.ends() == 0

    again = launcher.run("train()", "--framework=mindspore", "--ms_scheduler=native")
    scheduler = scheduler_of(launcher, again)
    again.trains(range(2))
    again.kill_supervisor()
    wait_until(lambda: not lives(scheduler), what="the scheduler's end")
    wait_until(lambda: not marked(launcher.mark), what="the end of all processes")


def test_the_same_command_goes_on_as_the_next_incarnation(launcher: Launcher) -> None:
    program = "if life < 4: train()"
    first = launcher.run(program, "--backoff=10ms..10ms").trains(range(2))
    first.kill(1)
    first.trains(range(2), incarnation=1)
    first.kill_supervisor()

    second = launcher.run(program, "--backoff=10ms..10ms").trains(range(2), incarnation=2)
    assert "going on with run" in second.text
    second.kill(0)
    second.trains(range(2), incarnation=3)
    second.kill(0)
    assert second.ends() == 0

    assert [line["incarnation"] for line in second.events("IncarnationStarted")] == [0, 1, 2, 3, 4]
    assert [line["seq"] for line in second.events()] == list(range(len(second.events())))
    assert sorted(path.name for path in second.log_dir.glob("incident_*.txt")) == [
        f"incident_{number}.txt" for number in (1, 2, 3)
    ]
    assert "2 of 3 left this hour" in second.card(1)
    assert "1 of 3 left this hour" in second.card(2)
    assert len({line["boot"] for line in second.events("RunStarted")}) == 2
    assert {line["plan"]["ledger"]["incidents"] for line in second.events("PlanAdopted")} == {0, 1, 2, 3}


@pytest.mark.parametrize("moment", ["GoGiven", "WorkerStarted"])
def test_killed_while_it_starts_workers_it_leaves_none(launcher: Launcher, moment: str) -> None:
    run = launcher.run(ESCAPES + "escape()\ntrain()", workers=8)
    run.event(moment)
    run.kill_supervisor()
    wait_until(lambda: not marked(launcher.mark), what="the end of all processes")


def scheduler_of(launcher: Launcher, run: Run) -> int:
    """Wait until the scheduler runs; its pid."""

    def pid() -> int | None:
        for found in marked(launcher.mark):
            with suppress(OSError):
                if b"MS_ROLE=MS_SCHED\0" in Path(f"/proc/{found}/environ").read_bytes():
                    return found
        return None

    return wait_until(pid, while_runs=run.pid, what="the scheduler")
