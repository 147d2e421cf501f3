"""A rank dies and the others train on without it, until a newcomer is back: the real program, real kills."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from support.machine.processes import wait_until
from support.places import TESTS
from support.runs import FAULTRUN, Launcher, Run

STAYS = TESTS / "faults" / "scripts" / "stays.py"


def training(
    launcher: Launcher, *words: str, workers: int = 3, options: tuple[str, ...] = (), last: int = 100_000
) -> Run:
    """All ranks train, and have said what they can do."""
    own = (f"--worker_num={workers}", "--checkpoint_dir=ck", "--backoff=10ms..20ms", "--while_missing=train")
    run = launcher.command(*own, *options, sys.executable, "-u", str(STAYS), str(last), *words)
    run.trains(range(workers))
    for rank in range(workers):
        run.event("RankCanRejoin", rank=rank)
    return run


def plans(run: Run) -> list[tuple[list[int], bool]]:
    """Who was missing in each incarnation, and whether somebody came back with it."""
    found = [line["plan"] for line in run.events("PlanAdopted")]
    return [(one.get("missing", []), one.get("heals", False)) for one in found]


def healed(run: Run, incarnation: int) -> None:
    """All train together, in that incarnation."""
    run.event("PlanAdopted", incarnation=incarnation)
    run.event("FirstStep", incarnation=incarnation)


def status(launcher: Launcher) -> dict[str, object]:
    shown = subprocess.run(
        [*FAULTRUN, "status", "--json"], cwd=launcher.folder, capture_output=True, check=True
    )
    told: dict[str, object] = json.loads(shown.stdout)
    return told


def test_the_others_train_on_and_the_newcomer_comes_back_beside_them(launcher: Launcher) -> None:
    run = training(launcher, "gated")
    before = [run.worker(rank) for rank in range(3)]
    run.kill(1)
    first = run.event("FirstStep", incarnation=1)
    assert run.events("IncarnationStarted", incarnation=1)[0]["ranks"] == [0, 2]
    run.event("StandbyChanged", rank=1, state="parking")
    told = status(launcher)
    assert str(told["missing"]).startswith("2 of 3 train, rank 1 heals: ")
    ranks = {one["rank"]: one for one in told["ranks"]}  # type: ignore[attr-defined]
    assert [ranks[rank]["state"] for rank in range(3)] == ["training", "missing", "training"]
    (launcher.folder / "gate").touch()
    healed(run, 2)
    assert plans(run) == [([], False), ([1], False), ([], True)]
    assert [run.worker(rank) == pid for rank, pid in enumerate(before)] == [True, False, True]
    (came,) = run.events("WorkerStarted", incarnation=2)
    assert (came["rank"], came["standby"]) == (1, True)
    assert Path(f"/proc/{came['pid']}/fd/1").readlink() == run.log_dir / "incarnation_0" / "worker_1.log"
    assert run.event("FirstStep", incarnation=2)["step"] > first["step"]
    said = "rank 1 is missing; ranks 0 2 train on with the same global batch, rank 1 heals beside them"
    assert said in run.text
    wait_until(lambda: "; all 3 train" in run.text, while_runs=run.pid, what="that it is back")
    assert "rank 1 is back after " in run.text
    assert " in which the others trained on with the same global batch" in run.card(1)
    assert len(run.events("PlanAdopted")[-1]["plan"]["ledger"]["restarts"]) <= 1
    assert "missing" not in status(launcher)
    run.signal(15)
    assert run.ends() == 143
    assert "1 restart" in run.text


@pytest.mark.parametrize(("where", "lives"), [("parks", 2), ("joins", 4)])
def test_a_newcomer_that_dies_on_its_way_is_told_of_and_tried_again(
    where: str, lives: int, launcher: Launcher
) -> None:
    run = training(launcher, f"dies-{where}")
    run.kill(1)
    healed(run, lives)
    missing = [([], False), ([1], False), ([], True)]
    assert plans(run) == missing + ([([1], False), ([], True)] if where == "joins" else [])
    if where == "parks":
        assert "who came for rank 1: its process was killed by SIGKILL; it is tried again" in run.text
    assert not run.events("GaspRequested")
    restarts = [len(line["plan"]["ledger"]["restarts"]) for line in run.events("PlanAdopted")]
    assert max(restarts) == 1
    run.signal(15)
    assert run.ends() == 143


def test_another_that_dies_while_one_is_missing_is_missing_too(launcher: Launcher) -> None:
    run = training(launcher, "gated", workers=4)
    run.kill(1)
    run.event("FirstStep", incarnation=1)
    run.kill(3)
    run.event("FirstStep", incarnation=2)
    assert plans(run)[-1] == ([1, 3], False)
    (launcher.folder / "gate").touch()
    wait_until(lambda: plans(run)[-1] == ([], True), while_runs=run.pid, what="all of them")
    healed(run, run.events("PlanAdopted")[-1]["incarnation"])
    run.signal(15)
    assert run.ends() == 143


def test_too_few_wait_for_the_newcomer_as_ever_and_so_do_ranks_that_cannot_share(launcher: Launcher) -> None:
    run = training(launcher, "alone")
    assert "the others do not train on while a rank is missing: this script cannot share" in run.text
    run.kill(1)
    healed(run, 1)
    assert plans(run) == [([], False), ([], False)]
    run.signal(15)
    assert run.ends() == 143


def test_where_the_others_finish_first_the_run_ends_well_and_the_newcomer_goes(launcher: Launcher) -> None:
    run = training(launcher, "gated", "pace-0.05", last=40)
    run.kill(1)
    assert run.ends() == 0, run.text
    assert plans(run) == [([], False), ([1], False)]
    assert [line["state"] for line in run.events("StandbyChanged", rank=1)] == ["parking", "dismissed"]


def test_a_broken_device_gets_no_newcomer_until_it_is_well_and_no_rank_is_started_again(
    launcher: Launcher,
) -> None:
    options = ("--min_worker_num=2", "--health_check=test -e well")
    run = training(launcher, options=options)
    before = [run.worker(rank) for rank in range(3)]
    (launcher.folder / "break").touch()
    run.event("FirstStep", incarnation=1)
    told = status(launcher)
    assert str(told["workers"]).startswith("2 of 3, without slot 1: its device failed")
    assert str(told["missing"]).startswith("2 of 3 train, rank 1 is missing: ")
    assert "rank 1 is missing; ranks 0 2 train on with the same global batch\n" in run.text
    (launcher.folder / "well").touch()
    healed(run, 2)
    assert run.event("SlotsUsable")["slots"] == [1]
    assert plans(run) == [([], False), ([1], False), ([], True)]
    assert [run.worker(rank) == pid for rank, pid in enumerate(before)] == [True, False, True]
    assert {"workers", "missing"}.isdisjoint(status(launcher))
    run.signal(15)
    assert run.ends() == 143


def test_a_place_that_stays_empty_is_waited_for_in_the_end(launcher: Launcher) -> None:
    run = training(launcher, "gated", options=("--heal_timeout=1s",))
    run.kill(1)
    run.event("PlanAdopted", incarnation=2)
    (launcher.folder / "gate").touch()
    healed(run, 2)
    assert "no newcomer took the place of rank 1 within 1 s; all wait for a newcomer" in run.text
    run.signal(15)
    assert run.ends() == 143


def test_a_place_that_stays_empty_is_given_up_where_the_run_may_have_fewer(launcher: Launcher) -> None:
    run = training(launcher, "gated", options=("--heal_timeout=1s", "--min_worker_num=2"))
    run.kill(1)
    smaller = run.event("PlanAdopted", incarnation=2)["plan"]
    assert smaller["topology"]["nodes"][0]["places"] == [0, 2]
    run.event("FirstStep", incarnation=2)
    assert "incident 2  rank 1 of 3 was missing for too long" in run.card(2)
    assert len(smaller["ledger"]["restarts"]) == 1
    run.signal(15)
    assert run.ends() == 143
